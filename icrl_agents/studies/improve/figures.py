"""Figure of the improvement study."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from icrl_agents.studies.improve.summary import NAMES, Summary
from icrl_agents.studies.improve.training import CRITIC, RETURNS, SCRIPT, SHUFFLED, Row

COLOURS = {SCRIPT: "#111827", CRITIC: "#0b6fb8", RETURNS: "#d97706", SHUFFLED: "#6b7280"}
MEASURES: dict[str, Callable[[Row], float]] = {
    "success rate": lambda r: r.success,
    "reward per step": lambda r: r.reward,
}


def rewards_figure(summary: Summary) -> Figure:
    """Success rate above and reward per step below, one column per domain: each seed a dot, the mean a bar."""
    domains = summary.domains
    figure = Figure(figsize=(3.1 * len(domains) + 0.4, 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(domains), squeeze=False)
    for line, (name, measure) in zip(axes, MEASURES.items(), strict=True):
        for axis, domain in zip(line, domains, strict=True):
            _panel(axis, summary, domain, measure)
        line[0].set_ylabel(name)
    for axis, domain in zip(axes[0], domains, strict=True):
        axis.set_title(domain, fontsize=10)
        axis.set_xticks([])
        axis.set_ylim(0, 1.05)
    for axis in axes[1]:
        labels = [NAMES[policy, True].replace(" ", "\n").replace("-\n", "-") for policy in COLOURS]
        axis.set_xticks(range(len(COLOURS)), labels, fontsize=7)
        axis.set_ylim(bottom=0)
    caption = "bar: mean, dot: seed, line: one seed before and after, dotted: the script without noise"
    figure.supxlabel(textwrap.fill(caption, int(16 * figure.get_figwidth())), fontsize=8)
    return figure


def _panel(axis: Axes, summary: Summary, domain: str, measure: Callable[[Row], float]) -> None:
    before = summary.numbers(domain, SCRIPT, True, measure)
    for place, (policy, colour) in enumerate(COLOURS.items()):
        values = summary.numbers(domain, policy, True, measure)
        axis.bar(place, values.mean(), color=colour, alpha=0.3, width=0.75)
        spots = place + np.linspace(-0.15, 0.15, len(values))
        axis.plot(spots, values, "o", color=colour, markersize=3.5)
        if policy == CRITIC:
            axis.plot(
                np.stack([spots - place, spots]), np.stack([before, values]), color=colour, linewidth=0.6, alpha=0.6
            )
    axis.axhline(summary.numbers(domain, SCRIPT, False, measure).mean(), color="black", linewidth=0.8, linestyle=":")
    axis.grid(axis="y", alpha=0.25, linewidth=0.5)
