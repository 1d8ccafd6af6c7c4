"""Figures of the transfer study."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import LineStyleType

from icrl_agents.studies.transfer.evaluation import TRANSFORMERS
from icrl_agents.studies.transfer.summary import Summary

COLOURS = {"softmax": "#0b6fb8", "kernel": "#d97706", "linear": "#6b7280"}
STYLES: tuple[LineStyleType, ...] = ("-", "--", ":", "-.")
COLUMNS = 5


def td_loss_figure(summary: Summary, path: Path) -> None:
    """Held-out TD loss against depth, one panel per domain, log scale: the three transformers at each noise level."""
    columns = min(COLUMNS, len(summary.domains))
    rows = -(-len(summary.domains) // columns)
    figure, axes = _grid(rows, columns, width=3.1, height=3.2)
    for axis, domain in zip(axes, summary.domains, strict=False):
        for style, noise in zip(_styles(len(summary.noise)), summary.noise, strict=True):
            for name in TRANSFORMERS:
                estimates = [summary.relative_td_loss(domain, noise, name, depth) for depth in summary.depths]
                mean = np.array([e.mean for e in estimates])
                error = np.nan_to_num(np.array([e.standard_error for e in estimates]))
                axis.plot(
                    summary.depths,
                    mean,
                    linestyle=style,
                    color=COLOURS[name],
                    marker="o",
                    markersize=2.5,
                    linewidth=1.4,
                )
                low = np.maximum(mean - error, mean / 3)
                axis.fill_between(summary.depths, low, mean + error, color=COLOURS[name], alpha=0.12, linewidth=0)
        axis.axhline(1.0, color="black", linewidth=0.6, alpha=0.5)
        axis.set(title=domain, xlabel="depth L", yscale="log", xscale="symlog")
        axis.set_xlim(0, max(1, summary.depths[-1]))
        axis.set_xticks(summary.depths, [str(depth) for depth in summary.depths])
        axis.minorticks_off()
        axis.grid(alpha=0.25, linewidth=0.5)
    for axis in axes[len(summary.domains) :]:
        axis.remove()
    for first in range(0, len(summary.domains), columns):
        axes[first].set_ylabel("held-out TD loss / loss of v = 0")
    handles = [Line2D([], [], color=COLOURS[name], label=f"{name} transformer") for name in TRANSFORMERS]
    styles = zip(_styles(len(summary.noise)), summary.noise, strict=True)
    handles += [Line2D([], [], color="black", linestyle=style, label=f"{noise} noise") for style, noise in styles]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    figure.savefig(path, dpi=150)


def heat_map_figure(summary: Summary, path: Path) -> None:
    """Domain × noise heat maps at the full depth: relative TD loss above, centred relative value error below."""
    figure, axes = _grid(
        2, len(TRANSFORMERS), width=1.6 + 1.0 * len(summary.noise), height=1.2 + 0.34 * len(summary.domains)
    )
    depth = summary.depths[-1]
    colours = colormaps["RdYlGn_r"].with_extremes(bad="#e5e7eb")
    image = None
    for row, (title, measure) in enumerate(
        (
            ("held-out TD loss / loss of v = 0", summary.relative_td_loss),
            ("centred relative value error", summary.centred_error),
        )
    ):
        for column, name in enumerate(TRANSFORMERS):
            axis = axes[row * len(TRANSFORMERS) + column]
            grid = np.array([[measure(d, s, name, depth).mean for s in summary.noise] for d in summary.domains])
            image = axis.imshow(np.clip(grid, 1e-9, 1e9), norm=LogNorm(0.005, 2.0), cmap=colours, aspect="auto")
            axis.set_title(f"{name} transformer\n{title}", fontsize=9)
            axis.set_xticks(range(len(summary.noise)), summary.noise)
            axis.set_yticks(
                range(len(summary.domains)), summary.domains if column == 0 else [""] * len(summary.domains)
            )
            for (i, j), value in np.ndenumerate(grid):
                axis.text(j, i, "–" if np.isnan(value) else f"{value:.2g}", ha="center", va="center", fontsize=8)
    if image is not None:
        figure.colorbar(image, ax=list(axes), shrink=0.6, label="0 is exact; 1 is v = 0 (above), a constant (below)")
    figure.savefig(path, dpi=150)


def _grid(rows: int, columns: int, *, width: float, height: float) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(width * columns, height * rows + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()


def _styles(count: int) -> list[LineStyleType]:
    return [STYLES[i % len(STYLES)] for i in range(count)]
