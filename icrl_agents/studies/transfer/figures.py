"""Figures of the transfer study."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator
from matplotlib.typing import LineStyleType

from icrl_agents.studies.line_styles import in_columns, line_styles
from icrl_agents.studies.results import write_figure
from icrl_agents.studies.transfer.evaluation import ADAPTIVE, TRANSFORMERS
from icrl_agents.studies.transfer.summary import Summary

MAPPED = ("softmax", ADAPTIVE, "kernel", "linear")
"""Evaluators in the heat map, from left to right, as far as there are rows of them."""
COLOURS = {"softmax": "#0b6fb8", "kernel": "#d97706", "linear": "#6b7280"}
COLUMNS = 3
BEST, WORST = 0.005, 2.0
"""Ends of the heat maps' colours; what lies beyond has the end's colour."""


def td_loss_figure(summary: Summary, path: Path) -> None:
    """Held-out TD loss against depth, one panel per domain, log scale: the three transformers at each noise level."""
    columns = min(COLUMNS, len(summary.domains))
    rows = -(-len(summary.domains) // columns)
    figure, axes = _grid(rows, columns, width=3.3, height=2.7)
    for axis, domain in zip(axes, summary.domains, strict=False):
        for style, noise in zip(line_styles(len(summary.noise)), summary.noise, strict=True):
            for name in TRANSFORMERS:
                _curve(axis, summary, domain, noise, name, style)
        axis.axhline(1.0, color="black", linewidth=0.6, alpha=0.5)
        axis.set(title=domain, xlabel="depth L", yscale="log", xscale="symlog")
        axis.set_xlim(0, max(1, summary.depths[-1]))
        axis.set_xticks(summary.depths, [str(depth) for depth in summary.depths])
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.minorticks_off()
        axis.grid(alpha=0.25, linewidth=0.5)
    for axis in axes[len(summary.domains) :]:
        axis.remove()
    models = [Line2D([], [], color=COLOURS[name], label=f"{name} transformer") for name in TRANSFORMERS]
    styled = zip(line_styles(len(summary.noise)), summary.noise, strict=True)
    levels = [Line2D([], [], color="black", linestyle=style, label=f"{noise} noise") for style, noise in styled]
    figure.legend(handles=in_columns(models, levels), loc="outside lower center", ncols=2, frameon=False)
    figure.supylabel("held-out TD loss / loss of v = 0", fontsize=10)
    title = "ratio of means over seeds, band: ± standard error, no lower than a third of the ratio"
    title = title if len(seeds := {row.seed for row in summary.rows}) > 1 else f"seed {seeds.pop()}"
    figure.suptitle(textwrap.fill(title, 44 * columns), fontsize=9)
    write_figure(figure, path)


def heat_map_figure(summary: Summary, path: Path) -> None:
    """Domain × noise heat maps at the full depth: relative TD loss on the left, centred value error on the right.

    The latter is against ground truth where that was taken, and then called the true error.
    """
    mapped = [name for name in MAPPED if name in summary.evaluators]
    width, height = 1.1 + 0.34 * len(summary.noise), 1.6 + 0.21 * len(summary.domains)
    figure = Figure(figsize=(2 * len(mapped) * width * 0.62 + 2.2, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2 * len(mapped), squeeze=False).ravel()
    colours = colormaps["YlOrRd"].with_extremes(bad="#e5e7eb")
    norm = LogNorm(BEST, WORST)
    error = {"true error": summary.true_error} if summary.has_truth else {"value error": summary.centred_error}
    measures = {"TD loss": summary.relative_td_loss, **error}
    cells = [(title, measure, name) for title, measure in measures.items() for name in mapped]
    for i, (axis, (title, measure, name)) in enumerate(zip(axes, cells, strict=True)):
        depth = summary.last_depth(name)
        grid = np.array([[measure(d, s, name, depth).mean for s in summary.noise] for d in summary.domains])
        axis.imshow(np.clip(grid, 1e-9, 1e9), norm=norm, cmap=colours, aspect="auto")
        axis.set_title(f"{title}\n{name}", fontsize=8)
        axis.set_xticks(range(len(summary.noise)), summary.noise, fontsize=7)
        axis.set_yticks(range(len(summary.domains)), [] if i else summary.domains, fontsize=7)
        for (row, column), value in np.ndenumerate(grid):
            axis.text(column, row, _two_digits(value), ha="center", va="center", fontsize=6, color=_ink(norm, value))
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=list(axes), shrink=0.6, extend="both", aspect=30)
    bar.set_label(" or ".join(measures), fontsize=8)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.ax.tick_params(labelsize=7)
    figure.supxlabel("policy noise", fontsize=8)
    figure.suptitle(
        f"after {summary.depths[-1]} layers: 0 is exact; 1 is v = 0 (TD loss) or any constant (value error, centred);"
        " – nothing varies, or no values",
        fontsize=8,
    )
    write_figure(figure, path)


def _two_digits(value: float) -> str:
    """Two significant digits, without the zero before a point; whole numbers from 10 on."""
    if np.isnan(value):
        return "–"
    text = f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"
    return text.removeprefix("0") if 1e-4 <= value < 1 else text


def _ink(norm: LogNorm, value: float) -> str:
    return "white" if norm(np.clip(value, BEST, WORST)) > 0.65 else "black"


def _curve(axis: Axes, summary: Summary, domain: str, noise: str, name: str, style: LineStyleType) -> None:
    estimates = [summary.relative_td_loss(domain, noise, name, depth) for depth in summary.depths]
    mean = np.array([e.mean for e in estimates])
    error = np.nan_to_num(np.array([e.standard_error for e in estimates]))
    axis.plot(summary.depths, mean, linestyle=style, color=COLOURS[name], marker="o", markersize=2.5, linewidth=1.4)
    low = np.maximum(mean - error, mean / 3)  # a logarithmic axis has no place for a band that reaches 0
    axis.fill_between(summary.depths, low, mean + error, color=COLOURS[name], alpha=0.12, linewidth=0)


def _grid(rows: int, columns: int, *, width: float, height: float) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(width * columns + 0.5, height * rows + 1.0), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
