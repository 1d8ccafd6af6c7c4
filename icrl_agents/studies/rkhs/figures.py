"""The figure of the errors: against samples, depth and scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from icrl_agents.studies.medians import Median, coverage
from icrl_agents.studies.results import write_figure
from icrl_agents.studies.rkhs.config import KERNELS
from icrl_agents.studies.rkhs.evaluation import CLOSED, KERNEL, LINEAR, SOFTMAX, TRANSFORMERS
from icrl_agents.studies.rkhs.summary import EVALUATORS, Summary

COLOURS = {SOFTMAX: "#0b6fb8", KERNEL: "#d97706", CLOSED: "#15803d", LINEAR: "#6b7280"}
NAMES = {SOFTMAX: "softmax transformer", KERNEL: "kernel transformer"}
LOWEST, HIGHEST = 1e-5, 30.0
"""Ends of the errors' axis; what diverged is at the upper one."""


def errors_figure(summary: Summary, path: Path) -> None:
    """Rows: kernels and dimensions; columns: error against n, against L and against the scale of the kernel."""
    config = summary.config
    processes = [(kernel, dim) for kernel in config.kernels for dim in config.dims]
    figure = Figure(figsize=(10.5, 0.9 + 2.3 * len(processes)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(processes), 3, squeeze=False, sharey="row")
    for row, (kernel, dim) in zip(axes, processes, strict=True):
        _lengths_panel(row[0], summary, kernel, dim)
        _depths_panel(row[1], summary, kernel, dim)
        _ratios_panel(row[2], summary, kernel, dim)
        row[0].set_ylabel(f"{kernel} value, {dim}-D\nrelative squared error", fontsize=9)
    for axis, text in zip(
        axes[0],
        (
            f"against samples, L = {config.depth}",
            "against depth",
            f"against scale, n = {config.mismatch_length}, L = {config.depth}",
        ),
        strict=True,
    ):
        axis.set_title(text, fontsize=9)
    handles = [Line2D([], [], color=COLOURS[name], label=NAMES.get(name, name)) for name in EVALUATORS]
    handles.append(Line2D([], [], color="black", linestyle="--", label="under the other kernel"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    spread = f"medians over {config.seeds} seeds, band: {coverage(config.seeds):.0%} confidence"
    spread = spread if config.seeds > 1 else f"seed {config.first_seed}"
    figure.suptitle(f"{spread}; 1 is v = 0; beyond {LOWEST:g} and {HIGHEST:g} drawn there", fontsize=9)
    write_figure(figure, path)


def _lengths_panel(axis: Axes, summary: Summary, kernel: str, dim: int) -> None:
    lengths = sorted(summary.config.lengths)
    for name in EVALUATORS:
        found = [summary.by_length(kernel, dim, name, n) for n in lengths]
        _curve(axis, lengths, found, COLOURS[name])
    _axis(axis, "steps n in the context", lengths)


def _depths_panel(axis: Axes, summary: Summary, kernel: str, dim: int) -> None:
    depths = summary.config.reported_depths
    lengths = sorted({min(summary.config.lengths), max(summary.config.lengths)})
    for style, n in zip((":", "-")[-len(lengths) :], lengths, strict=True):
        for name in TRANSFORMERS:
            found = [summary.by_depth(kernel, dim, name, n, depth) for depth in depths]
            _curve(axis, depths, found, COLOURS[name], style=style)
    text = "layers L" if len(lengths) < 2 else f"layers L (solid: n = {lengths[1]}, dotted: n = {lengths[0]})"
    _axis(axis, text, depths)


def _ratios_panel(axis: Axes, summary: Summary, kernel: str, dim: int) -> None:
    ratios = sorted(summary.config.ratios)
    for own in KERNELS:
        for name in (*TRANSFORMERS, CLOSED) if own == kernel else TRANSFORMERS:
            found = [summary.by_ratio(kernel, dim, name, own, ratio) for ratio in ratios]
            _curve(axis, ratios, found, COLOURS[name], style="-" if own == kernel else "--")
    axis.axvline(1.0, color="black", linewidth=0.6, alpha=0.5)
    _axis(axis, "scale of the transformer's kernel / the value's", ratios)


def _curve(axis: Axes, x: Sequence[float], found: Sequence[Median], colour: str, *, style: str = "-") -> None:
    middle, low, high = (
        np.clip([getattr(each, part) for each in found], LOWEST, HIGHEST) for part in ("value", "low", "high")
    )
    axis.plot(x, middle, style, marker="o", markersize=2.5, linewidth=1.3, color=colour)
    axis.fill_between(x, low, high, color=colour, alpha=0.1, linewidth=0)


def _axis(axis: Axes, text: str, ticks: Sequence[float]) -> None:
    axis.set(xscale="log", yscale="log", xlabel=text)
    axis.set_xticks(list(ticks), [f"{tick:g}" for tick in ticks], fontsize=7)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_locator(LogLocator(numticks=12))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.tick_params(axis="y", labelsize=7)
    axis.xaxis.label.set_fontsize(8)
    axis.axhline(1.0, color="black", linewidth=0.6, alpha=0.5)
    axis.grid(alpha=0.25, linewidth=0.5)
