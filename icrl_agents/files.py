"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Writes ``path`` whole or not at all: beside it first, then in its place; a failure leaves nothing behind.

    Raises:
        OSError: If it cannot be written, naming ``path``.
    """
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
        partial = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            partial.chmod(0o644)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(f"{path}: cannot be written ({error.strerror}).") from error


def check_writable(folder: Path) -> None:
    """Makes ``folder`` if it is missing.

    Raises:
        OSError: If that fails or nothing can be written into it, naming it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
    except OSError as error:
        raise OSError(f"{folder}: is no folder that can be written ({error.strerror}).") from error
