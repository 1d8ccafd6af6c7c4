"""The folder of a run: its configuration with everything needed to repeat it, and its rows."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import platform
import warnings
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icrl_agents.files import check_can_be_made, check_writable, is_partial, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONFIG, ROWS = "config.json", "rows.csv"
TIMES = ("seconds",)
"""Columns that hold times, which no two runs share."""
NOT_RESULTS = ("out", "cache", "workers", "executor", "ray_address", "tensorboard")
"""Settings that decide where and how a run is computed, and not what comes out."""
_PACKAGES = ("icrl", "gymnasium", "metaworld", "mujoco", "numpy", "torch")


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
    found = read_folder(folder)
    if found is None and folder.exists() and (not folder.is_dir() or not all(map(is_partial, folder.iterdir()))):
        raise ValueError(f"out: {folder} is not an empty folder; choose another one with --out.")
    if found is not None:
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
    for check in (check_can_be_made, check_writable):
        for written in (folder, *others):
            check(written)
    if found is None:
        write_atomically(folder / CONFIG, (json.dumps(described, indent=2) + "\n").encode())


@contextlib.contextmanager
def opened_folder(folder: Path, config: Any) -> Iterator[None]:  # noqa: ANN401 - a dataclass instance
    """Opens ``folder`` as ``open_folder`` does, and leaves it, its new parents too, at an error before any result."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    open_folder(folder, config)
    try:
        yield
    except Exception:
        leave_folder(folder)
        with contextlib.suppress(OSError):  # where there are results, or another run has written meanwhile
            for parent in made[1:]:
                parent.rmdir()
        raise


def leave_folder(folder: Path) -> None:
    """Takes away what ``open_folder`` has made where nothing was added to it, so that other options are not refused."""
    there = sorted(path for path in folder.rglob("*") if not is_partial(path))
    if [path for path in there if not path.is_dir()] == [folder / CONFIG]:
        (folder / CONFIG).unlink()
        with contextlib.suppress(OSError):  # where another run is writing there
            for place in [path for path in reversed(there) if path.is_dir()] + [folder]:
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
        numbers = itertools.chain([""], map(".{}".format, itertools.count(2)))
        places = (path.with_name(f"{path.stem}{number}.before{path.suffix}") for number in numbers)
        kept = next(place for place in places if not place.exists())
        write_atomically(kept, path.read_bytes())
        warnings.warn(f"{path}: held other rows, which are kept as {kept.name}.", stacklevel=2)
    write_atomically(path, content)


def write_figure(figure: Figure, path: Path) -> None:
    """Writes a figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    write_atomically(path, buffer.getvalue())


def describe(config: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass instance
    """Study, settings, versions and command of a run, ready for JSON."""
    return {
        "study": _study(config),
        "settings": json.loads(json.dumps(dataclasses.asdict(config), default=str)),
        "versions": versions(),
        "command": command(config),
    }


def versions() -> dict[str, str]:
    """Versions of Python, of the libraries that decide results, and of this package's source."""
    libraries = {name: version(name) for name in _PACKAGES}
    return {"python": platform.python_version(), **libraries, "source": source_digest()}


def identity(config: Any) -> str:  # noqa: ANN401 - a dataclass instance
    """Everything that decides the rows of a run: its study, settings and versions, as JSON."""
    described = describe(config)
    settings = {name: value for name, value in described["settings"].items() if name not in NOT_RESULTS}
    return json.dumps([described["study"], settings, described["versions"]], sort_keys=True)


def command(config: Any) -> list[str]:  # noqa: ANN401 - a dataclass instance
    """The command line of a configuration: its study, and every option off its default."""
    words = ["icrl", _study(config)]
    for field in dataclasses.fields(config):
        value, option = getattr(config, field.name), field.name.rstrip("_").replace("_", "-")
        if value == field.default:
            continue
        given = list(map(str, value if isinstance(value, (tuple, list)) else [value]))
        if isinstance(field.default, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += given if "Positional" in str(field.type) else [f"--{option}", *given]
    return words


@functools.cache
def source_digest() -> str:
    """A hash of the source of both packages: rows of changed code are not taken for those of the code as it is."""
    digest, root = hashlib.sha256(), Path(__file__).parents[2]
    for package in ("icrl_agents", "icrl_envs"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _study(config: Any) -> str:  # noqa: ANN401 - a dataclass instance
    """The study that the configuration's module belongs to."""
    return type(config).__module__.split(".")[-2]


def _timeless(content: bytes) -> list[dict[str, str]] | None:
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    except (UnicodeDecodeError, csv.Error):
        return None
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def _differences(found: dict[str, Any], here: dict[str, Any], ignored: Sequence[str] = ()) -> list[str]:
    return sorted(name for name in (found | here).keys() - set(ignored) if found.get(name) != here.get(name))
