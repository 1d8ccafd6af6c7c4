"""Processes of one kind in lockstep: all of them move by one array operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from icrl_envs import arguments
from icrl_envs.arrays import chain_arrays, kept, read_only, shaped
from icrl_envs.elimination import DOUBTFUL, ILL_CONDITIONED, eliminated_differential, eliminated_stationary
from icrl_envs.paths import inverted, sample_paths
from icrl_envs.process import SEVERAL_CLASSES, FiniteProcess, cumulative, discounted_values, held
from icrl_envs.rkhs import RKHSProcess, reward_expansion


@dataclass(frozen=True, eq=False)
class FiniteBatch:
    """N finite processes with equally many states S and features d, as arrays.

    The arrays are read-only; those that could be written into are copied.

    Args:
        transition_matrix: P, ``(N, S, S)``.
        rewards: r, ``(N, S)``.
        features: Φ, ``(N, S, d)``.
        start: Distributions of the first state, ``(N, S)``.
        gamma: γ in ``[0, 1)``, of all of them.

    Raises:
        TypeError: If ``gamma`` is not a number or an array cannot be read as numbers.
        ValueError: As of :class:`icrl_envs.FiniteProcess`.
    """

    transition_matrix: np.ndarray
    rewards: np.ndarray
    features: np.ndarray
    start: np.ndarray
    gamma: float

    def __post_init__(self) -> None:
        """Check and keep the arrays."""
        for name, array in chain_arrays(self, batch_axes=1).items():
            object.__setattr__(self, name, kept(array))
        object.__setattr__(self, "gamma", arguments.discount(self.gamma))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Copy and pickle through the constructor, so that a copy is read-only too."""
        return type(self), tuple(getattr(self, entry.name) for entry in fields(self))

    @classmethod
    def stack(cls, processes: Sequence[FiniteProcess]) -> FiniteBatch:
        """Return the batch of some processes; ValueError if they are no such batch, as of other γ or shapes."""
        arguments.same_kind(processes, FiniteProcess, "gamma", "features.shape")
        names = "transition_matrix", "rewards", "features", "start"
        arrays = (read_only(np.stack([getattr(process, name) for process in processes])) for name in names)
        return cls(*arrays, gamma=processes[0].gamma)

    def __len__(self) -> int:
        """Number of processes N."""
        return len(self.rewards)

    def __getitem__(self, index: int) -> FiniteProcess:
        """Return one of the processes."""
        P, r, phi, start = self.transition_matrix, self.rewards, self.features, self.start
        return FiniteProcess(P[index], r[index], phi[index], self.gamma, start[index])

    def repeat(self, copies: int) -> FiniteBatch:
        """Return each process ``copies`` ≥ 1 times in a row."""
        copies = arguments.integer("copies", copies, 1)
        arrays = self.transition_matrix, self.rewards, self.features, self.start
        return FiniteBatch(*(read_only(np.repeat(array, copies, axis=0)) for array in arrays), gamma=self.gamma)

    def values(self) -> np.ndarray:
        """Return the values v = (I − γP)⁻¹ r, ``(N, S)``; ValueError as of :meth:`FiniteProcess.values`."""
        return discounted_values(self.transition_matrix, self.rewards, self.gamma)

    def stationary_distributions(self) -> np.ndarray:
        """Return the distributions μ with μᵀP = μᵀ, ``(N, S)``.

        Raises:
            ValueError: If several closed classes of states make one of them ambiguous.
        """
        ends = np.zeros((*self.rewards.shape, 1))
        ends[:, -1] = 1.0
        doubt = DOUBTFUL * self._conditions
        mu = np.linalg.solve(self._equations(), ends)[..., 0]
        mu /= mu.sum(-1, keepdims=True)
        doubtful = mu.min(-1) <= doubt
        if doubtful.any():
            mu[doubtful] = eliminated_stationary(self.transition_matrix[doubtful])
        return mu

    def differential_values(self) -> np.ndarray:
        """Return the differential values h, ``(N, S)``, with h = r − r̄ + Ph and μᵀh = 0, where r̄ = μᵀr.

        Raises:
            ValueError: As of :meth:`stationary_distributions`, or if a value overflows.
        """
        mu, P, slow = (
            self.stationary_distributions()[:, None],
            self.transition_matrix,
            self._conditions > ILL_CONDITIONED,
        )
        with np.errstate(over="ignore", invalid="ignore"):
            often = mu.argmax(-1)  # a state that is visited often: the differences from its reward are not hidden
            r = (self.rewards - np.take_along_axis(self.rewards, often, axis=-1))[..., None]  # by any constant
            centred = r - mu @ r
            h = np.linalg.solve(np.eye(P.shape[-1]) - P + mu, centred)
            if slow.any():
                h[slow, :, 0] = eliminated_differential(P[slow], centred[slow, :, 0], mu[slow, 0])
                h[slow] -= mu[slow] @ h[slow]
        return held(h[..., 0])

    def sample_start(self, rng: np.random.Generator) -> np.ndarray:
        """Return one start state of each process, ``(N,)``."""
        return inverted(self._start, rng)

    def sample_step(self, states: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the next states and the rewards, ``(N,)`` each, from ``states (N,)``; IndexError if one is none."""
        rows = self._rows(states)
        return inverted(self._transitions.take(rows, axis=0), rng), self._rewards.take(rows)

    def sample_paths(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """Return the states of ``length`` steps from a start of each process, ``(N, length + 1)``."""
        return sample_paths(self._transitions.reshape(self.transition_matrix.shape), self._start, length, rng)

    def observe(self, states: np.ndarray) -> np.ndarray:
        """Return the features ``(N, d)`` of ``states (N,)``; IndexError if one is none."""
        return self._features.take(self._rows(states), axis=0)

    def info(self, states: np.ndarray) -> dict[str, np.ndarray]:
        """Return the states' indices, in the form in which Gymnasium batches infos."""
        return {"state": states.copy(), "_state": np.ones(len(states), dtype=bool)}

    def _equations(self) -> np.ndarray:
        """Return the systems of μᵀP = μᵀ, ``(N, S, S)``, with Σ_s μ(s) in place of the last equation."""
        equations = np.eye(self.rewards.shape[-1]) - self.transition_matrix.mT
        equations[:, -1] = 1.0
        return equations

    @cached_property
    def _conditions(self) -> np.ndarray:
        """Condition numbers, ``(N,)``: large where chains hardly ever leave a group of states; ValueError if ∞."""
        conditions = np.linalg.cond(self._equations(), 1)
        ambiguous = np.flatnonzero(conditions * self.rewards.shape[-1] * np.finfo(float).eps >= 1.0)
        if ambiguous.size:
            raise ValueError(f"{SEVERAL_CLASSES} This is process {ambiguous[0]} of {len(self)}.")
        return conditions

    # Row n·S + s of the tables below belongs to state s of process n.

    def _rows(self, states: np.ndarray) -> np.ndarray:
        S = self.rewards.shape[-1]
        if states.shape != self._offsets.shape or states.astype(np.uint64).max() >= S:  # negative ones become large
            raise IndexError(f"states must be {len(self)} integers in [0, {S - 1}], one of each process; got {states}.")
        return self._offsets + states

    @cached_property
    def _offsets(self) -> np.ndarray:
        return self.rewards.shape[-1] * np.arange(len(self))

    @cached_property
    def _transitions(self) -> np.ndarray:
        return cumulative(self.transition_matrix).reshape(-1, self.rewards.shape[-1])

    @cached_property
    def _start(self) -> np.ndarray:
        return cumulative(self.start)

    @cached_property
    def _rewards(self) -> np.ndarray:
        return self.rewards.ravel()

    @cached_property
    def _features(self) -> np.ndarray:
        return self.features.reshape(-1, self.features.shape[-1])


class RKHSBatch:
    """N processes that differ only in their centres and coefficients.

    Args:
        processes: The N processes.

    Raises:
        ValueError: If there are none, they differ in more, or one samples or observes in a way of its own.
    """

    def __init__(self, processes: Sequence[RKHSProcess]) -> None:
        """Stack the centres and coefficients."""
        names = "dim", "kernel", "length_scale", "num_centers", "gamma", "drift", "noise"
        arguments.same_kind(processes, RKHSProcess, *names)
        self.processes = processes
        self._common = processes[0]
        self._centers = np.stack([process.centers for process in processes])
        self._coefficients = np.stack([process.coefficients for process in processes])

    def sample_start(self, rng: np.random.Generator) -> np.ndarray:
        """Return one start state of each process, ``(N, d)``, from the stationary law."""
        return rng.normal(0.0, self._common.stationary_scale, (len(self.processes), self._common.dim))

    def sample_step(self, states: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the next states ``(N, d)`` and the rewards ``(N,)`` from ``states (N, d)``; ValueError of others."""
        shaped("states", states, (len(self.processes), self._common.dim))
        next_states = self._common.drift * states + self._common.noise * rng.standard_normal(states.shape)
        return next_states, reward_expansion(states, self._centers, self._coefficients, self._common)

    def observe(self, states: np.ndarray) -> np.ndarray:
        """Return ``states (N, d)`` themselves, as a new array."""
        return states.copy()

    def info(self, states: np.ndarray) -> dict[str, np.ndarray]:
        """Return nothing: the observation says it all."""
        return {}
