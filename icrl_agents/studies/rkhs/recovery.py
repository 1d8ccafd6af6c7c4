"""The recovered value beside the true one: curves in one dimension, maps in two."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from icrl_agents.context import Context
from icrl_agents.studies.results import write_figure
from icrl_agents.studies.rkhs.config import RKHSConfig
from icrl_agents.studies.rkhs.evaluation import (
    TRANSFORMERS,
    Cell,
    Fit,
    evaluators,
    first_steps,
    fitted,
    process_of,
    trajectory,
    whatever_contracts,
)
from icrl_agents.studies.rkhs.figures import COLOURS, NAMES

EXTENT = 3.0
"""Values are shown as far as this many standard deviations of the state."""
SIDE = 61


def recovered(config: RKHSConfig, cell: Cell, length: int, states: np.ndarray) -> dict[str, np.ndarray]:
    """Values ``(m,)`` of the two transformers at ``states (m, d)``, after the first ``length`` steps of a cell.

    They have the value's own kernel and the depth of the configuration; NaN where one diverges.
    """
    context = Context.from_episodes([first_steps(trajectory(config, cell), length)], config.gamma).to(config.device)
    named = evaluators(config, Fit(cell.kernel, 1.0, length, (config.depth,)))
    found = {name: fitted(named[name], context) for name in TRANSFORMERS}
    none = np.full(len(states), np.nan)
    with whatever_contracts():
        return {name: none if values is None else values(states).numpy(force=True) for name, values in found.items()}


def curves_figure(config: RKHSConfig, path: Path) -> None:
    """One column per kernel, one row per context length, the shortest and the longest: the first seed's values."""
    lengths = sorted({min(config.lengths), max(config.lengths)})
    figure = Figure(figsize=(1.0 + 4.2 * len(config.kernels), 0.9 + 2.4 * len(lengths)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(lengths), len(config.kernels), squeeze=False)
    for row, length in zip(axes, lengths, strict=True):
        for axis, kernel in zip(row, config.kernels, strict=True):
            _curves(axis, config, Cell(kernel, 1, config.first_seed), length)
    axes[0][0].legend(frameon=False, fontsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("state s (ticks: states of the context)", fontsize=8)
    figure.supylabel("value", fontsize=9)
    write_figure(figure, path)


def maps_figure(config: RKHSConfig, path: Path) -> None:
    """One row per kernel: the true value of the first seed, then each transformer's from the longest context."""
    length = max(config.lengths)
    figure = Figure(figsize=(9.6, 0.7 + 2.7 * len(config.kernels)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(config.kernels), 1 + len(TRANSFORMERS), squeeze=False)
    for row, kernel in zip(axes, config.kernels, strict=True):
        _maps(row, config, Cell(kernel, 2, config.first_seed), length)
    figure.suptitle(
        f"seed {config.first_seed}, n = {length}, L = {config.depth}; dots: states of the context", fontsize=9
    )
    write_figure(figure, path)


def _curves(axis: Axes, config: RKHSConfig, cell: Cell, length: int) -> None:
    process = process_of(config, cell)
    s = np.linspace(-EXTENT, EXTENT, 300) * process.stationary_scale
    exact = process.values(s[:, None])
    axis.plot(s, exact, color="black", linewidth=2.2, alpha=0.5, label="exact value")
    for name, values in recovered(config, cell, length, s[:, None]).items():
        axis.plot(s, values, color=COLOURS[name], linewidth=1.2, label=NAMES[name])
    seen = trajectory(config, cell).observations[:length, 0]
    axis.plot(seen, np.zeros_like(seen), "|", color="black", markersize=7, alpha=min(1.0, 40 / length),
              transform=axis.get_xaxis_transform())  # fmt: skip
    margin = 0.4 * float(np.ptp(exact))
    axis.set_ylim(float(exact.min()) - margin, float(exact.max()) + margin)
    axis.set_xlim(float(s[0]), float(s[-1]))
    axis.set_title(f"{cell.kernel} kernel, n = {length}, L = {config.depth}, seed {cell.seed}", fontsize=9)
    axis.grid(alpha=0.25, linewidth=0.5)
    axis.tick_params(labelsize=7)


def _maps(axes: np.ndarray, config: RKHSConfig, cell: Cell, length: int) -> None:
    process = process_of(config, cell)
    reach = EXTENT * process.stationary_scale
    line = np.linspace(-reach, reach, SIDE)
    states = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    values = {"exact value": process.values(states), **recovered(config, cell, length, states)}
    largest = float(np.abs(values["exact value"]).max())
    norm = Normalize(-largest, largest)
    seen = trajectory(config, cell).observations[:length]
    for axis, (name, found) in zip(axes, values.items(), strict=True):
        axis.imshow(found.reshape(SIDE, SIDE), origin="lower", extent=(-reach, reach) * 2, cmap="RdBu_r", norm=norm)
        axis.plot(*seen.T, ".", color="black", markersize=1.0, alpha=0.35)
        axis.set(xlim=(-reach, reach), ylim=(-reach, reach))
        axis.set_xlabel("$s_1$", fontsize=8)
        axis.set_title(f"{cell.kernel} kernel: {NAMES.get(name, name)}", fontsize=9)
        axis.tick_params(labelsize=7)
    axes[0].set_ylabel("$s_2$", fontsize=8)
    bar = axes[0].figure.colorbar(ScalarMappable(norm, "RdBu_r"), ax=list(axes), shrink=0.85, extend="both")
    bar.set_label("value", fontsize=8)
    bar.ax.tick_params(labelsize=7)
