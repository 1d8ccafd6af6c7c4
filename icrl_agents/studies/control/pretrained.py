"""The pretrained critic: a transformer that has learned to evaluate on CartPoles with random physics."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from icrl_agents.attention import SoftmaxAttention
from icrl_agents.compressed import CompressedContexts, state_values
from icrl_agents.kernels import Laplace
from icrl_agents.layers import TemporalShiftLayer
from icrl_agents.machine import one_thread
from icrl_agents.pretraining.cartpole import cartpole_paths
from icrl_agents.prompt import MEMORY
from icrl_agents.transformer import InContextTransformer
from icrl_envs.cartpole import random_cartpoles
from icrl_envs.cartpole_batch import CartPoleBatch

DEPTH = 100
"""Layers L, one of them looped."""
CONTEXT, QUERIES, HORIZON = 128, 64, 256
"""Transitions of a context, states after it whose values are asked for, and rewards of their returns."""
TASKS, STEPS, GAMMA = 8, 200, 0.99
"""CartPoles of a step, each drawn anew, steps of Adam, and the discount."""
LEARNING_RATE, INITIAL_SCALE, SHORTEST = 0.02, 0.02, 0.05
"""Of Adam at its first step, deviation of the first value weights, and the least ℓ."""


def pretrained_critic(folder: Path, steps: int = STEPS) -> InContextTransformer:
    """Returns the transformer of ``folder``; where there is none, it is trained for ``steps`` and kept there.

    Raises:
        ValueError: If the one that is there is damaged.
        OSError: If the folder cannot be read or written.
    """
    folder = folder.absolute()
    with contextlib.suppress(FileNotFoundError):  # whoever was saving it may have been killed
        return InContextTransformer.from_pretrained(folder)
    pretrain_critic(steps=steps).save_pretrained(folder)
    return InContextTransformer.from_pretrained(folder)


def pretrain_critic(seed: int = 0, steps: int = STEPS) -> InContextTransformer:
    """Trains a transformer whose weights do not know the dimension of the states, so that it serves any environment.

    It is one looped softmax layer with a Laplace kernel, of which ℓ, from 1 on, and the three value weights on
    (R, u, v), from small random numbers on, are learned. The loss is mean (v̂(x) − G)², G the Monte-Carlo return of a
    state x that follows on the context. States are standardised by the context, as ``Critic`` does it. Every step has
    fresh CartPoles: physics and ε-greedy linear policies of ``icrl_envs.random_cartpoles``; none is that of Gymnasium.

    Args:
        seed: Of the first weights and the tasks.
        steps: Steps of Adam, whose learning rate falls linearly to 0.
    """
    rng = np.random.default_rng(seed)
    layer = TemporalShiftLayer(
        SoftmaxAttention(Laplace(1.0)), torch.from_numpy(INITIAL_SCALE * rng.normal(size=MEMORY))
    )
    transformer = InContextTransformer([layer], DEPTH).requires_grad_(True)
    length_scale = cast(Tensor, cast(Laplace, layer.attention.kernel).length_scale)
    optimiser = torch.optim.Adam(transformer.parameters(), lr=LEARNING_RATE)
    with one_thread():
        for step in range(steps):
            optimiser.param_groups[0]["lr"] = LEARNING_RATE * (1.0 - step / steps)
            optimiser.zero_grad()
            _loss(transformer, *random_contexts(rng)).backward()
            torch.nn.utils.clip_grad_norm_(transformer.parameters(), 1.0)
            optimiser.step()
            with torch.no_grad():
                length_scale.clamp_(min=SHORTEST)
    return transformer.requires_grad_(False)


def random_contexts(rng: np.random.Generator) -> tuple[CompressedContexts, Tensor]:
    """Contexts of fresh CartPoles, every time step a point of its own, and the returns of the states that follow.

    Args:
        rng: Source of tasks and steps.

    Returns:
        Contexts of ``CONTEXT`` transitions over ``CONTEXT + QUERIES`` points, and the returns of the last ``QUERIES``
        points, ``(TASKS, QUERIES)``.
    """
    batch, length = CartPoleBatch(random_cartpoles(TASKS, rng, gamma=GAMMA)), CONTEXT + QUERIES
    points, rewards, discounts = cartpole_paths(batch, length + HORIZON, GAMMA, rng)
    returns = np.zeros_like(rewards)
    for t in reversed(range(length + HORIZON)):
        returns[:, t] = rewards[:, t] + discounts[:, t] * returns[:, t + 1]
    seen = points[:, :CONTEXT]
    points = (points[:, :length] - seen.mean(1, keepdims=True)) / seen.std(1, keepdims=True)
    p, r, g, G = (torch.from_numpy(a).float() for a in (points, rewards[:, :length], discounts, returns))
    path = torch.arange(CONTEXT + 1).expand(TASKS, -1)
    return CompressedContexts(p, r, path, g[:, :CONTEXT]), G[:, CONTEXT:length]


def _loss(transformer: InContextTransformer, contexts: CompressedContexts, returns: Tensor) -> Tensor:
    """Mean (v̂ − G)², in units of (1 − γ)⁻²."""
    errors = state_values(transformer, contexts)[:, CONTEXT:] - returns
    return ((1.0 - GAMMA) * errors).square().mean()
