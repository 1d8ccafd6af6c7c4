"""Learning curves over seeds, and the table of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from icrl_agents.studies.control.config import CRITICS, EARLY, ENVIRONMENTS
from icrl_agents.studies.control.training import Row
from icrl_agents.studies.medians import median
from icrl_agents.studies.pretrain.statistics import Band, bootstrap_band

NAMES = {
    "softmax": "softmax TD",
    "kernel": "kernel TD",
    "adaptive": "adaptive TD",
    "pretrained": "pretrained transformer",
    "lstd": "LSTD, quadratic",
    "none": "no critic",
    "learned": "learned, same settings",
    "default": "SB3's PPO, defaults",
}
_HEADER = ("environment", "critic", "steps", "early", "last", "solved", "after", "s/10k")


class Curves(NamedTuple):
    """All seeds of one critic in one environment.

    Args:
        steps: Steps at which policies were evaluated, ``(k,)``; the same for every seed.
        returns: Mean returns, ``(seeds, k)``.
        seconds: Processor time of training so far, ``(seeds, k)``.
    """

    steps: np.ndarray
    returns: np.ndarray
    seconds: np.ndarray

    def early(self) -> np.ndarray:
        """Mean height of each seed's curve up to ``EARLY`` steps, or up to its end, ``(seeds,)``."""
        end = min(EARLY, self.steps[-1])
        grid = np.linspace(0, end, 201)
        return np.array([np.trapezoid(np.interp(grid, self.steps, curve), grid) / end for curve in self.returns])

    def first(self, threshold: float) -> np.ndarray:
        """Steps after which each seed's policy first reaches ``threshold``, infinite if never, ``(seeds,)``."""
        reached = self.returns >= threshold
        return np.where(reached.any(1), self.steps[reached.argmax(1)], np.inf)


class Summary:
    """Rows of a study, asked for curves.

    Args:
        rows: All rows.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        runs: dict[tuple[str, str, int], list[Row]] = {}
        for row in rows:
            runs.setdefault((row.environment, row.critic, row.seed), []).append(row)
        grouped: dict[tuple[str, str], list[list[Row]]] = {}
        for (environment, critic, _), run in sorted(runs.items(), key=lambda item: item[0][2]):
            grouped.setdefault((environment, critic), []).append(run)
        self.curves = {cell: _curves(group) for cell, group in grouped.items()}
        self.environments = [name for name in ENVIRONMENTS if any(name == cell[0] for cell in grouped)]

    def critics(self, environment: str) -> list[str]:
        """The critics that were run there."""
        return [critic for critic in CRITICS if (environment, critic) in self.curves]

    def table(self) -> str:
        """One line per environment and critic, and one per critic over the environments that all of them share."""
        lines = [self._line(name, critic) for name in self.environments for critic in self.critics(name)]
        shared = [critic for critic in CRITICS if all((name, critic) in self.curves for name in self.environments)]
        if len(self.environments) > 1:
            lines += [["all, scored 0 to 1", NAMES[c], "", self._score(c)] for c in shared]
        cells = [list(_HEADER), *(line + [""] * (len(_HEADER) - len(line)) for line in lines)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(_HEADER))]
        aligned = (
            "  ".join(
                cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in cells
        )
        return "\n".join(line.rstrip() for line in aligned)

    def early_score(self, critic: str) -> Band:
        """Early area, 0 at the worst and 1 at the best return of each environment: bootstrap stratified by them."""
        strata = []
        for name in self.environments:
            place = ENVIRONMENTS[name]
            strata.append((self.curves[name, critic].early() - place.worst) / (place.best - place.worst))
        return bootstrap_band(strata, np.random.default_rng(0))

    def _score(self, critic: str) -> str:
        seeds = max(len(self.curves[name, critic].returns) for name in self.environments)
        return str_band(self.early_score(critic), seeds, 2)

    def _line(self, environment: str, critic: str) -> list[str]:
        curves = self.curves[environment, critic]
        first = curves.first(ENVIRONMENTS[environment].solved)
        after = median(first.tolist()).value
        pace = curves.seconds[:, -1] / curves.steps[-1] * 1e4
        return [
            environment,
            NAMES[critic],
            f"{curves.steps[-1]:,}",
            *(
                str_band(bootstrap_band([heights], np.random.default_rng(0)), len(heights))
                for heights in (curves.early(), curves.returns[:, -1])
            ),
            f"{np.isfinite(first).sum()}/{len(first)}",
            f"{after:,.0f}" if np.isfinite(after) else "–",
            f"{np.median(pace):.1f}",
        ]


def str_band(band: Band, seeds: int, digits: int = 0) -> str:
    """An interquartile mean with its interval, such as ``470 [450, 480]``; one seed has no interval."""
    centre, low, high = (round(float(end), digits) + 0.0 for end in (band.centre, band.low, band.high))  # no −0
    return f"{centre:.{digits}f}" + (f" [{low:.{digits}f}, {high:.{digits}f}]" if seeds > 1 else "")


def _curves(runs: Sequence[list[Row]]) -> Curves:
    steps = [[row.step for row in run] for run in runs]
    return Curves(
        np.array(steps[0]),
        np.array([[row.mean_return for row in run] for run in runs]),
        np.array([[row.seconds for row in run] for run in runs]),
    )
