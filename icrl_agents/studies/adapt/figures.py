"""Figures of the adaptation study."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from icrl_agents.studies.adapt.summary import LIMIT, MIXTURE, Summary
from icrl_agents.studies.results import write_figure

COLOURS = {"TD loss": "#0b6fb8", "value error": "#d97706", "true error": "#15803d"}
DARK = 0.3
"""Distance from the middle of the colours from which on numbers are white."""
LEAST, MOST = 0.01, 100.0
"""Ratios beyond are drawn there: of what diverges they are infinite."""
TICKS = (LEAST, 0.25, 0.5, 0.75, 1.0, 1.25, 2.0, 4.0, MOST)


def ratios_figure(summary: Summary, path: Path) -> None:
    """Adaptive over the best fixed kernel in hindsight, one dot per cell, sorted, with the lines 1 and 1.25."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for measure in summary.measures:
        best = summary.best_fixed(measure)
        found = summary.compare(measure, MIXTURE, best)
        text = f"{measure} / that of {best[1]}, L={best[2]}: {found.brief()}"
        shares = (np.arange(len(found.ratios)) + 0.5) / len(found.ratios)
        ratios = np.clip(np.sort(found.ratios), LEAST, MOST)
        axis.plot(shares, ratios, ".", markersize=3, color=COLOURS[measure], label=text)
        if not np.array_equal(ratios, np.sort(found.ratios)):
            axis.set_title(f"ratios beyond {LEAST:g} and {MOST:g} are drawn there", fontsize=8)
    axis.axhline(1.0, color="black", linewidth=0.7)
    axis.axhline(LIMIT, color="#b91c1c", linewidth=0.8, linestyle="--", label=f"{LIMIT}")
    axis.set(yscale="log", xlabel="share of cells (domain × noise), sorted", ylabel="adaptive / best fixed")
    axis.yaxis.set_major_locator(FixedLocator(TICKS))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.grid(alpha=0.25, linewidth=0.5)
    axis.legend(fontsize=7, frameon=False, loc="lower right")
    write_figure(figure, path)


def heat_map_figure(summary: Summary, path: Path) -> None:
    """The same ratios by domain and noise level: blue where adapting helps, red where it hurts."""
    figure = Figure(figsize=(6.0, max(2.6, 1.4 + 0.2 * len(summary.domains))), layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.atleast_1d(figure.subplots(1, len(summary.measures)))
    colours, norm = colormaps["RdBu_r"], LogNorm(0.5, 2.0)
    for axis, measure in zip(axes, summary.measures, strict=True):
        ratios = summary.compare(measure, MIXTURE, summary.best_fixed(measure)).ratios
        by_cell = dict(zip(summary.cells, ratios, strict=True))
        grid = np.array([[by_cell[domain, noise] for noise in summary.noise] for domain in summary.domains])
        axis.imshow(np.clip(grid, 0.5, 2.0), norm=norm, cmap=colours, aspect="auto")
        axis.set_title(measure, fontsize=9)
        axis.set_xticks(range(len(summary.noise)), summary.noise, fontsize=8)
        axis.set_yticks(range(len(summary.domains)), summary.domains if axis is axes[0] else [], fontsize=7)
        for (i, j), value in np.ndenumerate(grid):
            dark = abs(float(norm(np.clip(value, 0.5, 2.0))) - 0.5) > DARK
            axis.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=6, color="white" if dark else "black")
    bar = figure.colorbar(
        ScalarMappable(norm, colours), ax=list(axes), shrink=0.5 if len(summary.domains) > 10 else 1.0, extend="both"
    )
    bar.set_label("adaptive / best fixed")
    bar.set_ticks([0.5, 0.75, 1.0, 1.25, 2.0], labels=["0.5", "0.75", "1", "1.25", "2"])
    bar.minorticks_off()
    figure.supxlabel("policy noise", fontsize=9)
    write_figure(figure, path)
