"""Random chains in batches: the laws of ``icrl_envs.boyan_chain`` and ``loop_chain``, drawn by array operations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from icrl_agents.pretraining.config import PretrainConfig
from icrl_envs import FiniteProcess

ABSENT_EDGES = 0.5


@dataclass(frozen=True, eq=False)
class Chains:
    """N finite Markov reward processes with S states each.

    Args:
        transition_matrix: P, ``(N, S, S)``.
        rewards: r, ``(N, S)``.
        features: Φ, ``(N, S, d)``.
        start: Distribution of the first state, ``(N, S)``.
        gamma: γ in [0, 1).
    """

    transition_matrix: np.ndarray
    rewards: np.ndarray
    features: np.ndarray
    start: np.ndarray
    gamma: float

    def values(self) -> np.ndarray:
        """Exact values v = (I − γP)⁻¹ r, ``(N, S)``."""
        identity = np.eye(self.rewards.shape[-1])
        return np.linalg.solve(identity - self.gamma * self.transition_matrix, self.rewards[..., None])[..., 0]

    def stationary_distributions(self) -> np.ndarray:
        """Stationary distributions μᵀP = μᵀ, ``(N, S)``."""
        S = self.rewards.shape[-1]
        equations = np.eye(S) - self.transition_matrix.mT
        equations[:, -1] = 1.0
        ends = np.zeros((len(equations), S, 1))
        ends[:, -1] = 1.0
        weights = np.linalg.solve(equations, ends)[..., 0].clip(min=0.0)
        return weights / weights.sum(-1, keepdims=True)

    def repeated(self, count: int) -> Chains:
        """Each chain ``count`` times in a row."""
        arrays = (self.transition_matrix, self.rewards, self.features, self.start)
        return Chains(*(np.repeat(array, count, axis=0) for array in arrays), gamma=self.gamma)

    def process(self, index: int) -> FiniteProcess:
        """One of the chains as a process."""
        P, r, phi, start = self.transition_matrix, self.rewards, self.features, self.start
        return FiniteProcess(P[index], r[index], phi[index], self.gamma, start[index])


def draw_chains(config: PretrainConfig, count: int, rng: np.random.Generator) -> Chains:
    """Returns ``count`` fresh chains with fresh features and rewards.

    Args:
        config: Says which kind of chain and features; not CartPole.
        count: N ≥ 1.
        rng: Source of the draws.
    """
    S = config.num_states
    start = rng.dirichlet(np.ones(S), count)
    P = _boyan(start, rng) if config.chain == "boyan" else _loop(count, S, rng)
    phi = _features(config, count, rng)
    if config.representable:
        v = (phi @ rng.uniform(-1.0, 1.0, (count, config.dim, 1)))[..., 0]
        r = v - config.gamma * (P @ v[..., None])[..., 0]
    else:
        r = rng.uniform(-1.0, 1.0, (count, S))
    return Chains(P, r, phi, start, config.gamma)


def _boyan(start: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    count, S = start.shape
    p = rng.random((count, S - 2))
    P = np.zeros((count, S, S))
    i = np.arange(S - 2)
    P[:, i, i + 1], P[:, i, i + 2] = p, 1.0 - p
    P[:, S - 2, S - 1] = 1.0
    P[:, S - 1] = start
    return P


def _loop(count: int, S: int, rng: np.random.Generator) -> np.ndarray:
    edges = np.broadcast_to(np.eye(S, k=1, dtype=bool), (count, S, S)).copy()
    edges[:, -1, 0] = edges[:, 0, 0] = True
    free = np.flatnonzero(~edges[0])
    kept = rng.permuted(np.tile(free, (count, 1)), axis=1)[:, round(ABSENT_EDGES * len(free)) :]
    np.put_along_axis(edges.reshape(count, -1), kept, True, axis=1)
    weights = np.where(edges, 1.0 - rng.random((count, S, S)), 0.0)
    return weights / weights.sum(-1, keepdims=True)


def _features(config: PretrainConfig, count: int, rng: np.random.Generator) -> np.ndarray:
    S, d = config.num_states, config.dim
    if config.features == "random":
        return rng.uniform(-1.0, 1.0, (count, S, d))
    symbols = rng.permuted(np.tile(np.arange(d), (count, 1)), axis=1)[:, :S]
    return np.eye(d)[symbols]
