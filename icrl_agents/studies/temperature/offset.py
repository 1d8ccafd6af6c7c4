"""What the constant offset costs, and what its correction from the context repairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from icrl_agents.studies.temperature.similarity import interval
from icrl_agents.studies.temperature.summary import FLOOR, TD_LOSS, Summary

COLUMNS = ("msve", "corrected_msve", "centred_msve")


@dataclass(frozen=True)
class Offset:
    """Errors of one method and kernel at one depth, at one length scale for all cells.

    Args:
        method: softmax or kernel.
        kernel: Of the bank.
        length_scale: ℓ.
        depth: Sweeps.
        sizes: |mean(v − G)| / √(mean G²) over the held-out states: of v, and corrected; medians over cells and seeds.
        errors: Geometric means over cells of plain, corrected and centred MSVE over mean G².
        ratio: Corrected over plain MSVE, its geometric mean over cells and seeds, with the ends of its 95 % interval.
        losses: Ratio of the TD losses, corrected over plain, likewise.
        worse: Share of cells where the correction makes the plain error worse, of those where one of them is finite;
            NaN where there is none.
    """

    method: str
    kernel: str
    length_scale: float
    depth: int
    sizes: tuple[float, float]
    errors: tuple[float, float, float]
    ratio: tuple[float, float, float]
    losses: tuple[float, float, float]
    worse: float


def best_scale(summary: Summary, method: str, kernel: str) -> int:
    """Index of the length scale with the least TD loss at full depth, all cells pooled."""
    cells = [(domain, noise) for domain in summary.domains for noise in summary.noise]
    weights = np.full((1, len(summary.seeds)), 1 / len(summary.seeds))
    return int(summary.curves(cells, method, kernel, TD_LOSS, weights)[0].argmin())


def offset(summary: Summary, method: str, kernel: str, depth: int) -> Offset:
    """Measures a method and kernel at one depth, at the length scale of ``best_scale``."""
    scale = best_scale(summary, method, kernel)

    def found(name: str) -> np.ndarray:
        """``(cells, seeds)``."""
        key = (method, kernel, depth, name)
        return np.stack([summary.column(d, s, *key)[:, scale] for d in summary.domains for s in summary.noise])

    power = found("return_power")
    plain, corrected, centred = (found(name) for name in COLUMNS)
    sizes = [np.abs(gap) / np.sqrt(power + FLOOR) for gap in (found("offset"), found("offset") + found("correction"))]
    relative = [np.log((e.mean(1) + FLOOR) / (power.mean(1) + FLOOR)) for e in (plain, corrected, centred)]
    first, second, third = (float(np.exp(each.mean())) for each in relative)
    return Offset(
        method,
        kernel,
        float(summary.length_scales[scale]),
        depth,
        (float(np.median(sizes[0])), float(np.median(sizes[1]))),
        (first, second, third),
        _ratio(corrected, plain),
        _ratio(found("corrected_td_loss"), found("td_loss")),
        _worse(corrected.mean(1), plain.mean(1)),
    )


def _worse(top: np.ndarray, bottom: np.ndarray) -> float:
    """Share of the cells that tell where ``top`` is larger; NaN where both are infinite in all of them."""
    tells = np.isfinite(np.minimum(top, bottom))
    return float((top > bottom)[tells].mean()) if tells.any() else math.nan


def _ratio(top: np.ndarray, bottom: np.ndarray) -> tuple[float, float, float]:
    """Geometric mean over cells and seeds, and its interval over seeds."""
    with np.errstate(invalid="ignore"):  # infinite over infinite is neither better nor worse
        mean, half = interval(np.log((top + FLOOR) / (bottom + FLOOR)).mean(0))
    return float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half))
