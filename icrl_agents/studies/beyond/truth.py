"""True values of states of a process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from icrl_agents.ground_truth import ground_truth
from icrl_agents.studies.beyond.config import BeyondConfig
from icrl_envs import FiniteProcess

TRUTH_STREAM = 2


@dataclass(frozen=True)
class Truth:
    """True values of m states.

    Args:
        observations: What is seen of them, ``(m, d)``.
        values: v, ``(m,)``.
        weights: Of the states in errors, ``(m,)``, summing to 1.
        squared_error: Mean squared standard error of the values; 0 where they are exact.
    """

    observations: np.ndarray
    values: np.ndarray
    weights: np.ndarray
    squared_error: float


def truth_of(config: BeyondConfig, env: gym.Env[Any, Any], snapshots: Sequence[Any], seed: int) -> Truth:
    """Returns exact values of all states of a chain, weighted by its stationary law, or else measured ones.

    Args:
        config: The study's configuration.
        env: The process.
        snapshots: Of its held-out states, from which those to be measured are drawn.
        seed: Of this draw and of the continuations.
    """
    process = getattr(env, "process", None)
    if isinstance(process, FiniteProcess):
        return Truth(process.features, process.values(), process.stationary_distribution(), 0.0)
    rng = np.random.default_rng([seed, TRUTH_STREAM])
    chosen = np.sort(rng.choice(len(snapshots), config.states, replace=False))
    found = ground_truth(
        env,
        [snapshots[i] for i in chosen],
        gamma=config.gamma,
        continuations=config.continuations,
        seed=int(rng.integers(2**31)),
        missing=config.missing,
    )
    even = np.full(config.states, 1.0 / config.states)
    return Truth(found.observations, found.values, even, float(np.square(found.standard_errors).mean()))
