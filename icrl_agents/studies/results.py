"""The folder of a run: its configuration with everything needed to repeat it, and its rows."""

from __future__ import annotations

import csv
import dataclasses
import json
import platform
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

CONFIG, ROWS = "config.json", "rows.csv"
_PACKAGES = ("icrl", "gymnasium", "metaworld", "mujoco", "numpy", "torch")
_NOT_RESULTS = ("out", "cache", "workers")


def open_folder(folder: Path, config: Any) -> None:  # noqa: ANN401 - a dataclass instance
    """Makes ``folder`` ready for a run of ``config``, before any work is done.

    Args:
        folder: Made if it is missing.
        config: The run's configuration, a dataclass instance.

    Raises:
        ValueError: If the folder holds a run of another configuration, or files but no configuration.
        OSError: If it cannot be written.
    """
    described = describe(config)
    path = folder / CONFIG
    if path.exists():
        try:
            existing = json.loads(path.read_text())["settings"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"out: {path} is not a configuration of icrl; choose another folder with --out.") from None
        if _results_settings(existing) != _results_settings(described["settings"]):
            raise ValueError(f"out: {folder} holds a run of another configuration; choose another folder with --out.")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"out: {folder} is not an empty folder; choose another one with --out.")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(described, indent=2) + "\n")


def write_rows(folder: Path, rows: Iterable[Any]) -> None:
    """Writes dataclass instances as ``rows.csv``, numbers in full precision, None as an empty field."""
    rows = [dataclasses.asdict(row) for row in rows]
    with tempfile.TemporaryFile("w+", newline="") as buffer:
        writer = csv.DictWriter(buffer, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        buffer.seek(0)
        write_atomically(folder / ROWS, buffer.read())


def describe(config: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass instance
    """Settings, versions and command of a run, ready for JSON."""
    return {
        "settings": json.loads(json.dumps(dataclasses.asdict(config), default=str)),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        "command": ["icrl", *sys.argv[1:]],
    }


def write_atomically(path: Path, text: str) -> None:
    """Writes ``path`` whole or not at all."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, suffix=".partial", delete=False, encoding="utf-8", newline=""
    ) as partial:
        partial.write(text)
    Path(partial.name).chmod(0o644)
    Path(partial.name).replace(path)


def _results_settings(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in _NOT_RESULTS}
