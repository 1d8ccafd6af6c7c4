"""A study cell by cell: what is finished is kept at once, and not computed again."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import socket
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from icrl_agents.execution import Executor
from icrl_agents.files import append_line, write_atomically
from icrl_agents.studies.description import installed

CELLS = "cells.jsonl"
Cell = TypeVar("Cell")
Row = TypeVar("Row")


def compute_cells(
    task: Callable[[Cell], list[Row]],
    cells: Mapping[str, Cell],
    kind: type[Row],
    executor: Executor,
    kept: KeptRows,
    libraries: Sequence[str] = (),
) -> list[Row]:
    """Returns the rows of all cells in the order of ``cells``, whatever the order in which they were finished.

    Shows a progress bar on stderr.

    Args:
        task: From a cell to its rows; see ``Executor.map``.
        cells: By names, which say what they are.
        kind: The dataclass of the rows.
        executor: Computes the cells that are not finished.
        kept: The rows of those that are; the others are added, each as soon as it is finished.
        libraries: Those whose versions decide rows, beside those that all studies rest on.

    Raises:
        ValueError: If a task did, or a worker has other versions than this process.
    """
    finished: dict[str, list[Row]] = {
        name: [kind(**row) for row in rows] for name, rows in kept.read().items() if name in cells
    }
    left = {cell: name for name, cell in cells.items() if name not in finished}
    checked = functools.partial(_computed, tuple(libraries), installed(libraries), task)
    with (
        tqdm(total=len(cells), initial=len(finished), desc="cells", unit="cell", file=sys.stderr) as progress,
        contextlib.closing(executor.map(checked, list(left))) as results,
    ):
        progress.set_postfix_str(f"{len(finished)} of them finished before" if finished else "")
        for cell, rows in results:
            name = left[cell]
            kept.add(name, rows)
            finished[name] = rows
            progress.set_postfix_str(name)
            progress.update()
    return [row for name in cells for row in finished[name]]


def _computed(
    libraries: tuple[str, ...], versions: Mapping[str, str], task: Callable[[Cell], list[Row]], cell: Cell
) -> list[Row]:
    """The rows of a cell, if this worker has the versions that the rows are kept under."""
    here = _here(libraries)
    if other := [f"{name} {here[name]}, not {versions.get(name)}" for name in here if here[name] != versions.get(name)]:
        raise ValueError(
            f"executor: a worker on {socket.gethostname()} has other versions ({'; '.join(other)}); install the same "
            "everywhere, and change no source while a study runs."
        )
    return task(cell)


_here = functools.cache(installed)


class KeptRows:
    """The rows of finished cells, one line of JSON for each cell, appended whole.

    Args:
        path: The file; made when the first cell is finished.
        identity: Everything that the rows depend on but the cell's name; lines of another identity do not count.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self.path, self._identity = path, identity

    def read(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the rows by cell. Damaged lines are taken away, with a warning, so that their cells are computed.

        Raises:
            OSError: If the file cannot be read, or not be written where lines are damaged.
        """
        if not self.path.exists():
            return {}
        *lines, torn = self.path.read_bytes().split(b"\n")
        found: dict[str, list[dict[str, Any]]] = {}
        whole: list[bytes] = []
        for line in lines:
            with contextlib.suppress(ValueError, AttributeError, KeyError, TypeError, RecursionError):
                name, rows = self._parsed(line)
                found[name] = rows
                whole.append(line)
        if torn or len(whole) < len(lines):
            damaged = len(lines) - len(whole) + bool(torn)
            warnings.warn(f"{self.path}: {damaged} damaged line(s); computing those cells again.", stacklevel=3)
            write_atomically(self.path, b"".join(line + b"\n" for line in whole))
        return found

    def add(self, name: str, rows: list[Any]) -> None:
        """Appends the rows of a cell, instances of a dataclass.

        Raises:
            OSError: If the file cannot be written.
        """
        append_line(self.path, self._line(name, [dataclasses.asdict(row) for row in rows]))

    def forget(self, names: Collection[str]) -> list[str]:
        """Takes the rows of cells away, so that they are computed again; returns the names of those that were there.

        Raises:
            OSError: If the file cannot be read or written.
        """
        found = self.read()
        if gone := [name for name in found if name in names]:
            lines = [self._line(name, rows) + "\n" for name, rows in found.items() if name not in gone]
            write_atomically(self.path, "".join(lines).encode())
        return gone

    def _line(self, name: str, rows: list[dict[str, Any]]) -> str:
        cell = {"cell": name, "rows": rows}
        return json.dumps({**cell, "sha256": self._digest(cell)})

    def _parsed(self, line: bytes) -> tuple[str, list[dict[str, Any]]]:
        kept = json.loads(line)
        if kept.pop("sha256") != self._digest(kept):
            raise ValueError
        return kept["cell"], kept["rows"]

    def _digest(self, cell: dict[str, Any]) -> str:
        return hashlib.sha256(f"{self._identity}\n{json.dumps(cell)}".encode()).hexdigest()
