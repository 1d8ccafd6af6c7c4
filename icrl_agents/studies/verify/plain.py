"""The algorithms once more, in NumPy on plain arrays: independent of the layers and sweeps that they check.

Every function takes transitions and queries and returns v after 0 … L sweeps on the states of the transitions, then on
the queries: ``(L + 1, n + m)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from icrl_agents.episode import Episode

Score = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Transitions(NamedTuple):
    """Transitions one after the other.

    Args:
        x: States, ``(n, d)``.
        rewards: R, ``(n,)``.
        discounts: γ_k, ``(n,)``, 0 where the transition terminates.
        x_next: Next states, ``(n, d)``.
        linked: Whether the next transition continues the trajectory, ``(n,)``.
    """

    x: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    x_next: np.ndarray
    linked: np.ndarray

    @classmethod
    def of(cls, episodes: Sequence[Episode], gamma: float) -> Transitions:
        """The transitions of episodes, in order."""
        ends = [np.arange(len(e)) == len(e) - 1 for e in episodes]
        return cls(
            np.concatenate([e.observations[:-1] for e in episodes]),
            np.concatenate([e.rewards for e in episodes]),
            np.concatenate([np.where(end & e.terminated, 0.0, gamma) for e, end in zip(episodes, ends, strict=True)]),
            np.concatenate([e.observations[1:] for e in episodes]),
            ~np.concatenate(ends),
        )


def squared_distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """‖x − y‖² of each pair, ``(m, n)``."""
    return np.square(x[:, None, :] - y).sum(-1)


def softmax_td(t: Transitions, score: Score, queries: np.ndarray, depth: int, step_size: float = 1.0) -> np.ndarray:
    """Weighted softmax TD: v(x) ← v(x) + α Σ_k softmax_k g(x, x_k) δ_k (arXiv 2605.07333)."""

    def weights(points: np.ndarray) -> np.ndarray:
        g = score(points, t.x)
        kappa = np.exp(g - np.maximum(g.max(-1, keepdims=True), -1e300))
        return step_size * kappa / np.maximum(kappa.sum(-1, keepdims=True), 1e-300)

    return _value_sweeps(t, weights, queries, depth)


def kernel_td(t: Transitions, kernel: Score, queries: np.ndarray, depth: int) -> np.ndarray:
    """Kernel TD: v(x) ← v(x) + α Σ_k κ(x, x_k) δ_k with α = 1/max_j Σ_i |κ(x_i, x_j)| (arXiv 2605.09727)."""
    step_size = 1.0 / np.abs(kernel(t.x, t.x)).sum(0).max()
    return _value_sweeps(t, lambda points: step_size * kernel(points, t.x), queries, depth)


def linear_td(t: Transitions, queries: np.ndarray, depth: int, lambda_: float = 0.0) -> np.ndarray:
    """TD(λ): w ← w + (α/n) Σ_k δ_k e_k, e_k = x_k + γ_{k−1} λ e_{k−1} in a trajectory (arXiv 2405.13861)."""
    traces = t.x.copy()
    for k in range(1, len(traces)):
        traces[k] += t.linked[k - 1] * lambda_ * t.discounts[k - 1] * traces[k - 1]
    return _weight_sweeps(t, t.x, traces, queries, depth)


def residual_gradient(t: Transitions, queries: np.ndarray, depth: int) -> np.ndarray:
    """Residual gradient: w ← w + (α/n) Σ_k δ_k (x_k − γ_k x′_k) (arXiv 2405.13861)."""
    differences = t.x - t.discounts[:, None] * t.x_next
    return _weight_sweeps(t, differences, differences, queries, depth)


def average_reward_td(t: Transitions, queries: np.ndarray, depth: int) -> np.ndarray:
    """Differential TD: δ_k = R_k − r̄ + wᵀ(x′_k − x_k), r̄ ← r̄ + mean δ (arXiv 2405.13861)."""
    undiscounted = t._replace(discounts=np.ones_like(t.discounts))
    return _weight_sweeps(undiscounted, t.x, t.x, queries, depth, reward_step_size=1.0)


def certainty_equivalent(t: Transitions, states: np.ndarray) -> np.ndarray:
    """The value of the empirical process on ``states (S, d)``, each of them visited: v = (I − γP̂)⁻¹ r̂, ``(S,)``."""
    own, following = (squared_distance(x, states) == 0 for x in (t.x, t.x_next))
    A = own.T.astype(float) @ (own - t.discounts[:, None] * following)
    return np.linalg.solve(A, own.T @ t.rewards)


def _value_sweeps(
    t: Transitions, weights: Callable[[np.ndarray], np.ndarray], queries: np.ndarray, depth: int
) -> np.ndarray:
    n = len(t.x)
    W = weights(np.concatenate([t.x, queries, t.x_next]))
    v = np.zeros(len(W))
    history = [v]
    for _ in range(depth):
        v = v + W @ (t.rewards + t.discounts * v[-n:] - v[:n])
        history.append(v)
    return np.stack(history)[:, : n + len(queries)]


def _weight_sweeps(
    t: Transitions,
    readers: np.ndarray,
    directions: np.ndarray,
    queries: np.ndarray,
    depth: int,
    reward_step_size: float = 0.0,
) -> np.ndarray:
    step_size = 1.0 / np.abs(readers @ directions.T).sum(0).max()
    w, average = np.zeros(t.x.shape[1]), 0.0
    history = [w]
    for _ in range(depth):
        errors = t.rewards - average + (t.discounts[:, None] * t.x_next - t.x) @ w
        w, average = w + step_size * errors @ directions, average + reward_step_size * errors.mean()
        history.append(w)
    return np.stack(history) @ np.concatenate([t.x, queries]).T
