"""Figures of the verification: error against depth, its floor against the length of the context, and NEU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from icrl_agents.diagnostics import expected_update
from icrl_agents.kernels import Exponential
from icrl_agents.studies.results import write_figure
from icrl_agents.studies.verify.config import VerifyConfig
from icrl_agents.studies.verify.decay import DISCOUNTS, FEATURES, SCALES, SETTINGS, STATES, Decay
from icrl_agents.studies.verify.floor import DEPTHS, Floor, simulate
from icrl_agents.studies.verify.neu_curves import Curve
from icrl_agents.studies.verify.samples import GAMMA

PANEL = (5.6, 3.4)
"""Width and height of a panel, in inches."""
LEGEND = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
SHOWN_DEPTH, SHOWN_LENGTHS = 100, (30, 300, 3_000, 30_000)


def convergence_figure(config: VerifyConfig, decays: Sequence[Decay], path: Path) -> None:
    """Error against depth with the spectral prediction, in the population limit and at finite n; rates and bound."""
    figure, axes = _figure(2, 2)
    for axis, features in zip(axes[0], FEATURES, strict=True):
        first = len(SETTINGS) * len(DISCOUNTS) * FEATURES.index(features)
        _population_panel(axis, decays[first : first + len(SCALES)])
        axis.set_title(
            f"one chain, population limit, {features.replace('_', '-')} features, γ = {DISCOUNTS[0]:g}", fontsize=9
        )
    _context_panel(axes[1, 0], config)
    _rate_panel(axes[1, 1], decays)
    write_figure(figure, path)


def floor_figure(floor: Floor, path: Path) -> None:
    """Error against context length: the limit L → ∞ with its quartiles, and finite depths, which stop falling."""
    figure, axes = _figure(1, 1)
    axis, n = axes[0, 0], floor.lengths
    colours = colormaps["viridis"](np.linspace(0.85, 0.35, len(DEPTHS)))
    for j, (depth, colour) in enumerate(zip(DEPTHS, colours, strict=True)):
        axis.loglog(n, np.median(floor.by_depth[:, j], -1), color=colour, linewidth=1, label=f"L = {depth}, median")
    middle = np.exp(np.log(floor.limit).mean(-1))
    axis.fill_between(n, *np.quantile(floor.limit, [0.25, 0.75], axis=-1), color="black", alpha=0.12, linewidth=0)
    axis.loglog(n, middle, "ko", markersize=4, label="L → ∞: geometric mean,\nquartiles")
    slope, error = floor.slope()
    centre = np.exp(np.log(n).mean())
    axis.loglog(n, np.exp(np.log(middle).mean()) * (n / centre) ** -0.5, "k--", linewidth=1, label="slope −1/2")
    axis.set(xlabel="context length n", ylabel="value error √Σ μ(s) e(s)²")
    axis.set_title(
        f"{floor.limit.shape[1]} chains, measured slope {slope:.3f} ± {error:.2g}".replace("-", "−"), fontsize=10
    )
    axis.legend(frameon=False, fontsize=8, **LEGEND)
    write_figure(figure, path)


def neu_figure(lengths: Sequence[int], curves: Sequence[Curve], path: Path) -> None:
    """NEU against context length: the construction at several depths, perturbed and random weights at the largest."""
    figure, axes = _figure(1, 1)
    axis, depths = axes[0, 0], sorted({curve.depth for curve in curves})
    shades = dict(zip(depths, colormaps["viridis"](np.linspace(0.85, 0.2, len(depths))), strict=True))
    looks = {"constructed": "o-", "perturbed": "^--", "random": "x:"}
    colours, named = {"perturbed": "#d97706", "random": "#888888"}, set()
    for curve in curves:
        label = f"{curve.kind}, L = {curve.depth}"
        style = {"color": colours.get(curve.kind, shades[curve.depth]), "markersize": 4, "linewidth": 1.2}
        axis.loglog(lengths, curve.medians, looks[curve.kind], label="" if label in named else label, **style)
        named.add(label)
    axis.set(xlabel="context length n", ylabel="NEU = ‖E[δ ∇v̂]‖²")
    axis.set_title(f"median of {curves[0].estimates.shape[-1]} chains, {STATES} states, γ = {GAMMA:g}", fontsize=9)
    axis.legend(frameon=False, fontsize=7, **LEGEND)
    write_figure(figure, path)


def _population_panel(axis: Axes, decays: Sequence[Decay]) -> None:
    """The first chain under each score: points are measured, lines the spectral prediction."""
    depths = np.arange(0, SHOWN_DEPTH + 1, 4)
    for decay, c, colour in zip(decays, SCALES, colormaps["viridis"](np.linspace(0.9, 0.1, len(SCALES))), strict=True):
        errors, rho = decay.errors[0].numpy(), float(decay.radius[0])
        holds = float(decay.bound[0]) < 1
        label = f"c = {c:g}: m = {float(decay.diagonality[0]):.2f}, ρ = {rho:.3f}"
        axis.semilogy(depths, errors[depths], "o" if holds else "x", color=colour, markersize=3.5, label=label)
        anchor = errors[SHOWN_DEPTH] / rho**SHOWN_DEPTH
        axis.semilogy(depths, anchor * rho**depths, color=colour, linewidth=0.8)
    fastest = min(float(decay.errors[0, SHOWN_DEPTH]) for decay in decays[: len(SCALES)])
    axis.set(xlabel="depth L", ylabel="‖v_L − v‖_∞", ylim=(max(1e-10, fastest / 3), 30))
    axis.legend(frameon=False, fontsize=7, title="● m > (1 + γ)/2, × not; lines: ρ^L", title_fontsize=7, **LEGEND)


def _context_panel(axis: Axes, config: VerifyConfig) -> None:
    """The first chain: errors against the exact value on contexts of several lengths, in the states they hold."""
    trajectories = simulate(config, SHOWN_LENGTHS[-1])
    exact, kernel = torch.as_tensor(trajectories.processes[0].values()), Exponential(1 / 8)
    for n, colour in zip(SHOWN_LENGTHS, colormaps["plasma"](np.linspace(0.8, 0.1, len(SHOWN_LENGTHS))), strict=True):
        update = expected_update(trajectories.context(0, n), kernel)
        order = update.states.argmax(-1)
        errors = (update.sweep(SHOWN_DEPTH) - exact[order, None]).abs().amax(0)
        axis.semilogy(errors, color=colour, linewidth=1.3, label=f"n = {n:,}")
    axis.semilogy(float(exact.abs().max()) * GAMMA ** np.arange(SHOWN_DEPTH + 1), "k--", linewidth=0.8, label="γ^L ‖v‖")
    axis.set(xlabel="depth L", ylabel="‖v_L − v‖_∞, v exact")
    axis.set_title(f"one chain, finite contexts, one-hot, c = 8, γ = {GAMMA:g}", fontsize=9)
    axis.legend(frameon=False, fontsize=7, **LEGEND)


def _rate_panel(axis: Axes, decays: Sequence[Decay]) -> None:
    """Measured rate of every chain against its diagonality, and the bound."""
    for gamma, colour in zip(DISCOUNTS, ("#0b6fb8", "#d97706"), strict=True):
        chosen = [decay for decay in decays if decay.gamma == gamma and decay.step_size == 1]
        m, rate = (torch.cat([getattr(decay, name) for decay in chosen]) for name in ("diagonality", "rate"))
        axis.plot(m, rate, ".", color=colour, markersize=2, label=f"measured, γ = {gamma:g}")
        line = np.linspace(0.0, 1.0, 50)
        axis.plot(line, 1 - (2 * line - 1 - gamma), color=colour, linewidth=1, label="its bound")
    axis.axhline(1.0, color="black", linewidth=0.5)
    axis.set(xlabel="kernel diagonality m", ylabel="rate of the error per layer", ylim=(0.45, 1.15), xlim=(0, 1))
    axis.set_title(f"all chains, population limit, {STATES} states, α = 1", fontsize=9)
    axis.legend(frameon=False, fontsize=7, **LEGEND)


def _figure(rows: int, columns: int) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.grid(alpha=0.25, linewidth=0.5)
    return figure, axes
