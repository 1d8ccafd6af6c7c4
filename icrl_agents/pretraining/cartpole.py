"""Contexts of CartPole with random physics: every time step is a point of its own."""

from __future__ import annotations

import numpy as np

from icrl_envs.cartpole_batch import CartPoleBatch

ROLLOUTS = 64
"""Returns from each state over which Monte-Carlo values are averaged."""
_NEGLIGIBLE = 1e-4


def cartpole_paths(
    batch: CartPoleBatch, length: int, gamma: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns a trajectory of ``length`` steps of each process; a fallen pole starts anew.

    Args:
        batch: B processes.
        length: Steps T of each.
        gamma: γ of the transitions that do not terminate.
        rng: Source of the steps.

    Returns:
        Points ``(B, T + 1, 4)``, rewards ``(B, T + 1)`` (0 for the last point, from which no step is seen) and
        discounts ``(B, T)``, 0 where the pole fell.
    """
    B = len(batch.processes)
    points, rewards = np.empty((B, length + 1, 4)), np.zeros((B, length + 1))
    discounts = np.full((B, length), gamma)
    points[:, 0] = batch.sample_start(rng)
    for t in range(length):
        states, rewards[:, t], fallen = batch.sample_step(points[:, t], rng)
        points[:, t + 1] = np.where(fallen[:, None], batch.sample_start(rng), states)
        discounts[fallen, t] = 0.0
    return points, rewards, discounts


def cartpole_returns(batch: CartPoleBatch, states: np.ndarray, gamma: float, rng: np.random.Generator) -> np.ndarray:
    """Returns the mean discounted return of fresh rollouts from each state, ``(B,)``: its value, but for noise.

    Args:
        batch: One process per rollout, ``B · ROLLOUTS``, those of a state in a row.
        states: ``(B, 4)``.
        gamma: γ in [0, 1).
        rng: Source of the steps.
    """
    states = np.repeat(states, ROLLOUTS, axis=0)
    returns, weights = np.zeros(len(states)), np.ones(len(states))
    while weights.max() > _NEGLIGIBLE:
        states, rewards, fallen = batch.sample_step(states, rng)
        returns += weights * rewards
        weights = np.where(fallen, 0.0, gamma * weights)
    return returns.reshape(-1, ROLLOUTS).mean(axis=1)
