"""Two files of rows, column by column."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from icrl_agents.studies.results import TIMES


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A column of a file of rows, as it was and as it is now.

    Args:
        file: Name of the file.
        column: Name of the column.
        rows: Number of rows.
        differing: Rows whose entries are not the same text.
        largest: Largest difference of two numbers relative to the larger one; infinite where an entry is no number
            or not finite, or where a row or column is missing.
    """

    file: str
    column: str
    rows: int
    differing: int
    largest: float


def compare(before: Path, now: Path) -> list[Comparison]:
    """Compares two files, row by row in their order; one that is missing has no rows.

    Raises:
        ValueError: If one is no file of rows.
    """
    rows, others = (_rows(path) if path.exists() else [] for path in (before, now))
    compared = []
    for column in dict.fromkeys(name for row in [*rows, *others] for name in row):
        if column not in TIMES:
            pairs = [
                (rows[i].get(column) if i < len(rows) else None, others[i].get(column) if i < len(others) else None)
                for i in range(max(len(rows), len(others)))
            ]
            differences = [_difference(*pair) for pair in pairs if pair[0] != pair[1]]
            compared.append(
                Comparison(
                    file=before.name,
                    column=column,
                    rows=len(pairs),
                    differing=len(differences),
                    largest=max(differences, default=0.0),
                )
            )
    return compared


def table(comparisons: Sequence[Comparison], tolerance: float) -> str:
    """One line per column, with the verdict."""
    cells = [["file", "column", "rows", "differing", "largest relative difference", "verdict"]]
    for each in comparisons:
        verdict = "same" if each.differing == 0 else "within tolerance" if each.largest <= tolerance else "DIFFERS"
        cells.append([each.file, each.column, str(each.rows), str(each.differing), f"{each.largest:.3g}", verdict])
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in cells)


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_bytes().decode(), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"from: {path} is no file of rows ({error}).") from error
    if not rows or any(None in row or None in row.values() for row in rows):
        raise ValueError(f"from: {path} is no file of rows; its lines are empty or of different lengths.")
    return rows


def _difference(before: str | None, now: str | None) -> float:
    try:
        x, y = float(before or "text"), float(now or "text")
    except ValueError:
        return math.inf
    if x == y:  # 0.0 and −0.0 too
        return 0.0
    return abs(x - y) / max(abs(x), abs(y)) if math.isfinite(x) and math.isfinite(y) else math.inf
