"""Means over seeds, with standard errors, and the table of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from icrl_agents.studies.transfer.evaluation import ADAPTIVE, REFERENCES, TRANSFORMERS, Row

SMALLEST_VARIANCE = 1e-3
"""Relative errors are left out where the returns vary less than this: they would divide by almost nothing."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    Args:
        mean: The mean, or a ratio of means; NaN where it is not defined.
        standard_error: Its standard error; NaN for a single seed.
    """

    mean: float
    standard_error: float = math.nan

    def __str__(self) -> str:
        """Three significant digits, ± two of the standard error where there is one."""
        if math.isnan(self.mean):
            return "–"
        if math.isnan(self.standard_error):
            return f"{self.mean:.3g}"
        return f"{self.mean:.3g}±{self.standard_error:.2g}"


class Summary:
    """Rows of a study, asked for estimates.

    Args:
        rows: All rows.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self.domains = list(dict.fromkeys(row.domain for row in self.rows))
        self.noise = list(dict.fromkeys(row.noise for row in self.rows))
        self.evaluators = list(dict.fromkeys(row.evaluator for row in self.rows))
        self.depths = sorted({row.depth for row in self.rows if row.depth is not None})
        self._cells: dict[tuple[str, str, str, int | None], list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: row.seed):
            self._cells.setdefault((row.domain, row.noise, row.evaluator, row.depth), []).append(row)

    @property
    def has_truth(self) -> bool:
        """Whether value errors were measured against ground truth too."""
        return not math.isnan(self.rows[0].true_variance)

    def last_depth(self, evaluator: str) -> int | None:
        """The depth that an evaluator is judged at: the transformers' last one, None for the others."""
        return self.depths[-1] if evaluator in TRANSFORMERS else None

    def td_loss(self, domain: str, noise: str, evaluator: str, depth: int | None) -> Estimate:
        """Held-out TD loss: mean over seeds."""
        return mean_estimate([row.td_loss for row in self._cells[domain, noise, evaluator, depth]])

    def relative_td_loss(self, domain: str, noise: str, evaluator: str, depth: int | None) -> Estimate:
        """Held-out TD loss over that of v = 0: ratio of means over seeds."""
        losses = [row.td_loss for row in self._cells[domain, noise, evaluator, depth]]
        return ratio_estimate(losses, self._initial(domain, noise))

    def relative_error(self, domain: str, noise: str, evaluator: str, depth: int | None) -> Estimate:
        """MSVE over the mean square of the returns: ratio of means over seeds."""
        return self._ratio(domain, noise, evaluator, depth, lambda row: (row.msve, row.return_power))

    def centred_error(self, domain: str, noise: str, evaluator: str, depth: int | None) -> Estimate:
        """Centred MSVE over the variance of the returns: ratio of means over seeds."""
        return self._ratio(domain, noise, evaluator, depth, lambda row: (row.centred_msve, row.return_variance))

    def true_error(self, domain: str, noise: str, evaluator: str, depth: int | None) -> Estimate:
        """Centred MSVE against ground truth over the variance of the values: ratio of means over seeds."""
        return self._ratio(domain, noise, evaluator, depth, lambda row: (row.true_centred_msve, row.true_variance))

    def deviations(self, domain: str, noise: str) -> tuple[float, float]:
        """Standard deviations of the returns: of the context's, and of the held-out trajectories'; means over seeds."""
        rows = self._cells[domain, noise, TRANSFORMERS[0], 0]
        seen = float(np.mean([math.sqrt(row.context_return_variance) for row in rows]))
        return seen, float(np.mean([math.sqrt(row.return_variance) for row in rows]))

    def _initial(self, domain: str, noise: str) -> list[float]:
        """TD losses of v = 0: those of any transformer before its first layer, of one that could be fitted."""
        cells = [self._cells.get((domain, noise, name, 0), []) for name in TRANSFORMERS]
        found = [[row.td_loss for row in rows] for rows in cells if rows]
        return next((losses for losses in found if np.isfinite(losses).all()), found[0])

    def _ratio(
        self,
        domain: str,
        noise: str,
        evaluator: str,
        depth: int | None,
        terms: Callable[[Row], tuple[float, float]],
    ) -> Estimate:
        numerators, denominators = zip(
            *(terms(row) for row in self._cells[domain, noise, evaluator, depth]), strict=True
        )
        return ratio_estimate(numerators, denominators)

    def table(self) -> str:
        """One line per domain, noise level and evaluator: TD losses by depth, then relative value errors."""
        header = ["domain", "noise", "evaluator", *(f"L={depth}" for depth in self.depths), *self._errors]
        lines: list[list[str] | None] = [header]
        for domain in self.domains:
            for noise in self.noise:
                lines.append(None)
                lines += [self._line(domain, noise, name, self.depths) for name in TRANSFORMERS]
                lines += [self._line(domain, noise, name, [None]) for name in (ADAPTIVE, *REFERENCES)]
        return aligned(lines)

    @property
    def _errors(self) -> dict[str, Callable[[str, str, str, int | None], Estimate]]:
        true = {"true": self.true_error} if self.has_truth else {}
        return {"rel. MSVE": self.relative_error, "centred": self.centred_error, **true}

    def _line(self, domain: str, noise: str, evaluator: str, depths: Sequence[int | None]) -> list[str]:
        losses = [str(self.td_loss(domain, noise, evaluator, depth)) for depth in depths]
        gap = [""] * (len(self.depths) - len(depths))
        return [
            domain,
            noise,
            evaluator,
            *gap,
            *losses,
            *(str(error(domain, noise, evaluator, depths[-1])) for error in self._errors.values()),
        ]


def mean_estimate(values: Sequence[float]) -> Estimate:
    """Mean and standard error s/√n."""
    if len(values) < 2 or not np.isfinite(values).all():
        return Estimate(float(np.mean(values)))
    return Estimate(float(np.mean(values)), _spread(float(np.std(values, ddof=1)) / math.sqrt(len(values)), values))


def ratio_estimate(
    numerators: Sequence[float], denominators: Sequence[float], smallest: float = SMALLEST_VARIANCE
) -> Estimate:
    """Ratio of means, with the jackknife's standard error; NaN where the denominators average below ``smallest``."""
    top, bottom = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    if bottom.mean() < smallest:
        return Estimate(math.nan)
    ratio = float(top.mean() / bottom.mean())
    n = len(top)
    if n < 2 or not math.isfinite(ratio) or ((bottom.sum() - bottom) / (n - 1) < smallest).any():
        return Estimate(ratio)
    without = (top.sum() - top) / (bottom.sum() - bottom)
    return Estimate(ratio, _spread(math.sqrt((n - 1) / n * np.square(without - without.mean()).sum()), without))


def _spread(found: float, values: Sequence[float] | np.ndarray) -> float:
    """The standard error, 0 where it is no more than the rounding of equal numbers."""
    return 0.0 if found < 1e-12 * np.abs(values).max() else float(found)


def aligned(lines: Sequence[list[str] | None], words: int = 3) -> str:
    """One line per list of entries, the columns as wide as their widest; None draws a rule.

    Args:
        lines: Entries of each line, equally many.
        words: Columns on the left that are words; the others, numbers, end at the same place.
    """
    cells = [line for line in lines if line is not None]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
    texts = (
        rule
        if line is None
        else "  ".join(
            cell.ljust(w) if i < words else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
    return "\n".join(text.rstrip() for text in texts)
