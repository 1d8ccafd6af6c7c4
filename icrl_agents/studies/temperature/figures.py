"""Figures of the kernel-temperature study."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator

from icrl_agents.studies.line_styles import line_styles
from icrl_agents.studies.results import write_figure
from icrl_agents.studies.temperature.evaluation import RIDGE
from icrl_agents.studies.temperature.offset import COLUMNS, best_scale
from icrl_agents.studies.temperature.report import matrices
from icrl_agents.studies.temperature.similarity import similarity
from icrl_agents.studies.temperature.summary import Measure, Summary

COLOURS = ("#0b6fb8", "#d97706", "#15803d", "#9333ea")
MOST = 4.0
"""End of the colours of a similarity matrix."""
SHOWN = (0.0007, 3.0)
"""Relative losses that the curves show, and smaller ones where there are some."""


def curves_figure(summary: Summary, measure: Measure, path: Path) -> None:
    """Relative loss against length scale, one panel per domain and method, with the best of each noise level.

    Colours are noise levels, line styles kernels; a dot is the optimum of the first kernel, its bar the interval.
    """
    rows, columns = len(summary.methods), len(summary.domains)
    figure = Figure(figsize=(1.0 + 2.5 * columns, 0.9 + 2.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey="row")
    weights = np.full((1, len(summary.seeds)), 1 / len(summary.seeds))
    styles = dict(zip(summary.kernels, line_styles(len(summary.kernels)), strict=True))
    least = SHOWN[0]
    for method, line in zip(summary.methods, axes, strict=True):
        for domain, axis in zip(summary.domains, line, strict=True):
            for colour, noise in _coloured(summary):
                for kernel, style in styles.items():
                    cell = [(domain, noise)]
                    curve = np.exp(summary.curves(cell, method, kernel, measure, weights)[0])
                    least = min(least, 0.8 * curve.min())
                    curve[~np.isfinite(curve)] = np.nan
                    faint = 1.0 if kernel == summary.kernels[0] else 0.55
                    axis.plot(summary.length_scales, curve, style, color=colour, linewidth=1.1, alpha=faint)
                best = summary.optimum([(domain, noise)], method, summary.kernels[0], measure)
                axis.plot([best.low, best.high], [best.least] * 2, color=colour, linewidth=3, alpha=0.4)
                axis.plot(best.length_scale, best.least, "o", color=colour, markersize=4)
            axis.set(xscale="log", yscale="log", title=f"{domain}, {method} TD")
            axis.title.set_fontsize(8)
            axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=12))
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.minorticks_off()
            axis.grid(alpha=0.25, linewidth=0.5)
    handles = [Line2D([], [], color=colour, label=f"{noise} noise") for colour, noise in _coloured(summary)]
    handles += [
        Line2D([], [], color="black", linestyle=style, label=_words(kernel)) for kernel, style in styles.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    for axis in axes.flat:
        axis.set_ylim(least, SHOWN[1])
    for axis in axes[-1]:
        axis.set_xlabel("ℓ (exponential: √temperature)", fontsize=8)
    figure.supylabel(f"relative {measure.title}", fontsize=9)
    write_figure(figure, path)


def similarity_figure(summary: Summary, path: Path) -> None:
    """The similarity matrices side by side: white where a domain is served by the other's kernel as by its own."""
    chosen = matrices(summary)
    size = 1.2 + 0.55 * len(summary.domains)
    figure = Figure(figsize=(2.0 + size * len(chosen), 0.9 + size), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(chosen), squeeze=False).ravel()
    norm, colours = LogNorm(1 / MOST, MOST), colormaps["RdBu_r"]
    names = [domain.removesuffix("-v3") for domain in summary.domains]
    for axis, (method, measure) in zip(axes, chosen, strict=True):
        found = similarity(summary, method, measure, summary.kernels)
        axis.imshow(np.clip(found.ratios, 1 / MOST, MOST), norm=norm, cmap=colours, aspect="auto")
        axis.set_xlabel("domain measured", fontsize=8)
        axis.set_title(f"{'RKHS projection' if method == RIDGE else f'{method} TD'}\n{measure.title}", fontsize=9)
        axis.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=8)
        axis.set_yticks(range(len(names)), names if axis is axes[0] else [], fontsize=8)
        for (i, j), ratio in np.ndenumerate(found.ratios):
            clear = i != j and (found.low[i, j] > 1 or found.high[i, j] < 1)
            dark = np.isfinite(ratio) and abs(float(norm(np.clip(ratio, 1 / MOST, MOST))) - 0.5) > 0.3
            text = "∞" if np.isposinf(ratio) else "–" if np.isnan(ratio) else f"{ratio:.2f}{'*' if clear else ''}"
            axis.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=list(axes), shrink=0.8, extend="both")
    bar.set_label("loss / that of its own choice\n(*: interval excludes 1)", fontsize=8)
    bar.set_ticks([0.25, 0.5, 1.0, 2.0, 4.0], labels=["0.25", "0.5", "1", "2", "4"])
    bar.minorticks_off()
    axes[0].set_ylabel("domain that chose the kernel", fontsize=8)
    write_figure(figure, path)


def offset_figure(summary: Summary, path: Path) -> None:
    """Plain value error with and without the correction, and centred, against depth, for each method and kernel."""
    rows, columns = len(summary.methods), len(summary.kernels)
    figure = Figure(figsize=(1.0 + 2.4 * columns, 0.9 + 2.3 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    titles = dict(zip(COLUMNS, ("plain", "with the correction", "centred"), strict=True))
    cells = [(domain, noise) for domain in summary.domains for noise in summary.noise]
    for method, line in zip(summary.methods, axes, strict=True):
        for kernel, axis in zip(summary.kernels, line, strict=True):
            scale = best_scale(summary, method, kernel)
            for colour, (name, title) in zip(COLOURS, titles.items(), strict=False):
                errors = np.array([_error(summary, cells, (method, kernel), d, name, scale) for d in summary.depths])
                axis.plot(summary.depths, errors.mean(1), "o-", color=colour, markersize=3, label=title)
                low, high = errors.min(1), errors.max(1)
                axis.fill_between(summary.depths, low, high, color=colour, alpha=0.15, linewidth=0)
            axis.set_title(f"{method} TD, {_words(kernel)}, ℓ = {summary.length_scales[scale]:g}", fontsize=8)
            axis.set(xscale="log", yscale="log")
            axis.set_xticks(summary.depths, [str(depth) for depth in summary.depths])
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.minorticks_off()
            axis.grid(alpha=0.25, linewidth=0.5)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("sweeps L", fontsize=8)
    figure.supylabel("value error / mean G²", fontsize=9)
    figure.suptitle("geometric mean over cells; band: range over seeds", fontsize=9)
    write_figure(figure, path)


def _error(
    summary: Summary, cells: list[tuple[str, str]], bank: tuple[str, str], depth: int, name: str, scale: int
) -> np.ndarray:
    """Geometric mean over cells of a value error over mean G², ``(seeds,)``."""
    logs = []
    for cell in cells:
        error, power = (summary.column(*cell, *bank, depth, each)[:, scale] for each in (name, "return_power"))
        logs.append(np.log((error + 1e-4) / (power + 1e-4)))
    return np.exp(np.mean(logs, axis=0))


def _words(kernel: str) -> str:
    return kernel.replace("_", " ")


def _coloured(summary: Summary) -> list[tuple[str, str]]:
    count = len(summary.noise)
    many = [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0.0, 0.9, count))]
    return list(zip(COLOURS[:count] if count <= len(COLOURS) else many, summary.noise, strict=True))
