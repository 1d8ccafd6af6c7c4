"""Figures of the control study."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from icrl_agents.studies.control.config import EARLY, ENVIRONMENTS
from icrl_agents.studies.control.summary import NAMES, Summary
from icrl_agents.studies.pretrain.statistics import bootstrap_band
from icrl_agents.studies.results import write_figure

COLOURS = {
    "softmax": "#0b6fb8",
    "kernel": "#d97706",
    "adaptive": "#0891b2",
    "pretrained": "#a16207",
    "lstd": "#15803d",
    "none": "#6b7280",
    "learned": "#7c3aed",
    "default": "#be123c",
}


def curves_figure(summary: Summary, path: Path, *, early: bool = False) -> None:
    """Return against steps, one panel per environment: interquartile means over seeds with 95 % bands.

    Args:
        summary: The study.
        path: PNG.
        early: Whether only the early phase is shown.
    """
    count = len(summary.environments)
    columns = min(2, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(4.2 * columns + 0.3, 3.0 * rows + 0.9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for axis, environment in zip(axes, summary.environments, strict=False):
        for critic in summary.critics(environment):
            curves = summary.curves[environment, critic]
            band = bootstrap_band([curves.returns], np.random.default_rng(0))
            axis.plot(curves.steps, band.centre, color=COLOURS[critic], linewidth=1.4)
            axis.fill_between(curves.steps, band.low, band.high, color=COLOURS[critic], alpha=0.13, linewidth=0)
        axis.axhline(ENVIRONMENTS[environment].solved, color="black", linewidth=0.6, linestyle=":")
        axis.set(title=environment, xlabel="steps of the environment")
        axis.set_xlim(0, EARLY if early else None)
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.grid(alpha=0.25, linewidth=0.5)
    for axis in axes[count:]:
        axis.remove()
    shown = [critic for critic in COLOURS if any(critic in summary.critics(name) for name in summary.environments)]
    handles = [Line2D([], [], color=COLOURS[critic], label=NAMES[critic]) for critic in shown]
    handles.append(Line2D([], [], color="black", linewidth=0.6, linestyle=":", label="solved"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3 if columns > 1 else 2, frameon=False, fontsize=8)
    figure.supylabel("return of deterministic actions", fontsize=10)
    write_figure(figure, path)
