"""Files that one process keeps to itself, and whether they are still where they were when it began to."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_KEPT: dict[Path, Kept] = {}


@dataclass(frozen=True)
class Kept:
    """A file that is kept, whatever its name is by now.

    Args:
        device: Of its file system.
        number: Its own, on that device.
        link: Where systems with ``/proc`` say its present name.
        parent: The number of its folder.
        content: What is in it.
    """

    device: int
    number: int
    link: str
    parent: int
    content: bytes

    def is_at(self, path: Path) -> bool:
        """Whether ``path`` is this file, or one in the same folder with the same content, as an editor saves it."""
        try:
            found, parent = path.stat(), path.parent.stat()
            if (found.st_dev, found.st_ino) == (self.device, self.number):
                return True
            return (parent.st_dev, parent.st_ino) == (self.device, self.parent) and path.read_bytes() == self.content
        except (FileNotFoundError, NotADirectoryError):
            return False

    def folder(self) -> str | None:
        """The folder in which it is by now; None if that is not known, or it is in none."""
        try:
            found = os.readlink(self.link)
        except OSError:
            return None
        return str(Path(found).parent) if self.is_at(Path(found)) else None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps ``path`` to whoever is inside; that ends with the process, however it ends.

    Where the system or its file system has no locks, nothing is kept.

    Raises:
        BlockingIOError: If another one is inside.
        FileNotFoundError: If there is no such file.
    """
    with contextlib.ExitStack() as stack:
        try:
            descriptor = stack.enter_context(_held(path))
            if descriptor is not None:
                stack.callback(_KEPT.pop, path.absolute(), None)
                found, parent = os.fstat(descriptor), path.parent.stat().st_ino
                link = f"/proc/{os.getpid()}/fd/{descriptor}"
                _KEPT[path.absolute()] = Kept(found.st_dev, found.st_ino, link, parent, path.read_bytes())
        except (BlockingIOError, FileNotFoundError):
            raise
        except OSError:
            pass
        yield


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keeps ``folder`` to whoever is inside, as ``locked`` does, without a file in it.

    Raises:
        BlockingIOError: If another one is inside.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_held(folder))
        except BlockingIOError:
            raise
        except OSError:
            pass
        yield


@contextlib.contextmanager
def _held(path: Path) -> Iterator[int | None]:
    """Keeps ``path``, and gives its descriptor; None on systems without such locks."""
    if sys.platform == "win32":
        yield None
        return
    import fcntl

    descriptor = _opened(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not path.is_dir() and os.fstat(descriptor).st_nlink == 0:
            raise FileNotFoundError(f"{path}: was taken away meanwhile.")
        yield descriptor
    finally:
        os.close(descriptor)


def kept() -> dict[Path, Kept]:
    """Returns what this process keeps, for ``also_kept`` in processes that it starts."""
    return dict(_KEPT)


def also_kept(others: Mapping[Path, Kept]) -> None:
    """Has ``check_place`` know what the process that started this one keeps."""
    _KEPT.update(others)


def is_in_place(path: Path) -> bool:
    """Whether each file that is kept above ``path`` is still where it was."""
    return not _lost(path)


def check_place(path: Path) -> None:
    """Asks before ``path`` is written whether the folder that it is in is still the one that it was to be in.

    Raises:
        OSError: If a file that is kept there, or in a folder above, is not there any more, naming the folder.
    """
    for place in _lost(path):
        folder = _KEPT[place].folder()
        where = (
            f"which is {folder} now; the same command with --out {folder} goes on"
            if folder
            else "which was renamed or taken away"
        )
        raise OSError(f"{place.parent}: is no longer the folder of this run, {where}.")


def _lost(path: Path) -> list[Path]:
    above = path.absolute().parents
    return [place for place, file in _KEPT.items() if place.parent in above and not file.is_at(place)]


def _opened(path: Path) -> int:
    """Opens what may be another user's; for writing if that is allowed, as some file systems lock nothing else."""
    try:
        return os.open(path, os.O_RDWR)
    except (PermissionError, IsADirectoryError):
        return os.open(path, os.O_RDONLY)
