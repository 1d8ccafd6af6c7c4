"""Batches of contexts with what the losses ask for; batch k is a function of the configuration and of k alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from icrl_agents.compressed import CompressedContexts, sample_paths
from icrl_agents.pretraining.cartpole import cartpole_batch
from icrl_agents.pretraining.config import PretrainConfig
from icrl_agents.pretraining.tasks import draw_chains

TRAINING, EVALUATION = 0, 1
"""Streams of the seed: contexts of a stream are independent of those of the other."""
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Batch:
    """B contexts and how their trajectories go on.

    Args:
        contexts: The contexts, over M points.
        future: Points S_n, S_{n+1}, …, S_{n+h} after each context, ``(B, h + 1)``.
        future_discounts: γ of the transitions from the first h of them, ``(B, h)``.
        transition_matrix: P of each chain, ``(B, M, M)``; None where it is not known.
        stationary: μ of each chain, ``(B, M)``.
        values: Exact values v, ``(B, M)``.
    """

    contexts: CompressedContexts
    future: Tensor
    future_discounts: Tensor
    transition_matrix: Tensor | None = None
    stationary: Tensor | None = None
    values: Tensor | None = None


def batches(config: PretrainConfig, first_step: int = 0) -> Iterator[Batch]:
    """Yields the training batches of the steps ``first_step``, ``first_step + 1`` and so on.

    Steps are drawn a few at once, each such chunk from its own random stream, so any step can be returned to.
    """
    rows = config.tasks * config.contexts
    draws = max(1, _ROWS_AT_ONCE // (rows * config.updates)) if config.chain != "cartpole" else 1
    size = draws * config.updates
    for chunk in range(first_step // size, config.steps // size + 1):
        drawn = _draw(config, config.tasks * draws, config.updates * config.contexts, (TRAINING, chunk))
        for i in range(max(first_step - chunk * size, 0), size):
            yield _part(drawn, config, i // config.updates, i % config.updates)


def evaluation_batch(config: PretrainConfig, tasks: int | None = None) -> Batch:
    """Returns held-out tasks, one context each; ``tasks`` of them, by default ``config.evaluation_tasks``."""
    count = config.evaluation_tasks if tasks is None else tasks
    return _draw(config, count, 1, (EVALUATION, 0))


def _draw(config: PretrainConfig, tasks: int, contexts: int, stream: tuple[int, int]) -> Batch:
    """``tasks · contexts`` contexts, those of one task in a row."""
    rng = np.random.default_rng(np.random.SeedSequence(config.seed, spawn_key=stream))
    n, h = config.context_length, config.horizon if config.loss == "mc" else 1
    if config.chain == "cartpole":
        points, rewards, discounts = cartpole_batch(tasks, contexts, n + h, config.gamma, rng)
        path = np.broadcast_to(np.arange(n + h + 1), (len(points), n + h + 1))
        return _batch(config, points, rewards, path, discounts)
    chains = draw_chains(config, tasks, rng)
    known = chains.transition_matrix, chains.stationary_distributions(), chains.values()
    start = np.repeat(chains.start.cumsum(-1), contexts, axis=0)
    cumulative = np.repeat(chains.transition_matrix.cumsum(-1), contexts, axis=0)
    start[:, -1] = cumulative[..., -1] = 1.0
    path = sample_paths(cumulative, start, n + h, rng)
    discounts = np.full((len(path), n + h), config.gamma)
    points, rewards = (np.repeat(array, contexts, axis=0) for array in (chains.features, chains.rewards))
    return _batch(config, points, rewards, path, discounts, *(np.repeat(array, contexts, axis=0) for array in known))


def _batch(
    config: PretrainConfig,
    points: np.ndarray,
    rewards: np.ndarray,
    path: np.ndarray,
    gammas: np.ndarray,
    *known: np.ndarray,
) -> Batch:
    n, dtype = config.context_length, getattr(torch, config.precision)
    p, r, g, *exact = (torch.from_numpy(array).to(dtype) for array in (points, rewards, gammas, *known))
    s = torch.from_numpy(np.ascontiguousarray(path))
    return Batch(CompressedContexts(p, r, s[:, : n + 1], g[:, :n]), s[:, n:], g[:, n:], *exact)


def _part(drawn: Batch, config: PretrainConfig, draw: int, update: int) -> Batch:
    """Rows of one step: of all tasks of a draw, the contexts of an update."""

    def cut(array: Tensor) -> Tensor:
        rows = array.view(-1, config.tasks, config.updates, config.contexts, *array.shape[1:])
        return rows[draw, :, update].reshape(-1, *array.shape[1:])

    c = drawn.contexts
    contexts = CompressedContexts(cut(c.points), cut(c.rewards), cut(c.path), cut(c.discounts))
    if drawn.transition_matrix is None or drawn.stationary is None or drawn.values is None:
        return Batch(contexts, cut(drawn.future), cut(drawn.future_discounts))
    known = cut(drawn.transition_matrix), cut(drawn.stationary), cut(drawn.values)
    return Batch(contexts, cut(drawn.future), cut(drawn.future_discounts), *known)
