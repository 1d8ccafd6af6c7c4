"""Line styles that tell the curves of a figure apart, however many there are, and legends that keep kinds apart."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.lines import Line2D
from matplotlib.typing import LineStyleType

STYLES: tuple[LineStyleType, ...] = ("-", "--", ":", "-.")
"""The first ones; further ones have dashes with two dots, three, and so on."""


def line_styles(count: int) -> list[LineStyleType]:
    """Return ``count`` styles, no two of them alike."""
    styles = list(STYLES)
    styles += [(0, (6.0, 1.5) + dots * (1.0, 1.5)) for dots in range(2, count - len(STYLES) + 2)]
    return styles[:count]


def in_columns(*kinds: Sequence[Line2D]) -> list[Line2D]:
    """Return the handles of a legend with a column for each of ``kinds``: it is filled column by column."""
    rows = max(map(len, kinds))
    return [
        handle
        for kind in kinds
        for handle in (*kind, *(Line2D([], [], linestyle="none", label=" ") for _ in range(rows - len(kind))))
    ]
