"""Simple policies of Gymnasium's classic-control environments, each a function ``(observation, rng) -> action``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Policy = Callable[[np.ndarray, np.random.Generator], Any]
RANDOM_SHARE = 0.2
"""Share of the steps in which a simple policy acts at random."""
TORQUE = 2.0
"""Largest torque of Pendulum-v1, in N m."""


def lean(observation: np.ndarray) -> int:
    """CartPole: pushes to the side the pole leans to, which holds it up for some fifty steps."""
    return int(observation[2] > 0)


def energy(observation: np.ndarray) -> np.ndarray:
    """Pendulum: drives E = ω²/6 + 5 cos θ towards 5, the energy of standing upright (unit mass and length, g = 10)."""
    cosine, _, velocity = observation
    missing = 5.0 - (velocity**2 / 6.0 + 5.0 * cosine)
    return np.array([TORQUE * math.copysign(1.0, velocity * missing)])


def swing(observation: np.ndarray) -> int:
    """Acrobot: torque along the second joint's velocity, which puts energy in."""
    return 1 + int(np.sign(observation[5]))


def rock(observation: np.ndarray) -> int:
    """MountainCar: throttle along the velocity, which puts energy in."""
    return 1 + int(np.sign(observation[1]))


def discrete(count: int) -> Policy:
    """Uniform actions 0 … ``count`` − 1."""
    return lambda observation, rng: int(rng.integers(count))


def torques(observation: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Pendulum: uniform torques."""
    return rng.uniform(-TORQUE, TORQUE, 1)


def mixed(act: Callable[[np.ndarray], Any], random: Policy) -> Policy:
    """``act``, with a random action in a fifth of the steps."""

    def policy(observation: np.ndarray, rng: np.random.Generator) -> Any:  # noqa: ANN401
        return random(observation, rng) if rng.random() < RANDOM_SHARE else act(observation)

    return policy
