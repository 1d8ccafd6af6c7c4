"""Loss against length scale, and the best length scale with its confidence interval."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from icrl_agents.studies.temperature.config import METHODS
from icrl_agents.studies.temperature.evaluation import RIDGE, Row

FLOOR = 1e-4
"""Added to every loss and to what it is divided by, in squared units of reward: nothing divides by almost 0."""
FLAT = 1.1
"""Length scales whose loss is up to this multiple of the least are as good as the best one."""
_REPLICATES = 2_000


class Measure(NamedTuple):
    """A loss, and what it is relative to: columns of the rows."""

    title: str
    loss: str
    scale: str


TD_LOSS = Measure("TD loss", "td_loss", "initial_td_loss")
RETURN_ERROR = Measure("value error against returns", "centred_msve", "return_variance")
TRUE_ERROR = Measure("value error against ground truth", "true_centred_msve", "true_variance")


@dataclass(frozen=True)
class Optimum:
    """A best length scale.

    Args:
        length_scale: The least of the parabola through the least of the bank and its neighbours, in log-log.
        low: Lower end of its 95 % interval: a bootstrap over seeds, widened by √(n / (n − 1)), inside the bank; NaN for
            one seed.
        high: Upper end.
        flat: The range of the bank's length scales whose loss is within 10 % of the least.
        least: The least relative loss of the bank.
        bounds: Ends of the bank.
    """

    length_scale: float
    low: float
    high: float
    flat: tuple[float, float]
    least: float
    bounds: tuple[float, float]

    def __str__(self) -> str:
        """Length scale, interval; ≤ or ≥ where it is an end of the bank, and – where nothing of the bank is finite."""
        if math.isinf(self.least):
            return "–"
        side = "≤" if self.length_scale <= self.bounds[0] else "≥" if self.length_scale >= self.bounds[1] else ""
        interval = "" if math.isnan(self.low) else f" [{self.low:.2g}, {self.high:.2g}]"
        return f"{side}{self.length_scale:.2g}{interval}"


class Summary:
    """Rows of a study, by cell, method, kernel and depth.

    Args:
        rows: All rows.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self.domains = list(dict.fromkeys(row.domain for row in self.rows))
        self.noise = list(dict.fromkeys(row.noise for row in self.rows))
        self.kernels = list(dict.fromkeys(row.kernel for row in self.rows))
        present = {row.method for row in self.rows}
        self.methods = [method for method in METHODS if method in present]
        self.seeds = sorted({row.seed for row in self.rows})
        self.length_scales = np.array(sorted({row.length_scale for row in self.rows}))
        self.depths = sorted({row.depth for row in self.rows if row.depth is not None})
        self._cells: dict[tuple[object, ...], list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: (row.seed, row.length_scale)):
            key = (row.domain, row.noise, row.method, row.kernel, row.depth)
            self._cells.setdefault(key, []).append(row)

    @property
    def value_error(self) -> Measure:
        """The centred value error, against ground truth where it was taken."""
        return RETURN_ERROR if math.isnan(self.rows[0].true_variance) else TRUE_ERROR

    def depth(self, method: str) -> int | None:
        """The full depth of a method."""
        return None if method == RIDGE else self.depths[-1]

    @functools.lru_cache(maxsize=4096)  # noqa: B019 - a summary lives as long as the run
    def column(self, domain: str, noise: str, method: str, kernel: str, depth: int | None, name: str) -> np.ndarray:
        """A column of the rows, ``(seeds, length scales)``."""
        rows = self._cells[domain, noise, method, kernel, depth]
        return np.array([getattr(row, name) for row in rows]).reshape(len(self.seeds), len(self.length_scales))

    def curves(
        self, cells: Sequence[tuple[str, str]], method: str, kernel: str, measure: Measure, weights: np.ndarray
    ) -> np.ndarray:
        """Mean over cells of log((loss + floor) / (scale + floor)), both averaged over seeds first.

        Args:
            cells: Domains and noise levels.
            method: softmax, kernel or ridge.
            kernel: A kernel of the bank.
            measure: The loss.
            weights: Of the seeds, ``(b, seeds)``, rows with sum 1.

        Returns:
            ``(b, length scales)``.
        """
        logs = []
        for domain, noise in cells:
            key = (domain, noise, method, kernel, self.depth(method))
            loss, scale = (_averaged(weights, self.column(*key, name)) for name in (measure.loss, measure.scale))
            logs.append(np.log((loss + FLOOR) / (scale + FLOOR)))
        return np.mean(logs, axis=0)

    def optimum(self, cells: Sequence[tuple[str, str]], method: str, kernel: str, measure: Measure) -> Optimum:
        """The best length scale of ``cells``, pooled."""
        seeds = len(self.seeds)
        curve = self.curves(cells, method, kernel, measure, np.full((1, seeds), 1 / seeds))[0]
        best = float(minimum(self.length_scales, curve[None])[0])
        low = high = math.nan
        if seeds > 1:
            drawn = np.random.default_rng(0).integers(seeds, size=(_REPLICATES, seeds))
            weights = np.stack([(drawn == seed).mean(1) for seed in range(seeds)], axis=1)
            found = minimum(self.length_scales, self.curves(cells, method, kernel, measure, weights))
            widened = best * (found / best) ** math.sqrt(seeds / (seeds - 1))
            low, high = np.quantile(np.clip(widened, self.length_scales[0], self.length_scales[-1]), [0.025, 0.975])
        near = self.length_scales[curve <= curve.min() + math.log(FLAT)]
        bounds = (float(self.length_scales[0]), float(self.length_scales[-1]))
        flat = (float(near[0]), float(near[-1]))
        return Optimum(best, float(low), float(high), flat, float(np.exp(curve.min())), bounds)


def minimum(length_scales: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """Where each curve is least: of the parabola in log ℓ through its least point and the two beside it, ``(b,)``.

    At an end of the bank, or beside a value that is not finite, it is the point itself.
    """
    x, least = np.log(length_scales), np.argmin(curves, axis=1)
    inner = np.clip(least, 1, len(x) - 2)
    rows = np.arange(len(curves))
    left, middle, right = (curves[rows, inner + step] for step in (-1, 0, 1))
    a, b = x[inner] - x[inner - 1], x[inner + 1] - x[inner]
    with np.errstate(invalid="ignore", divide="ignore"):
        rise, fall = (right - middle) / b, (middle - left) / a
        vertex = x[inner] - (rise * a + fall * b) / (2 * (rise - fall))
    whole = (inner == least) & np.isfinite(vertex)
    inside = np.exp(np.clip(vertex, x[inner - 1], x[inner + 1]))
    return np.where(whole, inside, length_scales[least])


def _averaged(weights: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Weighted mean over seeds, at least 0, ``(b, length scales)``; infinite where a seed that counts is."""
    finite = np.isfinite(column)
    mean = np.maximum(weights @ np.where(finite, column, 0.0), 0.0)
    return np.where(weights @ ~finite > 0, np.inf, mean)
