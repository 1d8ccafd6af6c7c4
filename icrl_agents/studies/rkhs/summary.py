"""Medians over seeds of the errors, the rate at which they fall with samples, and the tables of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from icrl_agents.studies.medians import Median, median
from icrl_agents.studies.rkhs.config import KERNELS, RKHSConfig
from icrl_agents.studies.rkhs.evaluation import CLOSED, KERNEL, LINEAR, SOFTMAX, TRANSFORMERS, Row

EVALUATORS = (SOFTMAX, KERNEL, CLOSED, LINEAR)
Key = tuple[str, int, str, str, float | None, int, int | None]
"""Of rows: all that is no seed and no error."""


class Summary:
    """Rows of a study, asked for medians over seeds.

    Args:
        config: The study's configuration.
        rows: All rows.
    """

    def __init__(self, config: RKHSConfig, rows: Iterable[Row]) -> None:
        self.config, self.rows = config, list(rows)
        self._rows: dict[Key, list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: row.seed):
            self._rows.setdefault(_key(row), []).append(row)

    def by_length(self, process: str, dim: int, evaluator: str, length: int, measure: str = "error") -> Median:
        """Error at a context length, under the value's own kernel, at the depth of the configuration."""
        return median([getattr(row, measure) for row in self._at(process, dim, evaluator, length)])

    def by_depth(self, process: str, dim: int, evaluator: str, length: int, depth: int) -> Median:
        """Error of a transformer at a depth, under the value's own kernel."""
        return self._median((process, dim, evaluator, process, 1.0, length, depth))

    def by_ratio(self, process: str, dim: int, evaluator: str, kernel: str, ratio: float) -> Median:
        """Error under ``kernel`` at a multiple of its scale."""
        depth = self.config.depth if evaluator in TRANSFORMERS else None
        return self._median((process, dim, evaluator, kernel, ratio, self.config.mismatch_length, depth))

    def rate(self, process: str, dim: int, evaluator: str) -> Median:
        """Slope of log error on log n, by least squares for each seed: −1 where the error falls like 1/n.

        It is NaN where one of them diverged.
        """
        columns = [[row.error for row in self._at(process, dim, evaluator, n)] for n in self.config.lengths]
        if len(columns) < 2 or not np.isfinite(columns).all():
            return median([math.nan])
        errors = np.log(np.array(columns))
        x = np.log(np.array(self.config.lengths, dtype=float))
        slopes = (x - x.mean()) @ errors / np.square(x - x.mean()).sum()
        return median(slopes.tolist())

    def tables(self) -> str:
        """Errors against length, then against depth, then against scale."""
        return "\n\n".join([self._lengths(), self._depths(), self._ratios()])

    def _at(self, process: str, dim: int, evaluator: str, length: int) -> list[Row]:
        depth = self.config.depth if evaluator in TRANSFORMERS else None
        kernel, ratio = (LINEAR, None) if evaluator == LINEAR else (process, 1.0)
        return self._rows[process, dim, evaluator, kernel, ratio, length, depth]

    def _median(self, key: Key) -> Median:
        return median([row.error for row in self._rows[key]])

    def _lengths(self) -> str:
        lengths, last = self.config.lengths, max(self.config.lengths)
        others = {"centred": "centred_error", "in seen states": "seen_error"}
        header = ["value in", "evaluator", *(f"n={n}" for n in lengths), "slope in n", *others]
        lines = [
            [
                name,
                evaluator,
                *(str(self.by_length(*of, evaluator, n)) for n in lengths),
                str(self.rate(*of, evaluator)),
                *(str(self.by_length(*of, evaluator, last, measure)) for measure in others.values()),
            ]
            for name, of in self._processes()
            for evaluator in EVALUATORS
        ]
        return f"L = {self.config.depth}; the last two: at n = {last}\n" + _aligned([header, *lines])

    def _depths(self) -> str:
        depths, n = self.config.reported_depths, max(self.config.lengths)
        header = ["value in", "evaluator", *(f"L={depth}" for depth in depths)]
        lines = [
            [name, evaluator, *(str(self.by_depth(*of, evaluator, n, depth)) for depth in depths)]
            for name, of in self._processes()
            for evaluator in TRANSFORMERS
        ]
        return f"n = {n}\n" + _aligned([header, *lines])

    def _ratios(self) -> str:
        config = self.config
        header = ["value in", "evaluator", "its kernel", *(f"×{ratio:g}" for ratio in config.ratios)]
        lines = [
            [name, evaluator, kernel, *(str(self.by_ratio(*of, evaluator, kernel, r)) for r in config.ratios)]
            for name, of in self._processes()
            for kernel in KERNELS
            for evaluator in (*TRANSFORMERS, CLOSED)
        ]
        return f"n = {config.mismatch_length}, L = {config.depth}\n" + _aligned([header, *lines])

    def _processes(self) -> list[tuple[str, tuple[str, int]]]:
        kernels, dims = self.config.kernels, self.config.dims
        return [(f"{kernel}, {dim}-D", (kernel, dim)) for kernel in kernels for dim in dims]


def _key(row: Row) -> Key:
    return row.process_kernel, row.dim, row.evaluator, row.kernel, row.ratio, row.length, row.depth


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    return "\n".join([text[0], "─" * max(map(len, text)), *text[1:]])
