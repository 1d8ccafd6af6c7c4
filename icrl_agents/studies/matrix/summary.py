"""Ratios of means over seeds with intervals: the matrices, linear against non-linear, and the cells that fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from icrl_agents.studies.matrix.evaluation import CLOSED, CONSTRUCTED, LINEAR, SOFTMAX, Row

LIMIT = 0.4
"""Cells whose TD loss at full depth is not below this share of that at depth 0 are listed."""
SMALLEST = 1e-3
"""Ratios with a smaller denominator, in squared units of reward, are left out: nothing divides by almost nothing."""
EXACT = 1e-9
"""Share of the variance of the returns that is added to two errors before they are divided: neither is 0."""
LEVEL = 0.95

Measure = Callable[[Row], tuple[float, float]]
MEASURES: dict[str, Measure] = {
    "TD loss": lambda row: (row.td_loss, row.zero_td_loss),
    "value error": lambda row: (row.msve, row.return_power),
    "centred value error": lambda row: (row.centred_msve, row.return_variance),
}
"""What is divided by what: by the loss of v = 0, or, centred, by that of the best constant."""
OPPONENTS = {
    "linear, pretrained": (None, LINEAR),
    "linear, constructed": (CONSTRUCTED, LINEAR),
    "LSTD": (CONSTRUCTED, CLOSED),
}
"""Linear models: source (None for that of the cell) and model."""


@dataclass(frozen=True)
class Ratio:
    """A ratio of means over seeds.

    Args:
        mean: The ratio; NaN where it would divide by almost nothing.
        low: Lower end of its 95 % interval; NaN for one seed, or where single seeds decide the ratio.
        high: Upper end.
    """

    mean: float
    low: float = math.nan
    high: float = math.nan

    def __str__(self) -> str:
        """Two significant digits and the interval."""
        if math.isnan(self.mean):
            return "–"
        return f"{self.mean:.2g}" + ("" if math.isnan(self.low) else f" [{self.low:.2g}, {self.high:.2g}]")


def ratio_of_means(tops: Sequence[float], bottoms: Sequence[float], *, smallest: float = SMALLEST) -> Ratio:
    """Σ top / Σ bottom; its logarithm ± t·s with Student's t over the seeds and s of the jackknife."""
    top, bottom = np.asarray(tops, dtype=float), np.asarray(bottoms, dtype=float)
    n = len(top)
    if bottom.mean() < smallest:
        return Ratio(math.nan)
    with np.errstate(invalid="ignore"):  # infinite over infinite is no ratio
        mean = float(top.mean() / bottom.mean())
    if n < 2 or not 0 < mean < math.inf or ((bottom.sum() - bottom) / (n - 1) < smallest).any():
        return Ratio(mean)
    logs = np.log((top.sum() - top) / (bottom.sum() - bottom))
    half = stdtrit(n - 1, (1 + LEVEL) / 2) * math.sqrt((n - 1) / n * np.square(logs - logs.mean()).sum())
    return Ratio(mean, mean * math.exp(-half), mean * math.exp(half))


class Summary:
    """Rows of the study, asked for ratios.

    Args:
        rows: All rows.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = sorted(rows, key=lambda row: row.seed)
        self.domains = list(dict.fromkeys(row.target for row in self.rows))
        self.noise = list(dict.fromkeys(row.noise for row in self.rows))
        self.depths = sorted({row.depth for row in self.rows if row.depth is not None})
        self.cells = [(s, t, noise) for s in self.domains for t in self.domains for noise in self.noise]
        self._found: dict[tuple[str, str, str, str, int | None], list[Row]] = {}
        for row in self.rows:
            self._found.setdefault((row.source, row.target, row.noise, row.model, row.depth), []).append(row)

    def ratio(
        self, measure: str, source: str, target: str, noise: str, model: str = SOFTMAX, depth: int | None = None
    ) -> Ratio:
        """A measure of one cell at one depth, by default the full one."""
        rows = self._rows(source, target, noise, model, depth)
        return ratio_of_means(*zip(*map(MEASURES[measure], rows), strict=True))

    @property
    def transfer(self) -> str:
        """What the weights of ``transferred`` are."""
        return "transferred" if len(self.domains) > 1 else "own domain"

    def transferred(self, measure: str, target: str, noise: str, model: str, depth: int | None = None) -> Ratio:
        """The same of weights from all other domains together, or of its own if there is none, averaged by seed."""
        sources = [source for source in self.domains if source != target] or [target]
        each = [self._rows(source, target, noise, model, depth) for source in sources]
        pairs = np.array([[MEASURES[measure](row) for row in rows] for rows in each])
        return ratio_of_means(*pairs.mean(0).T)

    def against(self, opponent: str, source: str, target: str, noise: str) -> Ratio:
        """Centred value error of the softmax transformer over that of a linear one, paired by seed.

        NaN where the returns vary by almost nothing, or both diverge.
        """
        where, model = OPPONENTS[opponent]
        ours = self._rows(source, target, noise, SOFTMAX)
        theirs = self._rows(source if where is None else where, target, noise, model)
        variance = float(np.mean([row.return_variance for row in ours]))
        if variance < SMALLEST:
            return Ratio(math.nan)
        errors = ([row.centred_msve / variance + EXACT for row in rows] for rows in (ours, theirs))
        return ratio_of_means(*errors, smallest=0.0)

    def wins(self, opponent: str) -> tuple[int, int, int]:
        """Cells in which the softmax transformer is better, those in which its interval is below 1, and all."""
        ratios = [self.against(opponent, *cell) for cell in self.cells]
        counted = [ratio for ratio in ratios if not math.isnan(ratio.mean)]
        return sum(r.mean < 1 for r in counted), sum(r.high < 1 for r in counted), len(counted)

    def wins_over_best(self) -> tuple[int, int]:
        """Cells in which it is better than the best of all linear models there, in hindsight, and all."""
        worst = [self._over_best(cell) for cell in self.cells]
        counted = [ratio for ratio in worst if not math.isnan(ratio)]
        return sum(ratio < 1 for ratio in counted), len(counted)

    def _over_best(self, cell: tuple[str, str, str]) -> float:
        """``against`` the best linear model; those that diverge as it does itself are not counted."""
        return float(np.fmax.reduce([self.against(opponent, *cell).mean for opponent in OPPONENTS]))

    def failures(self) -> list[tuple[tuple[str, str, str], Ratio, str]]:
        """Cells whose relative TD loss is not below the limit, each with its figure and cause."""
        found = [(cell, self.ratio("TD loss", *cell)) for cell in self.cells]
        return [(cell, ratio, self.cause(*cell)) for cell, ratio in found if not ratio.mean < LIMIT]

    def cause(self, source: str, target: str, noise: str) -> str:
        """Why a cell fails: nothing to divide by, too many layers, noise that no weights overcome, or its weights."""
        if math.isnan(self.ratio("TD loss", source, target, noise).mean):
            return "no reward to predict"
        depths = {depth: self.ratio("TD loss", source, target, noise, depth=depth).mean for depth in self.depths}
        depth = min(depths, key=lambda depth: depths[depth])
        if depths[depth] < LIMIT:
            return f"too deep: {depths[depth]:.2g} at L = {depth}"
        others = {s: self.ratio("TD loss", s, target, noise).mean for s in (*self.domains, CONSTRUCTED)}
        best = min(others, key=lambda s: others[s])
        if others[best] < LIMIT:
            return f"length scales: weights of {best} reach {others[best]:.2g}"
        return f"noise: of all weights those of {best} do best, {others[best]:.2g}"

    def _rows(self, source: str, target: str, noise: str, model: str, depth: int | None = None) -> list[Row]:
        depth = None if model == CLOSED else self.depths[-1] if depth is None else depth
        return self._found[source, target, noise, model, depth]
