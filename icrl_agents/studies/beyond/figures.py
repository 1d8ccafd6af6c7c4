"""The figure of the study: losses of every evaluator on every process and scale."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from icrl_agents.studies.beyond.evaluation import (
    ADAPTIVE,
    EVALUATORS,
    KERNEL,
    KERNEL_LSTD,
    LINEAR,
    LSTD_,
    PRODUCT,
    SOFTMAX,
)
from icrl_agents.studies.beyond.scales import SCALES
from icrl_agents.studies.beyond.summary import Summary
from icrl_agents.studies.results import write_figure

STYLES = {
    SOFTMAX: ("#0b6fb8", "o", "softmax transformer, Laplace"),
    PRODUCT: ("#0891b2", "s", "softmax transformer, product Laplace"),
    ADAPTIVE: ("#a21caf", "D", "adaptive"),
    KERNEL: ("#d97706", "^", "kernel transformer"),
    LINEAR: ("#6b7280", "v", "linear transformer"),
    LSTD_: ("#9ca3af", "x", "LSTD"),
    KERNEL_LSTD: ("#15803d", "+", "kernel LSTD"),
}
SHOWN = ("centred value error", "TD loss")
LOWEST, HIGHEST = 1e-3, 10.0
"""Ends of the axes; what lies beyond is drawn there."""


def losses_figure(summary: Summary, path: Path) -> None:
    """Rows: measures; columns: scales of the observations; one line per process, one mark per evaluator."""
    height = 0.9 + len(SHOWN) * (0.5 + 0.3 * len(summary.processes))
    figure = Figure(figsize=(11.0, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(SHOWN), len(SCALES), squeeze=False, sharex=True, sharey=True)
    for row, measure in zip(axes, SHOWN, strict=True):
        for axis, scale in zip(row, SCALES, strict=True):
            _panel(axis, summary, measure, scale)
            axis.set_title(f"{measure}, {scale} observations", fontsize=9)
    handles, names = axes[-1][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.suptitle(
        "0 is exact, 1 is any constant (value error) or v = 0 (TD loss); bar: interval over seeds; "
        f"beyond {LOWEST:g} and {HIGHEST:g} drawn there",
        fontsize=9,
    )
    write_figure(figure, path)


def _panel(axis: Axes, summary: Summary, measure: str, scale: str) -> None:
    lines = np.arange(len(summary.processes), dtype=float)
    for i, name in enumerate(EVALUATORS):
        found = [summary.loss(measure, process, scale, name) for process in summary.processes]
        middle, low, high = (
            np.clip([getattr(each, part) for each in found], LOWEST, HIGHEST) for part in ("value", "low", "high")
        )
        colour, marker, text = STYLES[name]
        height = lines + 0.09 * (i - (len(EVALUATORS) - 1) / 2)
        axis.plot(middle, height, marker, color=colour, markersize=4, label=text)
        axis.hlines(height, low, high, color=colour, linewidth=0.8)
    axis.axvline(1.0, color="black", linewidth=0.7)
    axis.set(xscale="log", xlim=(LOWEST * 0.8, HIGHEST * 1.25), ylim=(lines[-1] + 0.5, -0.5))
    axis.set_yticks(lines, summary.processes, fontsize=7)
    axis.xaxis.set_major_locator(LogLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.tick_params(axis="x", labelsize=7)
    axis.grid(alpha=0.25, linewidth=0.5, axis="x")
    for line in lines[:-1]:
        axis.axhline(line + 0.5, color="black", linewidth=0.3, alpha=0.4)
