"""The table of an evaluation: means over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from icrl_agents.studies.evaluate.evaluation import Row
from icrl_agents.studies.transfer.summary import Estimate, mean_estimate, ratio_estimate

SMALLEST_SHARE = 1e-12
"""Variances below this share of the returns' mean square are rounding: nothing is measured against them."""
HEADER = ("evaluator", "width", "error", "relative", "centred", "bias", "effective n", "seconds")


def table(rows: Sequence[Row]) -> str:
    """One line for each evaluator, in the order of the rows."""
    names = dict.fromkeys(row.evaluator for row in rows)
    lines = [HEADER, *(_line(name, [row for row in rows if row.evaluator == name]) for name in names)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines]
    return "\n".join([text[0], "─" * len(text[0]), *text[1:]])


def _line(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    def column(of: Callable[[Row], float]) -> list[float]:
        return [of(row) for row in rows]

    power = column(lambda row: row.return_power)
    smallest = max(SMALLEST_SHARE * float(np.mean(power)), float(np.finfo(float).tiny))
    widths = [row.width for row in rows if row.width is not None]
    sizes = [row.effective_sample_size for row in rows if row.effective_sample_size is not None]
    return (
        name,
        f"{np.median(widths):.2g}" if widths else "",
        str(mean_estimate(column(lambda row: math.sqrt(row.msve)))),
        str(ratio_estimate(column(lambda row: row.msve), power, smallest)),
        str(ratio_estimate(column(lambda row: row.centred_msve), column(lambda row: row.return_variance), smallest)),
        str(mean_estimate(column(lambda row: row.bias))),
        str(Estimate(float(np.mean(sizes)))) if sizes else "",
        f"{np.sum(column(lambda row: row.seconds)):.2g}",
    )
