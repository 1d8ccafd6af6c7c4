"""The norm of the expected update (NEU): at the construction, away from it, and its estimators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch

from icrl_agents.constructions import weighted_softmax_td
from icrl_agents.diagnostics import neu
from icrl_agents.kernels import DotProduct
from icrl_agents.pretraining import PretrainConfig
from icrl_agents.pretraining.batches import Batch, batches
from icrl_agents.pretraining.losses import loss_of
from icrl_agents.pretraining.model import SHARP_SCORE, random_transformer
from icrl_agents.studies.verify.config import VerifyConfig
from icrl_agents.studies.verify.constructions import SOFTMAX
from icrl_agents.studies.verify.decay import STATES, drawn
from icrl_agents.studies.verify.figures import neu_figure
from icrl_agents.studies.verify.neu_curves import CONTEXTS, LENGTHS, Curve, constructed, measured_curves
from icrl_agents.studies.verify.rows import EXACT, Row
from icrl_agents.studies.verify.samples import GAMMA
from icrl_agents.transformer import InContextTransformer
from icrl_envs import FiniteProcess

CHAINS, REPETITIONS = 12, 60
SLOPES = 1e-7
"""Largest difference between a slope and its finite difference, relative to the largest slope."""


def check_neu(config: VerifyConfig) -> Iterator[Row]:
    """Yields the rows on NEU and writes neu.png."""
    chains = drawn(config.first_seed, CHAINS, GAMMA)
    curves = measured_curves(chains)
    neu_figure(LENGTHS, curves, config.out / "neu.png")
    yield from _at_the_construction(curves, f"{len(chains)} chains, γ = {GAMMA:g}, score {SHARP_SCORE:g}·1{{s = s′}}")
    yield _exact_solution()
    yield _estimators(chains[0])
    yield from (_gradient(expectations) for expectations in (False, True))


def _at_the_construction(curves: list[Curve], on: str) -> Iterator[Row]:
    def row(claim: str, where: str, ratio: float, at_least: float | None = None, at_most: float | None = None) -> Row:
        where = f"{where}; medians of {on}"
        return Row(claim=claim, source=SOFTMAX, on=where, measured=ratio, at_least=at_least, at_most=at_most)

    deep, shallow = (next(c for c in curves if c.kind == "constructed" and c.depth == L) for L in (80, 20))
    ratio = deep.at(500) / deep.at(20)
    yield row("NEU vanishes at the construction: n = 500 over n = 20", "L = 80", ratio, at_most=1 / 20)
    ratio = shallow.at(500) / abs(deep.at(500))
    yield row("it does not where depth is missing: L = 20 over L = 80", "n = 500", ratio, at_least=10.0)
    for kind in ("perturbed", "random"):
        others = [curve.at(500) for curve in curves if curve.kind == kind]
        ratio = float(np.min(others)) / abs(deep.at(500))
        claim = f"{kind} weights stay above the construction: least ratio"
        yield row(claim, f"L = 80, n = 500, {len(others)} transformers", ratio, at_least=3.0)


def _exact_solution() -> Row:
    """A cycle: every context shows the whole process, so that the iteration ends at v = (I − γP)⁻¹ r."""
    P, r = np.roll(np.eye(STATES), 1, axis=-1), np.arange(STATES, dtype=np.float64)
    cycle = FiniteProcess(P, r, np.eye(STATES), GAMMA, np.full(STATES, 1 / STATES))
    rng = np.random.default_rng(0)
    found = neu(constructed(400), cycle, context_length=4 * STATES, num_contexts=10, rng=rng)
    on = f"a cycle of {STATES} states, n = {4 * STATES}, L = 400"
    return Row(claim="NEU = 0 where the value is exact", source=SOFTMAX, on=on, measured=float(found), at_most=EXACT)


def _estimators(chain: FiniteProcess) -> Row:
    """Whether the means of two estimators agree on the same contexts, with a score at which neither is small.

    The context is long, since the conditional one takes the query as independent of it, which S_n is only then.
    """
    transformer = weighted_softmax_td(DotProduct(2.0 * torch.eye(STATES)), 10)

    def estimates(estimator: str) -> np.ndarray:
        options = {"context_length": 300, "num_contexts": CONTEXTS, "estimator": estimator}
        seeds = range(REPETITIONS)
        return np.array([float(neu(transformer, chain, rng=np.random.default_rng(i), **options)) for i in seeds])

    sampled, conditional = estimates("two_batch"), estimates("conditional")
    error = (sampled - conditional).std(ddof=1) / math.sqrt(REPETITIONS)
    return Row(
        claim="sampled and summed-over queries: same mean of NEU, in standard errors",
        source="",
        on=f"n = 300: two-batch {sampled.mean():.3g}, conditional {conditional.mean():.3g}, ± {error:.2g}",
        measured=abs(float(sampled.mean() - conditional.mean())) / error,
        at_most=3.0,
    )


def _gradient(expectations: bool) -> Row:
    config = PretrainConfig(
        num_states=3, context_length=8, num_layers=3, tasks=6, loss="neu", expectations=expectations, initial_scale=1.0
    )
    transformer, batch, loss = random_transformer(config), next(iter(batches(config))), loss_of(config)
    loss(transformer, batch).backward()
    slopes = torch.cat(
        [parameter.grad.flatten() for parameter in transformer.parameters() if parameter.grad is not None]
    )
    error = (slopes - finite_differences(loss, transformer, batch)).abs().max() / slopes.abs().max()
    return Row(
        claim="gradient of the NEU loss = finite differences",
        source="",
        on=f"{'summed-over' if expectations else 'sampled'} queries, {len(slopes)} random weights, L = 3",
        measured=float(error),
        at_most=SLOPES,
    )


def finite_differences(
    loss: Callable[[InContextTransformer, Batch], torch.Tensor],
    transformer: InContextTransformer,
    batch: Batch,
    step: float = 1e-5,
) -> torch.Tensor:
    """Central differences of a loss in each weight, ``(k,)``."""
    slopes = []
    for parameter in transformer.parameters():
        flat = parameter.data.view(-1)
        for i in range(len(flat)):
            sides = []
            for shift in (step, -2 * step):
                flat[i] += shift
                sides.append(loss(transformer, batch).item())
            flat[i] += step
            slopes.append((sides[0] - sides[1]) / (2 * step))
    return torch.tensor(slopes, dtype=torch.float64)
