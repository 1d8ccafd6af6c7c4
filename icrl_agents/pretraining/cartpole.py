"""Contexts of CartPole with random physics: every time step is a point of its own."""

from __future__ import annotations

import numpy as np

from icrl_envs.cartpole import random_cartpole


def cartpole_batch(
    tasks: int, contexts: int, length: int, gamma: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns trajectories of ``length`` steps, those of one task in a row; a fallen pole starts anew.

    Args:
        tasks: Number of tasks.
        contexts: Trajectories of each.
        length: Steps T of each.
        gamma: γ of the transitions that do not terminate.
        rng: Source of the tasks and of the steps.

    Returns:
        Points ``(tasks · contexts, T + 1, 4)``, rewards ``(·, T + 1)`` (0 for the last point, from which no step is
        seen) and discounts ``(·, T)``, 0 where the pole fell.
    """
    rows = tasks * contexts
    points, rewards = np.empty((rows, length + 1, 4)), np.zeros((rows, length + 1))
    discounts = np.full((rows, length), gamma)
    processes = [random_cartpole(gamma=gamma, task_seed=int(seed)) for seed in rng.integers(2**31, size=tasks)]
    for row in range(rows):
        process = processes[row // contexts]
        state = process.sample_start(rng)
        for t in range(length):
            points[row, t] = state
            state, rewards[row, t], fallen = process.sample_step(state, rng)
            if fallen:
                state, discounts[row, t] = process.sample_start(rng), 0.0
        points[row, length] = state
    return points, rewards, discounts
