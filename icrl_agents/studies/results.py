"""The folder of a run: its configuration with everything needed to repeat it, and its rows."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import itertools
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icrl_agents.files import (
    check_can_be_made,
    check_writable,
    create_atomically,
    is_partial,
    new_folders_on_trial,
    write_atomically,
)
from icrl_agents.locks import is_in_place, locked
from icrl_agents.studies.description import NOT_RESULTS, describe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONFIG, ROWS = "config.json", "rows.csv"
TIMES = ("seconds",)
"""Columns that hold times, which no two runs share."""


@contextlib.contextmanager
def opened_folder(folder: Path, config: Any, *others: Path) -> Iterator[None]:  # noqa: ANN401 - a dataclass instance
    """Opens ``folder`` as ``open_folder`` does, and keeps it to this run until it is left.

    At an error before any result the folder is left empty, or taken away if it is new, and so are its new parents.
    A folder that is renamed meanwhile is written into no more, nor is another one under its name.

    Raises:
        ValueError: As ``open_folder``, or if another run is writing there.
        OSError: As ``open_folder``.
    """
    with new_folders_on_trial(folder), contextlib.ExitStack() as stack:
        open_folder(folder, config, *others)
        try:
            stack.enter_context(locked(folder / CONFIG))
        except (BlockingIOError, FileNotFoundError):
            raise ValueError(
                f"out: another run is writing into {folder}; wait for it, or choose another folder with --out."
            ) from None
        try:
            yield
        except Exception:
            if is_in_place(folder / CONFIG):
                leave_folder(folder)
            raise


def open_folder(folder: Path, config: Any, *others: Path) -> None:  # noqa: ANN401 - a dataclass instance
    """Makes ``folder`` ready for a run of ``config``, or for going on with one, before any work is done.

    Args:
        folder: Made if it is missing.
        config: The run's configuration, a dataclass instance.
        others: Further folders that the run writes into.

    Raises:
        ValueError: If the folder holds a run of another configuration or of other library versions, or other files.
        OSError: If it cannot be written.
    """
    described = describe(config)
    there = _is_of(folder, described)
    if not there and folder.exists() and not (folder.is_dir() and all(map(_is_beginning, folder.iterdir()))):
        raise ValueError(f"out: {folder} is not an empty folder; choose another one with --out.")
    for check in (check_can_be_made, check_writable):
        for written in (folder, *others):
            check(written)
    if not there:
        try:
            create_atomically(folder / CONFIG, (json.dumps(described, indent=2) + "\n").encode())
        except FileExistsError:  # of a run that was started at the same time
            _is_of(folder, described)


def leave_folder(folder: Path) -> None:
    """Empties ``folder`` where nothing was added to what ``open_folder`` wrote: other options are not refused then."""
    there = sorted(path for path in folder.rglob("*") if not is_partial(path))
    if [path for path in there if not path.is_dir()] == [folder / CONFIG]:
        (folder / CONFIG).unlink()
        with contextlib.suppress(OSError):  # where another run is writing there
            for place in [path for path in reversed(there) if path.is_dir()]:
                place.rmdir()


def read_folder(folder: Path, option: str = "out") -> dict[str, Any] | None:
    """Returns what ``describe`` gave for the run in ``folder``, or None if there is none.

    Args:
        folder: The folder.
        option: The one that named it, for the error.

    Raises:
        ValueError: If its configuration cannot be read.
    """
    path = folder / CONFIG
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text())
        if not (isinstance(found["settings"], dict) and isinstance(found["versions"], dict)):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(
            f"{option}: {path} is not a configuration of icrl; choose another folder with --{option}."
        ) from None
    return found


def write_rows(folder: Path, rows: Iterable[Any], name: str = ROWS) -> None:
    """Writes dataclass instances as ``name``, numbers in full precision, None as an empty field.

    A file of that name whose rows are others is kept beside it, with a warning; so are those kept before.
    """
    rows = [dataclasses.asdict(row) for row in rows]
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    path, content = folder / name, buffer.getvalue().encode()
    if path.exists() and _timeless(path.read_bytes()) != _timeless(content):
        kept = next(place for place in numbered(path, ".before") if not place.exists())
        write_atomically(kept, path.read_bytes())
        warnings.warn(f"{path}: held other rows, which are kept as {kept.name}.", stacklevel=2)
    write_atomically(path, content)


def numbered(path: Path, mark: str = "") -> Iterator[Path]:
    """Yields ``path`` with ``mark`` before its suffix, then again with the numbers 2, 3, … before ``mark``."""
    for number in itertools.chain([""], map(".{}".format, itertools.count(2))):
        yield path.with_name(f"{path.stem}{number}{mark}{path.suffix}")


def write_figure(figure: Figure, path: Path) -> None:
    """Writes a figure as PNG, and a panel whose scale is logarithmic even where nothing that it shows is finite."""
    for axes in figure.axes:
        if axes.get_yscale() == "log" and axes.get_ylim()[0] <= 0.0:
            axes.set_ylim(1.0, 10.0)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    write_atomically(path, buffer.getvalue())


def _is_beginning(path: Path) -> bool:
    """Whether a run that begins, or was killed when it began, has written ``path``."""
    return is_partial(path) or path.name == CONFIG


def _is_of(folder: Path, described: dict[str, Any]) -> bool:
    """Whether ``folder`` holds a run.

    Raises:
        ValueError: If it is one of another configuration or of other library versions.
    """
    found = read_folder(folder)
    if found is None:
        return False
    if other := _differences(found["settings"], described["settings"], NOT_RESULTS):
        raise ValueError(
            f"out: {folder} holds a run of another configuration (other {', '.join(other)}); "
            "choose another folder with --out."
        )
    if other := _differences(found["versions"], described["versions"]):
        raise ValueError(
            f"out: {folder} holds a run of other versions of libraries (other {', '.join(other)}); "
            "choose another one with --out."
        )
    return True


def _timeless(content: bytes) -> list[dict[str, str]] | None:
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    except (UnicodeDecodeError, csv.Error):
        return None
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def _differences(found: dict[str, Any], here: dict[str, Any], ignored: Sequence[str] = ()) -> list[str]:
    return sorted(name for name in (found | here).keys() - set(ignored) if found.get(name) != here.get(name))
