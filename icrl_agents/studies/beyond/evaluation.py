"""The frozen evaluators, and what they score on a process."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from icrl_agents import constructions, kernels
from icrl_agents.adaptive import AdaptiveTD
from icrl_agents.collection import collect_episodes
from icrl_agents.context import Context
from icrl_agents.diagnostics import centred_msve, msve
from icrl_agents.episode import Episode
from icrl_agents.evaluators import LSTD, KernelLSTD
from icrl_agents.studies.beyond.config import BeyondConfig
from icrl_agents.studies.beyond.processes import Recorded, make
from icrl_agents.studies.beyond.scales import SCALES, scale_of, scaled
from icrl_agents.studies.beyond.truth import Truth, truth_of
from icrl_agents.studies.evaluate.evaluators import fitted
from icrl_agents.studies.evaluate.features import with_constant
from icrl_agents.value_function import Evaluator

SOFTMAX, PRODUCT, ADAPTIVE, KERNEL, LINEAR = "softmax", "product", "adaptive", "kernel", "linear"
LSTD_, KERNEL_LSTD = "LSTD", "kernel LSTD"
EVALUATORS = (SOFTMAX, PRODUCT, ADAPTIVE, KERNEL, LINEAR, LSTD_, KERNEL_LSTD)
WITH_CONSTANT = (LINEAR, LSTD_)
"""Linear evaluators have no intercept, and get a feature that is 1."""
WIDTH, WIDER = 0.1, 0.3
"""Length scales of the softmax transformers, and of kernel TD and kernel LSTD, as in the transfer study."""
DEPTH, PRODUCT_DEPTH = 40, 80
RIDGE = 0.001
FOLDS = 5
"""Of the adaptive evaluator: as many as there are trajectories in a context of the transfer study."""


class Cell(NamedTuple):
    """A process by its name, and a seed."""

    process: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """One evaluator on one scale of one process and seed.

    ``td_loss`` is the mean squared TD error on the held-out transitions, ``td_loss_of_zero`` that of v = 0. ``msve``
    and ``centred_msve`` are against the true values, of which ``power`` is the mean square, ``variance`` the variance,
    and ``truth_error`` the mean squared standard error, 0 where they are exact. An evaluator that diverged, or found
    no solution, has infinite losses.
    """

    process: str
    seed: int
    scale: str
    evaluator: str
    td_loss: float
    msve: float
    centred_msve: float
    td_loss_of_zero: float
    power: float
    variance: float
    truth_error: float


@functools.cache
def frozen(dim: int) -> dict[str, Evaluator]:
    """The evaluators by name, made once: the weights of the kernel transformers do not even depend on d.

    Args:
        dim: d, which the linear transformer has to know.
    """
    laplace, product, wider = kernels.Laplace(WIDTH), kernels.ProductLaplace(WIDTH), kernels.Laplace(WIDER)
    return {
        SOFTMAX: constructions.weighted_softmax_td(laplace, DEPTH, form="temporal_shift"),
        PRODUCT: constructions.weighted_softmax_td(product, PRODUCT_DEPTH, form="temporal_shift"),
        ADAPTIVE: AdaptiveTD(max_folds=FOLDS),
        KERNEL: constructions.kernel_td(wider, DEPTH, form="temporal_shift"),
        LINEAR: constructions.linear_td(dim + 1, DEPTH),
        LSTD_: LSTD(RIDGE),
        KERNEL_LSTD: KernelLSTD(wider, RIDGE),
    }


def evaluate(config: BeyondConfig, cell: Cell) -> Iterator[Row]:
    """Collects the episodes of a cell, measures the true values, and yields its rows."""
    env = Recorded(make(config, cell.process, cell.seed))
    limit = config.episode_steps
    context = collect_episodes(env, num_steps=config.context_steps, seed=2 * cell.seed, max_episode_steps=limit)
    env.snapshots.clear()
    held_out = collect_episodes(env, num_steps=config.held_out_steps, seed=2 * cell.seed + 1, max_episode_steps=limit)
    truth = truth_of(config, env.unwrapped, env.snapshots, cell.seed)
    for name in SCALES:
        scale = scale_of(name, context)
        on_scale = Truth(scaled(scale, truth.observations), truth.values, truth.weights, truth.squared_error)
        yield from _rows(config, cell, name, scale(context), scale(held_out), on_scale)


def _rows(
    config: BeyondConfig, cell: Cell, scale: str, context: list[Episode], held_out: list[Episode], truth: Truth
) -> Iterator[Row]:
    zeros = np.zeros_like(truth.values)
    for name, evaluator in frozen(truth.observations.shape[1]).items():
        loss, error, centred = _losses(config, name, evaluator, context, held_out, truth)
        yield Row(
            process=cell.process,
            seed=cell.seed,
            scale=scale,
            evaluator=name,
            td_loss=loss,
            msve=error,
            centred_msve=centred,
            td_loss_of_zero=float(np.mean(np.square(np.concatenate([episode.rewards for episode in held_out])))),
            power=float(msve(zeros, truth.values, truth.weights)),
            variance=float(centred_msve(zeros, truth.values, truth.weights)),
            truth_error=truth.squared_error,
        )


def _losses(
    config: BeyondConfig,
    name: str,
    evaluator: Evaluator,
    context: list[Episode],
    held_out: list[Episode],
    truth: Truth,
) -> tuple[float, float, float]:
    """Held-out TD loss, MSVE and centred MSVE."""
    queries = truth.observations
    if name in WITH_CONSTANT:
        context, held_out = with_constant(context), with_constant(held_out)
        queries = np.pad(queries, ((0, 0), (0, 1)), constant_values=1.0)
    fitting, test = (Context.from_episodes(each, config.gamma).to(config.device) for each in (context, held_out))
    values = fitted(evaluator, fitting)
    if values is None:
        return math.inf, math.inf, math.inf
    found = values(queries).cpu()
    errors = (of(found, truth.values, truth.weights) for of in (msve, centred_msve))
    loss, error, centred = float(values.td_errors(test).square().mean()), *map(float, errors)
    return loss, error, centred
