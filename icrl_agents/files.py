"""Files that are written whole or not at all, and lines that are appended so."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path

ABANDONED = 3600.0
"""Age in s at which a file that was begun and not finished has no writer left."""


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
                file.flush()
                os.fsync(file.fileno())
            partial.chmod(0o644)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(f"{path}: cannot be written ({error.strerror}).") from error


def append_line(path: Path, line: str) -> None:
    """Appends a line to ``path``, made if it is missing, and waits until the disk has it.

    A failure leaves the file as it was. What a crash leaves of a line has no end, and so is told from a whole one.

    Raises:
        OSError: If it cannot be written, naming ``path``.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            before, content = os.fstat(descriptor).st_size, (line + "\n").encode()
            try:
                while content:
                    content = content[os.write(descriptor, content) :]
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, before)
                raise
        finally:
            os.close(descriptor)
    except OSError as error:
        raise OSError(f"{path}: cannot be written ({error.strerror}).") from error


def check_writable(folder: Path) -> None:
    """Makes ``folder`` if it is missing, and takes away what killed processes have left half-written in it.

    Raises:
        OSError: If that fails or nothing can be written into it, naming it; a new folder is taken away again.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
        for partial in filter(is_partial, folder.iterdir()):
            if time.time() - partial.stat().st_mtime > ABANDONED:
                partial.unlink(missing_ok=True)
    except OSError as error:
        for place in made:
            with contextlib.suppress(OSError):  # it may be the one that could not be made
                place.rmdir()
        raise OSError(f"{folder}: is no folder that can be written ({error.strerror}).") from error


def check_can_be_made(folder: Path) -> None:
    """Makes nothing, so that a run of several folders makes none of them if one cannot be.

    Raises:
        OSError: If a file is in the way of ``folder``, or the folder that it would be made in cannot be written.
    """
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir():
        raise OSError(f"{folder}: is no folder that can be written ({there} is a file).")
    if not os.access(there, os.W_OK):
        raise OSError(f"{folder}: is no folder that can be written (nothing can be written into {there}).")


def is_partial(path: Path) -> bool:
    """Whether ``path`` is what ``write_atomically`` has begun and not finished."""
    return path.name.startswith(".") and path.name.endswith(".partial")
