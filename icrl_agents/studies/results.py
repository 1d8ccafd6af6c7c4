"""The folder of a run: its configuration with everything needed to repeat it, and its rows."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from icrl_agents.files import check_writable, write_atomically

CONFIG, ROWS = "config.json", "rows.csv"
_PACKAGES = ("icrl", "gymnasium", "metaworld", "mujoco", "numpy", "torch")
_NOT_RESULTS = ("out", "cache", "workers", "tensorboard")


def open_folder(folder: Path, config: Any, *others: Path) -> None:  # noqa: ANN401 - a dataclass instance
    """Makes ``folder`` ready for a run of ``config``, before any work is done.

    Args:
        folder: Made if it is missing.
        config: The run's configuration, a dataclass instance.
        others: Further folders that the run writes into.

    Raises:
        ValueError: If the folder holds a run of another configuration or of other library versions, or other files.
        OSError: If it cannot be written.
    """
    described = describe(config)
    path = folder / CONFIG
    if path.exists():
        try:
            existing = json.loads(path.read_text())
            settings, versions = existing["settings"], existing["versions"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"out: {path} is not a configuration of icrl; choose another folder with --out.") from None
        if other := _differences(settings, described["settings"]):
            raise ValueError(
                f"out: {folder} holds a run of another configuration (other {', '.join(other)}); "
                "choose another folder with --out."
            )
        if versions != described["versions"]:
            raise ValueError(
                f"out: {folder} holds a run of other versions of libraries; choose another one with --out."
            )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"out: {folder} is not an empty folder; choose another one with --out.")
    for written in (folder, *others):
        check_writable(written)
    write_atomically(path, (json.dumps(described, indent=2) + "\n").encode())


def write_rows(folder: Path, rows: Iterable[Any], name: str = ROWS) -> None:
    """Writes dataclass instances as ``name``, numbers in full precision, None as an empty field."""
    rows = [dataclasses.asdict(row) for row in rows]
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(folder / name, buffer.getvalue().encode())


def describe(config: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass instance
    """Settings, versions and command of a run, ready for JSON."""
    return {
        "settings": json.loads(json.dumps(dataclasses.asdict(config), default=str)),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        "command": command(config),
    }


def command(config: Any) -> list[str]:  # noqa: ANN401 - a dataclass instance
    """The command line of a configuration: the study that its module belongs to, and every option off its default."""
    words = ["icrl", type(config).__module__.split(".")[-2]]
    for field in dataclasses.fields(config):
        value, option = getattr(config, field.name), field.name.replace("_", "-")
        if value == field.default:
            continue
        given = list(map(str, value if isinstance(value, (tuple, list)) else [value]))
        if isinstance(field.default, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += given if "Positional" in str(field.type) else [f"--{option}", *given]
    return words


def _differences(settings: dict[str, Any], others: dict[str, Any]) -> list[str]:
    names = (settings | others).keys() - set(_NOT_RESULTS)
    return sorted(name for name in names if settings.get(name) != others.get(name))
