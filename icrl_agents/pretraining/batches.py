"""Batches of contexts with what the losses ask for; batch k is a function of the configuration and of k alone."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icrl_agents.compressed import CompressedContexts, SlidingWindows
from icrl_agents.pretraining.cartpole import ROLLOUTS, cartpole_paths, cartpole_returns
from icrl_agents.pretraining.config import PretrainConfig
from icrl_agents.pretraining.tasks import draw_chains
from icrl_envs.cartpole import CartPoleProcess, random_cartpoles
from icrl_envs.cartpole_batch import CartPoleBatch

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
        values: Exact values v, ``(B, M)``; under average reward the differential ones h, with μᵀh = 0.
        returns: Monte-Carlo value of S_n, ``(B,)``, on held-out tasks whose exact values are not known.
    """

    contexts: CompressedContexts
    future: Tensor
    future_discounts: Tensor
    transition_matrix: Tensor | None = None
    stationary: Tensor | None = None
    values: Tensor | None = None
    returns: Tensor | None = None


def batches(config: PretrainConfig, first_step: int = 0) -> Iterator[Any]:
    """Yields a ``Batch``, or ``SlidingWindows`` if asked for, of each step from ``first_step`` on.

    Steps are drawn a few at once, each such chunk from its own random stream, so any step can be returned to.
    """
    draws = max(1, _ROWS_AT_ONCE // (config.tasks * config.contexts * config.updates))
    size = draws * config.updates
    for chunk in range(first_step // size, config.steps // size + 1):
        rng = _stream(config, TRAINING, chunk)
        drawn = _draw(config, config.tasks * draws, config.updates * config.contexts, rng)
        ordered = _each_tensor(drawn, lambda rows: _by_step(rows, config))
        if config.windows is not None:
            ordered = _windows(ordered, config.context_length)
        steps = cut(ordered, config.tasks * config.contexts)
        yield from itertools.islice(steps, max(first_step - chunk * size, 0), None)


def evaluation_batch(config: PretrainConfig, tasks: int | None = None) -> Batch:
    """Returns held-out tasks, one context each; ``tasks`` of them, by default ``config.evaluation_tasks``."""
    count, rng = config.evaluation_tasks if tasks is None else tasks, _stream(config, EVALUATION, 0)
    if config.chain != "cartpole":
        return _draw_chains(config, count, 1, rng)
    processes = random_cartpoles(count, rng, gamma=config.gamma)
    batch = _draw_cartpoles(config, processes, rng)
    rollouts = CartPoleBatch([process for process in processes for _ in range(ROLLOUTS)])
    states = batch.contexts.points[:, config.context_length]
    returns = cartpole_returns(rollouts, states.double().numpy(force=True), config.gamma, rng)
    return dataclasses.replace(batch, returns=torch.from_numpy(returns).to(states))


def _draw(config: PretrainConfig, tasks: int, contexts: int, rng: np.random.Generator) -> Batch:
    """``tasks · contexts`` contexts, those of one task in a row."""
    if config.chain != "cartpole":
        return _draw_chains(config, tasks, contexts, rng)
    processes = random_cartpoles(tasks, rng, gamma=config.gamma)
    return _draw_cartpoles(config, [process for process in processes for _ in range(contexts)], rng)


def _draw_chains(config: PretrainConfig, tasks: int, contexts: int, rng: np.random.Generator) -> Batch:
    chains, length = draw_chains(config, tasks, rng), config.context_length + _horizon(config)
    differential = config.algorithm == "average_reward"
    exact = chains.differential_values() if differential else chains.values()
    known = chains.transition_matrix, chains.stationary_distributions(), exact
    rows = chains.repeat(contexts)
    path = rows.sample_paths(length, rng)
    discounts = np.full((len(path), length), config.gamma)
    return _batch(
        config, rows.features, rows.rewards, path, discounts, *(np.repeat(a, contexts, axis=0) for a in known)
    )


def _draw_cartpoles(config: PretrainConfig, processes: list[CartPoleProcess], rng: np.random.Generator) -> Batch:
    length = config.context_length + _horizon(config)
    points, rewards, discounts = cartpole_paths(CartPoleBatch(processes), length, config.gamma, rng)
    return _batch(config, points, rewards, np.tile(np.arange(length + 1), (len(points), 1)), discounts)


def _horizon(config: PretrainConfig) -> int:
    """Steps after a context that its losses ask for."""
    if config.windows is not None:
        return config.windows
    return config.horizon if config.loss == "mc" else 1


def _batch(config: PretrainConfig, *arrays: np.ndarray) -> Batch:
    """From points, rewards, path, discounts and what is known of the chains."""
    n, dtype = config.context_length, getattr(torch, config.precision)
    owned = (np.require(array, requirements=["C", "W"]) for array in arrays)  # the chains' own are read-only
    points, rewards, path, discounts, *known = map(torch.from_numpy, owned)
    p, r, g, *exact = (tensor.to(config.device, dtype) for tensor in (points, rewards, discounts, *known))
    path = path.to(config.device)
    return Batch(CompressedContexts(p, r, path[:, : n + 1], g[:, :n]), path[:, n:], g[:, n:], *exact)


def _windows(drawn: Batch, length: int) -> SlidingWindows:
    contexts = drawn.contexts
    path = torch.cat([contexts.path, drawn.future[:, 1:]], dim=-1)
    discounts = torch.cat([contexts.discounts, drawn.future_discounts], dim=-1)
    return SlidingWindows.along(contexts.points, contexts.rewards, path, discounts, length)


def _stream(config: PretrainConfig, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(config.seed, spawn_key=key))


def _by_step(rows: Tensor, config: PretrainConfig) -> Tensor:
    """Rows of a chunk, those of one step together: of all tasks of a draw, the contexts of an update."""
    shaped = rows.reshape(-1, config.tasks, config.updates, config.contexts, *rows.shape[1:])
    return shaped.transpose(1, 2).reshape(rows.shape)


def _each_tensor(record: Any, change: Callable[[Tensor], Tensor]) -> Any:  # noqa: ANN401 - a dataclass of tensors
    """The record with every tensor in it changed; those inside of its records too."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Tensor):
            changes[field.name] = change(value)
        elif dataclasses.is_dataclass(value):
            changes[field.name] = _each_tensor(value, change)
    return dataclasses.replace(record, **changes)


def cut(record: Any, rows: int) -> Iterator[Any]:  # noqa: ANN401 - a dataclass of tensors
    """The record in pieces of so many rows."""
    columns: list[Iterable[Any]] = []
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Tensor):
            columns.append(value.split(rows))
        else:
            columns.append(cut(value, rows) if dataclasses.is_dataclass(value) else itertools.repeat(value))
    return map(type(record), *columns)
