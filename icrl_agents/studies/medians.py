"""Medians over seeds, with intervals that assume nothing about how the seeds scatter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95


@dataclass(frozen=True)
class Median:
    """A median over seeds and a confidence interval between two of them.

    Args:
        value: The median; NaN where a seed has none.
        low: Lower end of the interval.
        high: Upper end; it may be infinite, where an evaluator diverged.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Two significant digits, such as ``0.12 [0.1, 0.15]``; ``–`` where there is none."""
        if math.isnan(self.value):
            return "–"
        if self.low == self.high:
            return f"{self.value:.2g}"
        return f"{self.value:.2g} [{self.low:.2g}, {self.high:.2g}]"


def median(values: Sequence[float]) -> Median:
    """The median, and the order statistics x₍ₖ₊₁₎ and x₍ₙ₋ₖ₎ that hold the true one with the largest k allowed.

    P(x₍ₖ₊₁₎ ≤ median ≤ x₍ₙ₋ₖ₎) = 1 − 2 P(B ≤ k) with B binomial, n times ½: at least 0.95 from six values on. Fewer
    than that give their least and largest, at ``coverage(n)``.

    Args:
        values: One per seed, at least one; they may be infinite.

    Example:
        >>> print(median([0.1, 0.4, 0.2, 0.3, 0.2, 0.3]))
        0.25 [0.1, 0.4]
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    if np.isnan(ordered).any():
        return Median(math.nan, math.nan, math.nan)
    cut = _cut(len(ordered))
    middle = ordered[[(len(ordered) - 1) // 2, len(ordered) // 2]]
    centre = middle[0] if middle[0] == middle[1] else middle.mean()  # the mean of two infinities is no number
    return Median(float(centre), float(ordered[cut]), float(ordered[-1 - cut]))


def coverage(count: int) -> float:
    """Probability that the interval of ``median`` holds the true one, of ``count`` independent values."""
    return 1.0 - 2.0 * _tail(count, _cut(count))


def _cut(count: int) -> int:
    """The largest k with 1 − 2 P(B ≤ k) ≥ 0.95, or 0."""
    allowed = [k for k in range((count + 1) // 2) if 1.0 - 2.0 * _tail(count, k) >= LEVEL]
    return max(allowed, default=0)


def _tail(count: int, k: int) -> float:
    """P(B ≤ k)."""
    return sum(math.comb(count, i) for i in range(k + 1)) / 2**count
