"""Markov reward processes as pure mathematics: what every process can do, and the finite ones in full."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
from gymnasium import spaces

from icrl_envs import arguments
from icrl_envs.arrays import chain_arrays, read_only
from icrl_envs.elimination import DOUBTFUL, Elimination, eliminated_stationary

State = TypeVar("State")
NEAR_ONE = 1.0 - 1e-6
"""Above this γ rounding in P would show in a general solver's values."""
SEVERAL_CLASSES = (
    "transition_matrix must have one closed class of states for a unique stationary distribution; "
    "it has several, within rounding. Connect them, or take them as separate processes."
)


class Process(Protocol[State]):
    """A Markov reward process: a start, a step and what is seen of a state; it never changes."""

    @property
    def gamma(self) -> float:
        """The discount γ in ``[0, 1)``."""
        ...

    @property
    def observation_space(self) -> spaces.Box:
        """The space, of dtype float64, that holds every observation."""
        ...

    def sample_start(self, rng: np.random.Generator) -> State:
        """Return a state drawn from the start distribution."""
        ...

    def sample_step(self, state: State, rng: np.random.Generator) -> tuple[State, float, bool]:
        """Return ``(next_state, reward, terminated)`` of one step from ``state``."""
        ...

    def observe(self, state: State) -> np.ndarray:
        """Return the observation ``(d,)`` of ``state``, a new array on each call."""
        ...


@dataclass(frozen=True, eq=False)
class FiniteProcess:
    """A recurrent Markov reward process with finitely many states.

    The arrays are copied to float64 and are read-only, so that a process is one fixed thing for its whole life. Two
    processes are equal where their arrays and γ are.

    Args:
        transition_matrix: P, ``(S, S)``; row s is the distribution of the next state after s.
        rewards: r, ``(S,)``; the reward of a step, paid for the state that is left.
        features: Φ, ``(S, d)``; row s is the observation of state s.
        gamma: γ in ``[0, 1)``, the discount.
        start: ``(S,)``; the distribution of the first state.

    Raises:
        TypeError: If ``gamma`` is not a number or an array cannot be read as numbers.
        ValueError: If a shape disagrees with the others, an entry is not finite, a row or ``start`` is not a
            distribution, or γ is outside ``[0, 1)``.

    Example:
        >>> process = FiniteProcess([[0.0, 1.0], [1.0, 0.0]], [1.0, 0.0], [[1.0], [-1.0]], gamma=0.5, start=[1.0, 0.0])
        >>> process.values().round(4)
        array([1.3333, 0.6667])
    """

    transition_matrix: np.ndarray
    rewards: np.ndarray
    features: np.ndarray
    gamma: float
    start: np.ndarray

    def __post_init__(self) -> None:
        """Copy, check and freeze the arrays."""
        for name, array in chain_arrays(self, batch_axes=0).items():
            own = array.copy()
            own.setflags(write=False)
            object.__setattr__(self, name, own)
        object.__setattr__(self, "gamma", arguments.discount(self.gamma))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Copy and pickle through the constructor, so that a copy is read-only too."""
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    def __eq__(self, other: object) -> bool:
        """Return whether the other one has the same arrays and γ."""
        if not isinstance(other, FiniteProcess):
            return NotImplemented
        return all(np.array_equal(getattr(self, entry.name), getattr(other, entry.name)) for entry in fields(self))

    def __hash__(self) -> int:
        """Return the same number for equal processes."""
        return hash((self.features.shape, self.gamma))

    @property
    def num_states(self) -> int:
        """The number of states S."""
        return len(self.rewards)

    @property
    def observation_space(self) -> spaces.Box:
        """The box ``[-b, b]^d`` with b the largest absolute feature, but at least 1."""
        bound = max(1.0, float(np.abs(self.features).max()))
        return spaces.Box(-bound, bound, self.features.shape[1:], np.float64)

    def values(self) -> np.ndarray:
        """Return the value v = (I − γP)⁻¹ r of each state, ``(S,)``: the fixed point of v = r + γPv.

        Raises:
            ValueError: If a value overflows.
        """
        return discounted_values(self.transition_matrix[None], self.rewards[None], self.gamma)[0]

    def stationary_distribution(self) -> np.ndarray:
        """Return the distribution μ, ``(S,)``, with μᵀP = μᵀ and Σ_s μ(s) = 1.

        Raises:
            ValueError: If several closed classes of states make μ ambiguous.
        """
        S = self.num_states
        equations = np.vstack([np.eye(S) - self.transition_matrix.T, np.ones(S)])
        solution, _, rank, singular = np.linalg.lstsq(equations, np.append(np.zeros(S), 1.0))
        if rank < S:
            raise ValueError(SEVERAL_CLASSES)
        if solution.min() <= DOUBTFUL * singular[0] / singular[-1]:
            return eliminated_stationary(self.transition_matrix[None])[0]
        return solution / solution.sum()

    @cached_property
    def cumulative_transitions(self) -> np.ndarray:
        """The cumulative rows Σ_{u ≤ s'} P(s, u), ``(S, S)``, scaled to end in exactly 1."""
        return cumulative(self.transition_matrix)

    @cached_property
    def cumulative_start(self) -> np.ndarray:
        """The cumulative start distribution, ``(S,)``, scaled to end in exactly 1."""
        return cumulative(self.start)

    def sample_start(self, rng: np.random.Generator) -> int:
        """Return a state drawn from ``start``, by inversion of one uniform number."""
        return int(self.cumulative_start.searchsorted(rng.random(), side="right"))

    def sample_step(self, state: int, rng: np.random.Generator) -> tuple[int, float, bool]:
        """Return ``(s', r(s), False)`` with s' drawn from row s of P, by inversion of one uniform number.

        Raises:
            IndexError: If there is no such state.
        """
        if state < 0:
            raise IndexError(f"state must be an integer in [0, {self.num_states - 1}]; got {state}.")
        next_state = self.cumulative_transitions[state].searchsorted(rng.random(), side="right")
        return int(next_state), float(self.rewards[state]), False

    def observe(self, state: int) -> np.ndarray:
        """Return the features ``(d,)`` of ``state``, a new array on each call; IndexError if there is no such state."""
        if state < 0:
            raise IndexError(f"state must be an integer in [0, {self.num_states - 1}]; got {state}.")
        return self.features[state].copy()


def discounted_values(P: np.ndarray, r: np.ndarray, gamma: float) -> np.ndarray:
    """Return v = (I − γP)⁻¹ r, ``(N, S)``, up to what rounding of r and P changes in it, however near 1 γ is.

    Args:
        P: ``(N, S, S)``.
        r: ``(N, S)``.
        gamma: γ in ``[0, 1)``.

    Raises:
        ValueError: If a value overflows.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if gamma > NEAR_ONE:
            return held(Elimination(gamma * P, np.full(r.shape, 1.0 - gamma)).solve(r))
        return held(np.linalg.solve(np.eye(r.shape[-1]) - gamma * P, r[..., None])[..., 0])


def held(values: np.ndarray) -> np.ndarray:
    """Return values of states; ValueError if one overflowed."""
    if not np.isfinite(values).all():
        raise ValueError("rewards must have values that float64 holds; some overflow. Scale the rewards down.")
    return values


def cumulative(weights: np.ndarray) -> np.ndarray:
    """Return cumulative sums along the last axis, ending in exactly 1: states of probability 0 are never drawn.

    They are read-only, as the probabilities are.
    """
    totals = weights.cumsum(axis=-1)
    return read_only(totals / totals[..., -1:])
