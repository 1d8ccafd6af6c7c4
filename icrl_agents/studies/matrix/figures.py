"""Figures of the transfer matrix."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from matplotlib.typing import LineStyleType

from icrl_agents.studies.line_styles import line_styles
from icrl_agents.studies.matrix.evaluation import LINEAR, SOFTMAX
from icrl_agents.studies.matrix.summary import LIMIT, Summary
from icrl_agents.studies.results import write_figure

SHOWN = ("TD loss", "centred value error")
BEST, WORST = 0.005, 2.0
"""Ends of the colours; what lies beyond has the end's colour."""
COLOURS = {SOFTMAX: "#0b6fb8", LINEAR: "#6b7280"}
COLUMNS = 3


def matrix_figure(summary: Summary, path: Path) -> None:
    """Source × target at full depth: a column per noise level, TD loss above, centred value error below."""
    size = len(summary.domains)
    width, height = 2.4 + len(summary.noise) * (0.6 + 0.48 * size), 2 * (0.8 + 0.34 * size) + 1.2
    figure = _figure(max(6.0, width), height)
    axes = figure.subplots(len(SHOWN), len(summary.noise), squeeze=False)
    colours, norm = colormaps["YlOrRd"].with_extremes(bad="#e5e7eb"), LogNorm(BEST, WORST)
    for i, measure in enumerate(SHOWN):
        for j, noise in enumerate(summary.noise):
            grid = np.array(
                [[summary.ratio(measure, s, t, noise).mean for t in summary.domains] for s in summary.domains]
            )
            axis: Axes = axes[i, j]
            axis.imshow(np.clip(grid, BEST, WORST), norm=norm, cmap=colours, aspect="auto")
            axis.set_title(f"{measure},\n{noise} noise", fontsize=8)
            names = [domain.removesuffix("-v3") for domain in summary.domains]
            axis.set_xticks(range(size), names if i else [], rotation=40, ha="right", fontsize=7)
            axis.set_yticks(range(size), names if j == 0 else [], fontsize=7)
            _numbers(axis, grid, norm)
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes.ravel().tolist(), shrink=0.5, extend="both")
    bar.set_label(" or ".join(SHOWN), fontsize=8)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    figure.supxlabel("evaluated on", fontsize=9)
    figure.supylabel("pretrained on high noise of", fontsize=9)
    figure.suptitle(
        f"frozen softmax transformer, {summary.depths[-1]} layers:\n0 is exact, 1 is v = 0 (TD loss) or any constant",
        fontsize=9,
    )
    write_figure(figure, path)


def depth_figure(summary: Summary, path: Path) -> None:
    """Held-out TD loss against depth, transferred weights: a panel per target, a style per noise level."""
    columns = min(COLUMNS, len(summary.domains))
    rows = -(-len(summary.domains) // columns)
    figure = _figure(3.3 * columns + 0.4, 2.6 * rows + 1.0)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, target in zip(axes, summary.domains, strict=False):
        for style, noise in zip(line_styles(len(summary.noise)), summary.noise, strict=True):
            for model in COLOURS:
                _curve(axis, summary, target, noise, model, style)
        axis.axhline(LIMIT, color="#b91c1c", linewidth=0.7)
        axis.set(title=target, xlabel="depth L", yscale="log", xscale="symlog", xlim=(0, summary.depths[-1]))
        axis.set_xticks(summary.depths, [str(depth) for depth in summary.depths])
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_minor_locator(NullLocator())
        axis.grid(alpha=0.25, linewidth=0.5)
    for axis in axes[len(summary.domains) :]:
        axis.remove()
    handles = [Line2D([], [], color=colour, label=f"{model}, pretrained") for model, colour in COLOURS.items()]
    styled = zip(line_styles(len(summary.noise)), summary.noise, strict=True)
    handles += [Line2D([], [], color="black", linestyle=style, label=f"{noise} noise") for style, noise in styled]
    handles.append(Line2D([], [], color="#b91c1c", linewidth=0.7, label=f"{LIMIT:.0%}"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.supylabel("held-out TD loss / loss of v = 0", fontsize=10)
    sources = "the domain's own" if len(summary.domains) == 1 else "the other domains'"
    spread = "; band: 95 % interval over seeds" if len({row.seed for row in summary.rows}) > 1 else ""
    figure.suptitle(f"weights from {sources} high-noise tasks{spread}", fontsize=9)
    write_figure(figure, path)


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _numbers(axis: Axes, grid: np.ndarray, norm: LogNorm) -> None:
    for (i, j), value in np.ndenumerate(grid):
        dark = bool(norm(np.clip(value, BEST, WORST)) > 0.65)
        text = "–" if np.isnan(value) else f"{value:.2g}"
        axis.text(j, i, text, ha="center", va="center", fontsize=7, color="white" if dark else "black")


def _curve(axis: Axes, summary: Summary, target: str, noise: str, model: str, style: LineStyleType) -> None:
    found = [summary.transferred("TD loss", target, noise, model, depth) for depth in summary.depths]
    mean, low, high = (np.array([getattr(ratio, end) for ratio in found]) for end in ("mean", "low", "high"))
    axis.plot(summary.depths, mean, linestyle=style, color=COLOURS[model], marker="o", markersize=2.5, linewidth=1.4)
    axis.fill_between(summary.depths, low, high, color=COLOURS[model], alpha=0.12, linewidth=0)
