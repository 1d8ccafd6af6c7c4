"""Convergence on finite contexts: their own rate, and the floor that their length sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import torch

from icrl_agents import constructions
from icrl_agents.diagnostics import contraction_factor, expected_update, spectral_radius
from icrl_agents.kernels import DotProduct, Exponential, Identity
from icrl_agents.studies.verify.config import VerifyConfig
from icrl_agents.studies.verify.constructions import SOFTMAX
from icrl_agents.studies.verify.convergence import RATE
from icrl_agents.studies.verify.decay import STATES
from icrl_agents.studies.verify.figures import floor_figure
from icrl_agents.studies.verify.floor import DEPTHS, LENGTHS, Floor, Trajectories, measured_floor, simulate
from icrl_agents.studies.verify.rows import EXACT, Row, largest
from icrl_agents.studies.verify.samples import GAMMA, largest_error
from icrl_agents.transformer import Layer


def check_finite_contexts(config: VerifyConfig) -> Iterator[Row]:
    """Yields the rows on finite contexts and writes floor.png."""
    trajectories = simulate(config, LENGTHS[-1])
    yield from _rates(config, trajectories)
    floor = measured_floor(trajectories)
    floor_figure(floor, config.out / "floor.png")
    slope, error = floor.slope()
    yield Row(
        claim="the floor L → ∞ falls as n^{−1/2}: slope in log–log",
        source=SOFTMAX,
        on=f"{config.chains} chains, n = {LENGTHS[0]} … {LENGTHS[-1]:,}; standard error {error:.2g}",
        measured=slope,
        at_least=-0.6,
        at_most=-0.4,
    )
    yield _as_counted(trajectories, floor)


def _rates(config: VerifyConfig, trajectories: Trajectories) -> Iterator[Row]:
    count, n, depth = min(config.chains, 16), 200, 400
    compressed, rates, norms, diverged = [], [], [], []
    for i in range(count):
        context = trajectories.context(i, n)
        for c in (1.0, 8.0):
            kernel = Exponential(1.0 / c)
            update = expected_update(context, kernel)
            found = constructions.weighted_softmax_td(kernel, 40).fit(context.to(config.device)).by_depth(update.states)
            compressed.append(largest_error(found, update.sweep(40)))
            errors = update.errors(depth).abs().amax(-2)
            rate = float((errors[-1] / errors[depth // 2]) ** (2 / depth))
            rates.append(abs(rate / float(spectral_radius(context, kernel)) - 1))
            norms.append(rate - float(contraction_factor(context, kernel)))
        away = constructions.weighted_softmax_td(DotProduct(-2.0 * torch.eye(STATES)), 100)
        limit = float(context.rewards.abs().max()) / (1 - GAMMA)
        *_, last = away.hidden_states(context, context.states)  # since values that diverge are refused
        diverged.append(float(cast(Layer, away.blocks[0]).read_out(last)[-n:].abs().max()) / limit)
    on = f"{count} chains, n = {n}, 2 scores"
    claim = "n transitions over D states = D weighted ones, every layer"
    yield Row(claim=claim, source=SOFTMAX, on=f"{on}, layers 0–40", measured=largest(compressed), at_most=EXACT)
    claim = "rate to the context's own limit = its spectral radius"
    yield Row(claim=claim, source=SOFTMAX, on=on, measured=largest(rates), at_most=RATE)
    yield Row(claim="and within its ∞-norm", source=SOFTMAX, on=on, measured=largest(norms), at_most=EXACT)
    claim = "radius > 1: v leaves |R|_max/(1 − γ), as a multiple of it"
    on = f"transformer, score −2·1{{s = s′}}, {count} contexts, L = 100"
    yield Row(claim=claim, source=SOFTMAX, on=on, measured=float(np.min(diverged)), at_least=10.0)


def _as_counted(trajectories: Trajectories, floor: Floor) -> Row:
    """The floor's shortcut against the transformer itself."""
    errors = []
    for k, n in enumerate(LENGTHS[:5:2]):
        for i in range(min(4, len(trajectories.processes))):
            process = trajectories.processes[i]
            fitted = constructions.weighted_softmax_td(Identity(), DEPTHS[-1]).fit(trajectories.context(i, n))
            squares = np.square(fitted.by_depth(process.features, DEPTHS).numpy() - process.values()[:, None])
            found = np.sqrt(process.stationary_distribution() @ squares)
            errors.append(largest_error(found, floor.by_depth[2 * k, :, i]))
    claim = "the floor's errors are those of the transformer"
    return Row(claim=claim, source=SOFTMAX, on=f"L in {DEPTHS}, n ≤ 1,000", measured=largest(errors), at_most=EXACT)
