"""The floor of the value error that the length of a context sets, over many chains."""

from __future__ import annotations

from typing import NamedTuple

import gymnasium as gym
import numpy as np

import icrl_envs  # noqa: F401 - registers the environments
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.studies.verify.config import VerifyConfig
from icrl_agents.studies.verify.decay import STATES
from icrl_agents.studies.verify.samples import GAMMA
from icrl_envs import FiniteProcess

LENGTHS = tuple(round(10 ** float(e)) for e in np.arange(2.0, 4.6, 0.25))
"""n from 100 to 31,623: two and a half decades."""
DEPTHS = (5, 10, 20, 40, 80)


class Trajectories(NamedTuple):
    """One trajectory of each of N chains.

    Args:
        processes: The chains.
        states: The states' indices, ``(n + 1, N)``.
    """

    processes: list[FiniteProcess]
    states: np.ndarray

    def counts(self, n: int) -> np.ndarray:
        """How often s′ followed s in the first n steps, ``(N, S, S)``."""
        N = self.states.shape[1]
        pairs = (np.arange(N) * STATES + self.states[:n]) * STATES + self.states[1 : n + 1]
        return np.bincount(pairs.ravel(), minlength=N * STATES**2).reshape(N, STATES, STATES)

    def context(self, i: int, n: int) -> Context:
        """The first n transitions of chain i."""
        process, index = self.processes[i], self.states[: n + 1, i]
        return Context.from_episodes([Episode(process.features[index], process.rewards[index[:-1]])], GAMMA)


class Floor(NamedTuple):
    """Errors against context length; see ``measured_floor``.

    Args:
        lengths: n, ``(K,)``.
        limit: Of the limit L → ∞, ``(K, N)``.
        by_depth: At each of ``DEPTHS``, ``(K, len(DEPTHS), N)``.
        unvisited: States that no transition leaves, over all chains, ``(K,)``.
    """

    lengths: np.ndarray
    limit: np.ndarray
    by_depth: np.ndarray
    unvisited: np.ndarray

    def slope(self) -> tuple[float, float]:
        """D log error / d log n, least squares: the mean over chains and its standard error."""
        x = np.log(self.lengths) - np.log(self.lengths).mean()
        slopes = x @ np.log(self.limit) / (x @ x)
        return float(slopes.mean()), float(slopes.std(ddof=1) / np.sqrt(len(slopes)))


def simulate(config: VerifyConfig, num_steps: int) -> Trajectories:
    """One trajectory of ``num_steps`` from each chain."""
    env = gym.make_vec(
        "icrl/BoyanChain-v0",
        num_envs=config.chains,
        vectorization_mode="vector_entry_point",
        num_states=STATES,
        gamma=GAMMA,
        task_seed=config.first_seed,
    )
    _, info = env.reset(seed=config.first_seed)
    states, still = [info["state"]], np.zeros(config.chains, dtype=np.int64)
    for _ in range(num_steps):
        states.append(env.step(still)[-1]["state"])
    return Trajectories(env.unwrapped.processes, np.stack(states))  # type: ignore[attr-defined]


def measured_floor(trajectories: Trajectories) -> Floor:
    """Errors of the softmax transformer with one-hot features and the indicator score, in the norm √Σ_s μ(s) e(s)².

    n transitions over S states are S weighted ones, exactly, so that the counts of transitions are all it takes. A
    state that no transition leaves keeps v = 0. Such states are rare where n is small, as μ(s) ≲ 1/n: in the norm
    they weigh no more than the noise of the others, O(n^{−1/2}); in the ∞-norm they would make the floor steeper.
    """
    exact, mu, rewards = (
        np.stack([np.asarray(part(p)) for p in trajectories.processes])
        for part in (lambda p: p.values(), lambda p: p.stationary_distribution(), lambda p: p.rewards)
    )

    def error(v: np.ndarray) -> np.ndarray:
        return np.sqrt((mu * np.square(v - exact)).sum(-1))

    limits, depths, unvisited = [], [], []
    for n in LENGTHS:
        counts = trajectories.counts(n)
        visits = counts.sum(-1)
        P, r = counts / np.maximum(visits, 1)[..., None], rewards * (visits > 0)
        limits.append(error(np.linalg.solve(np.eye(STATES) - GAMMA * P, r[..., None])[..., 0]))
        v, found = np.zeros_like(r), []
        for depth in range(1, DEPTHS[-1] + 1):
            v = r + GAMMA * (P @ v[..., None])[..., 0]
            found += [error(v)] if depth in DEPTHS else []
        depths.append(np.stack(found))
        unvisited.append((visits == 0).sum())
    return Floor(np.array(LENGTHS), np.stack(limits), np.stack(depths), np.array(unvisited))
