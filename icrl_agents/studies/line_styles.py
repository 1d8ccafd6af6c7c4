"""Line styles that tell the curves of a figure apart, however many there are."""

from __future__ import annotations

from matplotlib.typing import LineStyleType

STYLES: tuple[LineStyleType, ...] = ("-", "--", ":", "-.")
"""The first ones; further ones have dashes with two dots, three, and so on."""


def line_styles(count: int) -> list[LineStyleType]:
    """Return ``count`` styles, no two of them alike."""
    styles = list(STYLES)
    styles += [(0, (6.0, 1.5) + dots * (1.0, 1.5)) for dots in range(2, count - len(STYLES) + 2)]
    return styles[:count]
