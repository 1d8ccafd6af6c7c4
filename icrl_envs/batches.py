"""Processes of one kind in lockstep: all of them move by one array operation."""

from collections.abc import Sequence

import numpy as np

from icrl_envs.process import FiniteProcess
from icrl_envs.rkhs import RKHSProcess, expansion, expected_expansion


class FiniteBatch:
    """N finite processes with equally many states and features.

    Args:
        processes: The N processes.
    """

    def __init__(self, processes: Sequence[FiniteProcess]) -> None:
        """Stack the arrays: row n·S + s belongs to state s of process n."""
        self.processes = processes
        self._offsets = processes[0].num_states * np.arange(len(processes))
        self._transitions = np.concatenate([process.cumulative_transitions for process in processes])
        self._rewards = np.concatenate([process.rewards for process in processes])
        self._features = np.concatenate([process.features for process in processes])
        self._start = np.stack([process.cumulative_start for process in processes])

    def sample_start(self, rng: np.random.Generator) -> np.ndarray:
        """Return one start state of each process, ``(N,)``."""
        return _invert(self._start, rng)

    def sample_step(self, states: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the next states and the rewards, ``(N,)`` each, from ``states (N,)``."""
        rows = self._offsets + states
        return _invert(self._transitions.take(rows, axis=0), rng), self._rewards.take(rows)

    def observe(self, states: np.ndarray) -> np.ndarray:
        """Return the features ``(N, d)`` of ``states (N,)``."""
        return self._features.take(self._offsets + states, axis=0)

    def info(self, states: np.ndarray) -> dict[str, np.ndarray]:
        """Return the states' indices, in the form in which Gymnasium batches infos."""
        return {"state": states.copy(), "_state": np.ones(len(states), dtype=bool)}


class RKHSBatch:
    """N processes that differ only in their centres and coefficients.

    Args:
        processes: The N processes.
    """

    def __init__(self, processes: Sequence[RKHSProcess]) -> None:
        """Stack the centres and coefficients."""
        self.processes = processes
        self._common = processes[0]
        self._centers = np.stack([process.centers for process in processes])
        self._coefficients = np.stack([process.coefficients for process in processes])

    def sample_start(self, rng: np.random.Generator) -> np.ndarray:
        """Return one start state of each process, ``(N, d)``, from the stationary law."""
        return rng.normal(0.0, self._common.stationary_scale, (len(self.processes), self._common.dim))

    def sample_step(self, states: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the next states ``(N, d)`` and the rewards ``(N,)`` from ``states (N, d)``."""
        next_states = self._common.drift * states + self._common.noise * rng.standard_normal(states.shape)
        terms = states, self._centers, self._coefficients, self._common
        return next_states, expansion(*terms) - self._common.gamma * expected_expansion(*terms)

    def observe(self, states: np.ndarray) -> np.ndarray:
        """Return ``states (N, d)`` themselves, as a new array."""
        return states.copy()

    def info(self, states: np.ndarray) -> dict[str, np.ndarray]:
        """Return nothing: the observation says it all."""
        return {}


def _invert(cumulative: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return one draw per row of cumulative probabilities ``(N, S)``: the first entry above a uniform number."""
    return (cumulative > rng.random((len(cumulative), 1))).argmax(axis=1)
