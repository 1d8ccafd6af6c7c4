"""Rows of the verification: a claim, what was measured of it, and whether that lies within its bound."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

EXACT = 1e-10
"""What two float64 computations of the same numbers may differ by, relative to max(1, |number|)."""

WIDTHS = (50, 38)
"""Characters of the table's first two columns."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One claim.

    Args:
        claim: The statement, or a theorem's.
        source: The arXiv number of the paper that makes it; empty if the claim is about this package alone.
        on: What it was checked on.
        measured: The largest error, or the figure that the claim is about.
        at_least: Its lower bound; None for none.
        at_most: Its upper bound; None for none.
        topic: The part of the verification.
        seconds: Time since the row before, in s.

    Attributes:
        passed: Whether ``measured`` is a number within its bounds.
    """

    claim: str
    source: str
    on: str
    measured: float
    at_least: float | None = None
    at_most: float | None = None
    topic: str = ""
    seconds: float = 0.0
    passed: bool = field(init=False)

    def __post_init__(self) -> None:
        """Judges."""
        low = self.at_least is None or self.measured >= self.at_least
        high = self.at_most is None or self.measured <= self.at_most
        object.__setattr__(self, "passed", low and high and self.measured == self.measured)

    @property
    def bound(self) -> str:
        """The bounds as text."""
        if self.at_least is None or self.at_most is None:
            return " and ".join(f"{s} {b:.4g}" for s, b in (("≥", self.at_least), ("≤", self.at_most)) if b is not None)
        return f"[{self.at_least:.4g}, {self.at_most:.4g}]"


def largest(errors: Iterable[float]) -> float:
    """The largest of them; NaN, at which no claim holds, where one is NaN: ``max`` passes over most of those."""
    return float(np.max(list(errors)))


def table(rows: Sequence[Row]) -> str:
    """A line or two per row, a heading per topic."""
    cells = [["claim", "on", "measured", "bound", "verdict"]]
    for row in rows:
        claim = f"{row.claim} ({row.source})" if row.source else row.claim
        cells.append([claim, row.on, f"{row.measured:.3g}", row.bound, "holds" if row.passed else "FAILS"])
    widths = [*WIDTHS, *(max(len(cell[i]) for cell in cells) for i in range(len(WIDTHS), 5))]
    lines, topic = _wrapped(cells[0], widths), None
    for row, cell in zip(rows, cells[1:], strict=True):
        if row.topic != topic:
            lines.append(f"── {row.topic} ".ljust(sum(widths) + 2 * len(widths) - 2, "─"))
            topic = row.topic
        lines += _wrapped(cell, widths)
    return "\n".join(lines)


def _wrapped(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    columns = [textwrap.wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
    lines = itertools.zip_longest(*columns, fillvalue="")
    return ["  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip() for line in lines]
