"""Medians over seeds, comparisons over processes, and the tables of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from icrl_agents.studies.beyond.evaluation import (
    ADAPTIVE,
    EVALUATORS,
    KERNEL_LSTD,
    LINEAR,
    LSTD_,
    PRODUCT,
    SOFTMAX,
    Row,
)
from icrl_agents.studies.beyond.scales import MATCHED, RAW, SCALES, STANDARDISED
from icrl_agents.studies.medians import Median, median

MEASURES = {
    "centred value error": ("centred_msve", "variance"),
    "value error": ("msve", "power"),
    "TD loss": ("td_loss", "td_loss_of_zero"),
}
"""Each loss, and what it is divided by: the mean over seeds of the variance or mean square of the values, or of the
TD loss of v = 0."""
SMALLEST = 1e-3
"""Nothing is divided by less than this: values that vary less are a constant."""
LEAST, MOST = 1e-3, 1e3
"""Relative losses are taken between these before they are compared."""
COMPARED = (
    ((SOFTMAX, RAW), (LINEAR, RAW)),
    ((SOFTMAX, RAW), (LSTD_, RAW)),
    ((SOFTMAX, MATCHED), (SOFTMAX, RAW)),
    ((SOFTMAX, STANDARDISED), (SOFTMAX, RAW)),
    ((PRODUCT, RAW), (SOFTMAX, RAW)),
    ((PRODUCT, MATCHED), (SOFTMAX, MATCHED)),
    ((ADAPTIVE, RAW), (PRODUCT, RAW)),
    ((ADAPTIVE, MATCHED), (PRODUCT, MATCHED)),
    ((PRODUCT, MATCHED), (LINEAR, MATCHED)),
    ((PRODUCT, MATCHED), (KERNEL_LSTD, MATCHED)),
)
"""Pairs of evaluator and scale."""
_REPLICATES = 4_000


@dataclass(frozen=True)
class Comparison:
    """Ratios of one method's losses to another's, over processes.

    Args:
        ratios: One per process.
        mean: Their geometric mean.
        low: Lower end of its 95 % interval, a bootstrap over processes; NaN of one process alone.
        high: Upper end.
    """

    ratios: np.ndarray
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """Mean, interval, and in how many processes the first one is better; ``–`` where none has anything to find."""
        if len(self.ratios) == 0:
            return "–"
        better = int((self.ratios < 1).sum())
        interval = "" if math.isnan(self.low) else f" [{self.low:.2g}, {self.high:.2g}]"
        return f"{self.mean:.2g}{interval}, better in {better} of {len(self.ratios)}"


class Summary:
    """Rows of a study, asked for medians.

    Args:
        rows: All rows.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = sorted(rows, key=lambda row: row.seed)
        self.processes = list(dict.fromkeys(row.process for row in self.rows))
        self._rows: dict[tuple[str, str, str], list[Row]] = {}
        for row in self.rows:
            self._rows.setdefault((row.process, row.scale, row.evaluator), []).append(row)

    def loss(self, measure: str, process: str, scale: str, evaluator: str) -> Median:
        """A relative loss: 0 is exact, 1 what v = 0 or, centred, any constant scores; NaN where nothing varies."""
        rows = self._rows[process, scale, evaluator]
        top, bottom = MEASURES[measure]
        unit = float(np.mean([getattr(row, bottom) for row in rows]))
        if unit < SMALLEST:
            return median([math.nan])
        return median([getattr(row, top) / unit for row in rows])

    def truth_error(self, process: str) -> float:
        """Share of the variance of the true values that their own standard errors make up."""
        rows = self._rows[process, RAW, SOFTMAX]
        variance = float(np.mean([row.variance for row in rows]))
        return float(np.mean([row.truth_error for row in rows])) / variance if variance >= SMALLEST else math.nan

    def compare(self, measure: str, one: tuple[str, str], other: tuple[str, str]) -> Comparison:
        """The median losses of one evaluator and scale over another's, in all processes with something to find."""
        losses = np.array(
            [
                [self.loss(measure, process, scale, name).value for name, scale in (one, other)]
                for process in self.processes
            ]
        )
        losses = np.clip(losses[~np.isnan(losses).any(1)], LEAST, MOST)
        logs = np.log(losses[:, 0] / losses[:, 1])
        if len(logs) == 0:
            return Comparison(np.zeros(0), math.nan, math.nan, math.nan)
        drawn = np.random.default_rng(0).integers(len(logs), size=(_REPLICATES, len(logs)))
        low, high = np.exp(np.quantile(logs[drawn].mean(1), [0.025, 0.975])) if len(logs) > 1 else (np.nan, np.nan)
        return Comparison(np.exp(logs), float(np.exp(logs.mean())), float(low), float(high))

    def tables(self) -> str:
        """One table per measure, then the comparisons."""
        return "\n\n".join([*map(self._table, MEASURES), self._comparisons()])

    def _table(self, measure: str) -> str:
        lines = [[measure, "observations", *EVALUATORS, "in the truth"]]
        for process in self.processes:
            share = self.truth_error(process)
            for scale in SCALES:
                losses = [str(self.loss(measure, process, scale, name)) for name in EVALUATORS]
                floor = "" if scale != RAW or math.isnan(share) or measure == "TD loss" else f"{share:.2g}"
                lines.append([process if scale == RAW else "", scale, *losses, floor])
        return _aligned(lines)

    def _comparisons(self) -> str:
        found = [
            [f"{one[0]}, {one[1]} / {other[0]}, {other[1]}", *(str(self.compare(m, one, other)) for m in MEASURES)]
            for one, other in COMPARED
        ]
        return _aligned([["geometric mean over processes [95 %]", *MEASURES], *found])


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    return "\n".join([text[0], "─" * max(map(len, text)), *text[1:]])
