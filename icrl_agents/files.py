"""Files that are written whole or not at all, lines that are appended so, and folders that are made on trial."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import tempfile
import time
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from icrl_agents.locks import check_place

ABANDONED = 3600.0
"""Age in s at which a file that was begun and not finished has no writer left."""
PARTIAL = ".icrl-partial"
"""How the name of such a file ends, and no other program's."""

DAMAGE = (OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, MemoryError, SyntaxError)
DAMAGE += (tokenize.TokenError, zlib.error, zipfile.BadZipFile, zipfile.LargeZipFile)
"""What NumPy and the libraries below it raise for an npz file, according to where it is damaged."""


def at_home(path: str | Path) -> Path:
    """``path`` with the home folder for ``~`` at its beginning, as a shell has it; as it is where there is none."""
    return Path(os.path.expanduser(path))


def write_atomically(path: Path, content: bytes) -> None:
    """Writes ``path`` whole or not at all: beside it first, then in its place; a failure leaves nothing behind.

    A link stays one: what it points to is written.

    Raises:
        OSError: If it cannot be written, or is write-protected or a device, naming ``path``.
    """
    write_together({path: content})


def write_together(files: Mapping[Path, bytes]) -> None:
    """Writes files as ``write_atomically`` does, none of them in its place before all are on the disk.

    Killed between two of their moves, it leaves what is still to be moved in ``unfinished``.

    Raises:
        OSError: If one cannot be written, naming it.
    """
    with contextlib.ExitStack() as stack:
        partials: dict[Path, Path] = {}
        for path, content in files.items():
            with _named(path):
                partials[path] = stack.enter_context(_begun(_replaced(path), content))
        for path, partial in partials.items():
            with _named(path):
                partial.replace(_replaced(path))


def create_atomically(path: Path, content: bytes) -> None:
    """Writes ``path`` as ``write_atomically`` does, but only where there is none, whoever else does so meanwhile.

    Raises:
        FileExistsError: If there is one, which is left as it is.
        OSError: If it cannot be written, naming ``path``.
    """
    with _named(path), _begun(path, content) as partial:
        try:
            os.link(partial, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links: the name is taken first, and filled then
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            partial.replace(path)


def append_line(path: Path, line: str) -> None:
    """Appends a line to ``path``, made if it is missing, and waits until the disk has it.

    A failure leaves the file as it was. What a crash leaves of a line has no end, and so is told from a whole one.

    Raises:
        OSError: If it cannot be written, naming ``path``.
    """
    with _named(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
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


def check_writable(folder: Path) -> None:
    """Makes ``folder`` if it is missing, and takes away what killed processes have left half-written in it.

    Raises:
        OSError: If that fails or nothing can be written into it, naming it; a new folder is taken away again.
    """
    check_place(folder / PARTIAL)
    try:
        with new_folders_on_trial(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"\0")
    except OSError as error:
        raise OSError(f"{folder}: is no folder that can be written ({error.strerror}).") from error
    for partial in filter(is_partial, folder.iterdir()):
        with contextlib.suppress(OSError):  # its writer has finished it meanwhile, or it is somebody else's
            if time.time() - partial.stat().st_mtime > ABANDONED:
                partial.unlink()


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


@contextlib.contextmanager
def new_folders_on_trial(folder: Path) -> Iterator[None]:
    """Takes ``folder`` and its parents away at an error, those that were missing before and have nothing in them."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        yield
    except BaseException:
        for place in missing:
            with contextlib.suppress(OSError):  # it may not have been made, or another run may have written into it
                place.rmdir()
        raise


def is_partial(path: Path) -> bool:
    """Whether ``path`` is a file that was begun here and not finished."""
    return path.name.startswith(".") and path.name.endswith(PARTIAL)


def unfinished(path: Path) -> list[Path]:
    """Files that were begun for ``path`` and not finished, which are whole only where their content says so."""
    path = Path(os.path.realpath(path))
    return sorted(each for each in path.parent.iterdir() if is_partial(each) and each.name.startswith(f".{path.name}."))


def _replaced(path: Path) -> Path:
    """The file that is replaced in writing ``path``; OSError if that is write-protected, which no move asks about."""
    place = Path(os.path.realpath(path))
    if place.exists():
        mode = place.stat().st_mode
        if not mode & 0o222:
            raise OSError(errno.EACCES, "it is write-protected")
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.EINVAL, "it is no file, but a device or pipe")
    return place


@contextlib.contextmanager
def _begun(path: Path, content: bytes) -> Iterator[Path]:
    """Gives the file that is to become ``path``, its content on the disk; takes away what is left of it."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        with partial.open("xb") as file:
            file.write(content)
            file.flush()
            _permit(file.fileno(), path)
            os.fsync(file.fileno())
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def _permit(file: int, replaced: Path) -> None:
    """Gives a file the permissions of the one that it is to replace, and its owner and group, where it may."""
    if not replaced.is_file():
        return
    old, new = replaced.stat(), os.fstat(file)
    with contextlib.suppress(OSError):
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            os.fchown(file, old.st_uid, old.st_gid)
    with contextlib.suppress(OSError):
        os.fchmod(file, stat.S_IMODE(old.st_mode))


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Has errors say that it is ``path`` that cannot be written; that there is one already says so itself."""
    check_place(path)
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise OSError(f"{path}: cannot be written ({error.strerror}).") from error
