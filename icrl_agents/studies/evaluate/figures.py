"""Figures of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from icrl_agents.studies.evaluate.evaluation import Result

COLOURS = {
    "softmax TD": "#0b6fb8",
    "kernel TD": "#d97706",
    "kernel LSTD": "#15803d",
    "Monte-Carlo": "#a21caf",
    "LSTD": "#6b7280",
}
BINS = 10
"""Bins of the calibration, of equally many states each."""
LARGEST_SCATTER = 2000
"""Points that a panel shows at most."""
WIDEST, NARROWER = 2.6, 0.45
"""Width of the first line of a panel, in points, and by how much each following one is narrower: where two coincide,
both are seen."""
NARROWEST_SHARE = 0.2
"""Least range of the predictions that a calibration shows, as a share of that of the returns."""


def calibration_figure(results: Sequence[Result]) -> Figure:
    """Return against predicted value in bins of equally many held-out states, all seeds: on the diagonal is right."""
    names = list(dict.fromkeys(result.row.evaluator for result in results))
    figure, axes = _figure(2, 3, (3.5, 3.2))
    for axis, name in zip(axes, names, strict=False):
        chosen = [result for result in results if result.row.evaluator == name]
        values = np.concatenate([result.values[result.counted] for result in chosen])
        returns = np.concatenate([result.returns[result.counted] for result in chosen])
        axis.set_title(name)
        if np.isfinite(values).all():
            _calibration_panel(axis, values, returns, COLOURS[name])
    for axis in axes[len(names) :]:
        axis.remove()
    figure.supxlabel("predicted value", fontsize=10)
    figure.supylabel("Monte-Carlo return", fontsize=10)
    figure.suptitle("held-out states; ●: mean of a bin, bar: ± standard deviation of its returns", fontsize=9)
    return figure


def episode_figure(results: Sequence[Result]) -> Figure:
    """Values along the longest held-out episode of the first seed, and what it returned."""
    first = [result for result in results if result.row.seed == results[0].row.seed]
    longest = int(np.argmax(first[0].lengths))
    start = sum(first[0].lengths[:longest])
    chosen = slice(start, start + first[0].lengths[longest])
    figure, axes = _figure(1, 1, (7.5, 3.6))
    axis, returns, counted = axes[0], first[0].returns[chosen], first[0].counted[chosen]
    axis.plot(np.where(counted, returns, np.nan), color="black", linewidth=1.0, label="return", zorder=3)
    if not counted.all():
        axis.plot(np.where(counted, np.nan, returns), "k:", linewidth=1.2, label="return, cut short", zorder=3)
    for i, result in enumerate(first):
        name = result.row.evaluator
        axis.plot(result.values[chosen], color=COLOURS[name], linewidth=WIDEST - NARROWER * i, label=name)
    axis.set(xlabel="step", ylabel="value")
    axis.set_title(f"longest held-out episode, seed {first[0].row.seed}")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure


def sample_size_figure(results: Sequence[Result]) -> Figure:
    """Effective sample sizes of the kernel evaluators: their distribution, and the error against them."""
    figure, (left, right) = _figure(1, 2, (4.2, 3.4))
    names = dict.fromkeys(result.row.evaluator for result in results if result.sample_sizes is not None)
    for i, name in enumerate(names):
        chosen = [result for result in results if result.row.evaluator == name and result.sample_sizes is not None]
        sizes = np.concatenate([result.sample_sizes for result in chosen if result.sample_sizes is not None])
        counted = np.concatenate([result.counted for result in chosen])
        errors = np.concatenate([(result.values - result.returns) ** 2 for result in chosen])[counted]
        width = WIDEST - NARROWER * i
        left.plot(np.sort(sizes), np.linspace(0, 1, len(sizes)), color=COLOURS[name], linewidth=width, label=name)
        bins = [part for part in np.array_split(np.argsort(sizes[counted]), BINS) if len(part)]
        centres = [np.median(sizes[counted][part]) for part in bins]
        right.plot(centres, [np.sqrt(errors[part].mean()) for part in bins], "o-", color=COLOURS[name], markersize=3)
    left.set_ylabel("share of held-out states below")
    right.set_ylabel("root-mean-square error against returns")
    for axis in (left, right):
        _size_axis(axis)
    left.legend(frameon=False, fontsize=8)
    return figure


def _size_axis(axis: Axes) -> None:
    """Makes x logarithmic, labelled so that labels keep apart whether sizes span a tenth or four decades."""
    axis.set(xlabel="effective sample size", xscale="log")
    low, high = axis.get_xlim()
    decades = np.log10(high / low)
    subs = (1.0,) if decades > 2.2 else (1.0, 2.0, 5.0)
    axis.xaxis.set_major_locator(LogLocator(subs=subs) if decades > 1.0 else MaxNLocator(4))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.minorticks_off()


def _calibration_panel(axis: Axes, values: np.ndarray, returns: np.ndarray, colour: str) -> None:
    shown = np.linspace(0, len(values) - 1, min(len(values), LARGEST_SCATTER)).round().astype(int)
    axis.plot(values[shown], returns[shown], ".", color=colour, alpha=0.3, markersize=3, markeredgewidth=0)
    parts = [part for part in np.array_split(np.argsort(values), BINS) if len(part)]
    centres = [values[part].mean() for part in parts]
    means, deviations = ([function(returns[part]) for part in parts] for function in (np.mean, np.std))
    axis.errorbar(centres, means, deviations, fmt="o", color=colour, markersize=5, linewidth=1, capsize=2)
    middle, least = float(np.mean(centres)), NARROWEST_SHARE * float(np.ptp(returns))
    if np.ptp(values) < least:  # a constant, but for rounding
        axis.set_xlim(middle - least / 2, middle + least / 2)
    axis.axline((middle, middle), slope=1, color="black", linewidth=0.8)


def _figure(rows: int, columns: int, panel: tuple[float, float]) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(panel[0] * columns, panel[1] * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.grid(alpha=0.25, linewidth=0.5)
        axis.title.set_fontsize(9)
    return figure, axes
