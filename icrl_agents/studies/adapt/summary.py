"""Adaptive against fixed over the cells: ratios of losses, their geometric mean, its interval, and the worst."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from icrl_agents.studies.adapt.evaluation import ADAPTIVE, FIXED, NAIVE, Row
from icrl_envs.metaworld.domains import DOMAINS

MEASURES = {"TD loss": "td_loss", "value error": "centred_msve", "true error": "true_centred_msve"}
FLOOR = 1e-4
"""Added to both losses of a ratio, in squared units of reward: nothing divides by a loss near 0."""
LIMIT = 1.25
"""Ratios above it are counted."""
TUNED_ON = frozenset(sorted(DOMAINS)[::2])
"""Half of the domains: on their first seed, the bank and the settings of the choice were found."""
_REPLICATES = 4_000
_MOST = 1e300
"""A logarithm in place of an infinite one, of which there is no quantile; its exponential is infinite all the same."""

Method = tuple[str, str, int | None]
"""Of rows: method, kernel and depth; the last two are empty where the method chooses them."""


@dataclass(frozen=True)
class Comparison:
    """Ratios over cells.

    Args:
        ratios: One per cell.
        mean: Their geometric mean; NaN where one is 0 and another one infinite.
        low: Lower end of its 95 % interval, a bootstrap over domains; NaN of one domain alone, or without a mean.
        high: Upper end.
    """

    ratios: np.ndarray
    mean: float
    low: float
    high: float

    @property
    def has_interval(self) -> bool:
        """Whether there are a mean and several domains to draw from."""
        return not math.isnan(self.low)

    def brief(self) -> str:
        """Mean and interval."""
        return _number(self.mean) + (f" [{self.low:.3f}, {self.high:.3f}]" if self.has_interval else "")

    def __str__(self) -> str:
        """Mean, interval, worst ratio, and how many cells lie above 1.25."""
        above = int((self.ratios > LIMIT).sum())
        return f"{self.brief()}  {self.ratios.max():5.2f}  {above:4d}"


class Summary:
    """Rows of a study, compared cell by cell.

    Args:
        rows: All rows.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self.cells = list(dict.fromkeys((row.domain, row.noise) for row in self.rows))
        self.domains = list(dict.fromkeys(domain for domain, _ in self.cells))
        self.noise = list(dict.fromkeys(noise for _, noise in self.cells))
        self.fixed = list(dict.fromkeys(_method(row) for row in self.rows if row.method == FIXED))
        self.measures = [m for m in MEASURES if not any(math.isnan(getattr(row, MEASURES[m])) for row in self.rows)]
        self._by_method: dict[tuple[Method, tuple[str, str]], list[Row]] = {}
        for row in self.rows:
            self._by_method.setdefault((_method(row), (row.domain, row.noise)), []).append(row)

    def losses(self, method: Method, measure: str, cells: Sequence[tuple[str, str]] | None = None) -> np.ndarray:
        """Mean over seeds of a loss, plus the floor, of each cell."""
        found = [self._by_method[method, cell] for cell in (self.cells if cells is None else cells)]
        return FLOOR + np.array([np.mean([getattr(row, MEASURES[measure]) for row in rows]) for rows in found])

    def best_fixed(self, measure: str, cells: Sequence[tuple[str, str]] | None = None) -> Method:
        """The member of the bank with the least geometric mean loss over ``cells``, in hindsight."""
        return min(self.fixed, key=lambda method: float(np.log(self.losses(method, measure, cells)).mean()))

    def compare(
        self, measure: str, method: Method, other: Method, cells: Sequence[tuple[str, str]] | None = None
    ) -> Comparison:
        """``method`` over ``other``."""
        cells = self.cells if cells is None else cells
        return _comparison(_ratios(self.losses(method, measure, cells), self.losses(other, measure, cells)), cells)

    def oracle(self, measure: str) -> Comparison:
        """The best member of each cell over the best of all: what no choice of one member can beat."""
        least = np.min([self.losses(method, measure) for method in self.fixed], axis=0)
        return _comparison(_ratios(least, self.losses(self.best_fixed(measure), measure)), self.cells)

    def from_sources(self, measure: str) -> dict[str, Comparison]:
        """For each source domain: adaptive over the member with the least TD loss there, on all other domains."""
        found = {}
        for source in self.domains:
            fixed = self.best_fixed("TD loss", [cell for cell in self.cells if cell[0] == source])
            others = [cell for cell in self.cells if cell[0] != source]
            if others:
                found[source] = self.compare(measure, MIXTURE, fixed, others)
        return found

    def table(self) -> str:
        """One line per measure and comparison."""
        header = f"{'':11}  {'':66}  geometric mean [95 %]  worst  >{LIMIT}"
        return "\n".join([header, *(line for measure in self.measures for line in self._lines(measure))])

    def _lines(self, measure: str) -> list[str]:
        best, single = self.best_fixed(measure), self.best_fixed("TD loss")
        found = {f"adaptive / {_name(best)}, the best fixed in hindsight": self.compare(measure, MIXTURE, best)}
        if single != best:
            found[f"adaptive / {_name(single)}, the best fixed by TD loss"] = self.compare(measure, MIXTURE, single)
        if untouched := [cell for cell in self.cells if cell[0] not in TUNED_ON]:
            what = f"adaptive / {_name(single)}, on domains not tuned on"
            found[what] = self.compare(measure, MIXTURE, single, untouched)
        found[f"least held-out loss in the context / {_name(best)}"] = self.compare(measure, LEAVE_ONE_OUT, best)
        found[f"best of each cell in hindsight / {_name(best)}"] = self.oracle(measure)
        lines = [f"{'' if i else measure:11}  {what:66}  {found[what]}" for i, what in enumerate(found)]
        return lines + _source_lines(self.from_sources(measure))


MIXTURE: Method = (ADAPTIVE, "", None)
LEAVE_ONE_OUT: Method = (NAIVE, "", None)


def _method(row: Row) -> Method:
    return (row.method, row.kernel, row.depth) if row.method == FIXED else (row.method, "", None)


def _ratios(losses: np.ndarray, others: np.ndarray) -> np.ndarray:
    """1 where they are equal, infinite ones too."""
    return np.divide(losses, others, out=np.ones_like(losses), where=losses != others)


@np.errstate(divide="ignore", invalid="ignore", over="ignore")  # of ratios that are 0 or infinite
def _comparison(ratios: np.ndarray, cells: Sequence[tuple[str, str]]) -> Comparison:
    logs = np.log(ratios)
    domains = list(dict.fromkeys(domain for domain, _ in cells))
    sums = np.array(
        [[sum(x), len(x)] for x in ([v for v, c in zip(logs, cells, strict=True) if c[0] == d] for d in domains)]
    )
    drawn = np.random.default_rng(0).integers(len(domains), size=(_REPLICATES, len(domains)))
    totals = sums[drawn].sum(1)
    means = np.clip(totals[:, 0] / totals[:, 1], -_MOST, _MOST)
    low, high = np.exp(np.quantile(means, [0.025, 0.975]))
    low, high = (low, high) if len(domains) > 1 else (np.nan, np.nan)
    return Comparison(ratios, float(np.exp(logs.mean())), float(low), float(high))


def _name(fixed: Method) -> str:
    return f"{fixed[1]}, L={fixed[2]}"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


@np.errstate(divide="ignore", invalid="ignore")  # as in ``_comparison``
def _source_lines(sources: dict[str, Comparison]) -> list[str]:
    if not sources:
        return []
    means = np.array([each.mean for each in sources.values()])
    judged = [each for each in sources.values() if each.has_interval]
    won = f" ({sum(each.high < 1 for each in judged)} of {len(judged)} beaten)" if judged else ""
    overall = float(np.exp(np.log(means).mean()))
    what = f"adaptive / fixed on one source domain{won}"
    return [f"{'':11}  {what:66}  {_number(overall)}, by source {_number(means.min())} to {_number(means.max())}"]
