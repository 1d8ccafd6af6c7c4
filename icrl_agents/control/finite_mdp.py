"""Finite Markov decision processes: sampled, and solved exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from icrl_agents.arrays import reals
from icrl_envs import arguments
from icrl_envs.arrays import distributions

LARGEST_GAMMA = 1.0 - 1e-9
"""Nearer to 1 rounding in P would leave fewer than six digits of a value."""
PRINTED = 1e-5
"""How far from 1 a row of P may sum: as far as numbers of five digits, or of float32, do."""
TIE, ROUNDING = 1e-10, 1e-14
"""Actions that differ by no more than the first share of what they differ in, or the second of rewards, are equal."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """What is best in every state.

    Args:
        policy: An optimal action of each state, integers ``(S,)``.
        values: v*, ``(S,)``.
        action_values: q*, ``(S, A)``.
    """

    policy: np.ndarray
    values: np.ndarray
    action_values: np.ndarray


@dataclass(frozen=True, eq=False)
class Experience:
    """n transitions (s, a, R, s′), in any order.

    None of them ends: where a log has terminal states, add one transition of each action from such a state to itself,
    with reward 0.

    Args:
        states: s, integers ``(n,)`` in 0 … S − 1.
        actions: a, integers ``(n,)`` in 0 … A − 1.
        rewards: R, ``(n,)``.
        next_states: s′, integers ``(n,)``.
        num_states: S ≥ 1.
        num_actions: A ≥ 1.

    Raises:
        TypeError: If states or actions are not integers, or rewards no real numbers.
        ValueError: If they are out of range, a reward is not finite, or lengths disagree.
    """

    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_states: np.ndarray
    num_states: int
    num_actions: int

    def __post_init__(self) -> None:
        """Checks the arguments, and makes arrays of them."""
        limits = {name: arguments.integer(name, getattr(self, name), 1) for name in ("num_states", "num_actions")}
        S, A = limits.values()
        for name, limit in (("states", S), ("actions", A), ("next_states", S)):
            arguments.unmasked(name, getattr(self, name))
            array = np.asarray(getattr(self, name))
            if array.dtype.kind not in "iu":
                raise TypeError(f"{name}: expected integers, got {array.dtype}.")
            if array.ndim != 1 or ((array < 0) | (array >= limit)).any():
                raise ValueError(f"{name}: expected shape (n,) with integers in 0 … {limit - 1}, got {array}.")
            object.__setattr__(self, name, array.astype(np.int64))
        object.__setattr__(self, "rewards", reals("rewards", self.rewards).numpy())
        lengths = {name: np.shape(getattr(self, name)) for name in ("states", "actions", "rewards", "next_states")}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"states, actions, rewards, next_states: expected one length, got {lengths}.")
        if not np.isfinite(self.rewards).all():
            raise ValueError("rewards: expected finite numbers, got NaN or inf.")

    def visits(self) -> np.ndarray:
        """How often each pair was tried, in the order of ``s·A + a``, ``(S·A,)``."""
        pairs = self.states * self.num_actions + self.actions
        return np.bincount(pairs, minlength=self.num_states * self.num_actions)

    def untried(self) -> np.ndarray:
        """Pairs that were never tried, as numbers s·A + a, in order."""
        return np.flatnonzero(self.visits() == 0)


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """S states, A actions in each, and no end.

    Args:
        transitions: P(s′ | s, a), ``(S, A, S)``; an array, or a nested list of numbers. Rows that sum to 1 up to
            1e-5 are scaled to do so in full.
        rewards: r(s, a), ``(S, A)``; the same.
        gamma: γ in [0, 1 − 1e-9].

    Raises:
        TypeError: If P or r is no array of real numbers.
        ValueError: If shapes disagree, a number is not finite, or a row of P is no distribution.
    """

    transitions: np.ndarray
    rewards: np.ndarray
    gamma: float

    def __post_init__(self) -> None:
        """Checks the arguments, and makes arrays of them."""
        object.__setattr__(self, "gamma", arguments.discount(self.gamma))
        if self.gamma > LARGEST_GAMMA:
            raise ValueError(f"gamma: expected at most 1 - 1e-9, where values keep six digits, got {self.gamma!r}.")
        for name in ("transitions", "rewards"):
            object.__setattr__(self, name, reals(name, getattr(self, name)).numpy(force=True))
        S, A = self.rewards.shape if np.ndim(self.rewards) == 2 else (0, 0)
        if S == 0 or A == 0 or self.transitions.shape != (S, A, S):
            raise ValueError(
                "transitions and rewards: expected shapes (S, A, S) and (S, A), "
                f"got {np.shape(self.transitions)} and {np.shape(self.rewards)}."
            )
        if not np.isfinite(self.rewards).all():
            raise ValueError("rewards: expected finite numbers, got NaN or inf.")
        rows = distributions("each row of transitions", self.transitions, PRINTED)
        object.__setattr__(self, "transitions", rows)

    @classmethod
    def random(
        cls, num_states: int, num_actions: int, gamma: float, rng: np.random.Generator, *, branching: int = 3
    ) -> FiniteMDP:
        """Returns a random sparse MDP: each pair leads to ``branching`` states (or S), with Dirichlet probabilities.

        Args:
            num_states: S ≥ 1.
            num_actions: A ≥ 1.
            gamma: γ in [0, 1 − 1e-9].
            rng: Source of the states that follow, their probabilities, and the rewards, from U(−1, 1).
            branching: Number of states that can follow a pair, ≥ 1.

        Raises:
            TypeError: If a number has the wrong type, or ``rng`` is no generator.
            ValueError: If a number is out of range.
        """
        rng = arguments.generator("rng", rng)
        S, A = arguments.integer("num_states", num_states, 1), arguments.integer("num_actions", num_actions, 1)
        count = min(arguments.integer("branching", branching, 1), S)
        followers = rng.permuted(np.broadcast_to(np.arange(S), (S, A, S)), axis=-1)[..., :count]
        P = np.zeros((S, A, S))
        np.put_along_axis(P, followers, rng.dirichlet(np.ones(count), (S, A)), axis=-1)
        return cls(P, rng.uniform(-1.0, 1.0, (S, A)), gamma)

    def values(self, policy: np.ndarray) -> np.ndarray:
        """V = (I − γP_π)⁻¹ r_π of a deterministic policy, integers ``(S,)``; shape ``(S,)``.

        Raises:
            ValueError: If ``policy`` is not an action for each state, or a value overflows.
        """
        S, A = self.rewards.shape
        arguments.unmasked("policy", policy)
        policy = np.asarray(policy)
        if policy.shape != (S,) or policy.dtype.kind not in "iu" or ((policy < 0) | (policy >= A)).any():
            raise ValueError(f"policy: expected shape ({S},) with integers in 0 … {A - 1}, got {policy}.")
        P, r = self.transitions[np.arange(S), policy], self.rewards[np.arange(S), policy]
        v = np.linalg.solve(np.eye(S) - self.gamma * P, r)
        if not np.isfinite(v).all():
            raise ValueError("rewards: expected values within float64, got some that overflow; scale the rewards down.")
        return v

    def action_values(self, policy: np.ndarray) -> np.ndarray:
        """q(s, a) = r(s, a) + γ Σ_s′ P(s′ | s, a) v(s′) of a policy, ``(S, A)``."""
        return self.rewards + self.gamma * self.transitions @ self.values(policy)

    def optimum(self) -> Optimum:
        """The exact optimum, by policy iteration on P and r, until it comes to a policy where it has been.

        A state s keeps its action a where no other b is better by more than rounding, or than 1e-10 of what the two
        differ in: |r(s, b) − r(s, a)| + γ Σ_s′ |P(s′ | s, b) − P(s′ | s, a)| |v(s′) − v(s)|, in which no constant is.
        """
        policy, seen = np.zeros(len(self.rewards), dtype=np.int64), set()
        while True:
            seen.add(policy.tobytes())
            improved = self._improved(policy)
            if improved.tobytes() in seen:
                return Optimum(policy, self.values(policy), self.action_values(policy))
            policy = improved

    def _improved(self, policy: np.ndarray) -> np.ndarray:
        """The policy made greedy.

        v(s′) − v(s) is the value of s′ for rewards less (1 − γ) v(s), so that no large value elsewhere rounds it.
        """
        states = np.arange(len(policy))
        v, P, r = self.values(policy), self.transitions[states, policy], self.rewards[states, policy]
        ahead = np.linalg.solve(np.eye(len(v)) - self.gamma * P, r[:, None] - (1.0 - self.gamma) * v).T
        ahead = (ahead - ahead.diagonal()[:, None])[..., None]
        P = self.gamma * (self.transitions - P[:, None])
        gain = self.rewards - r[:, None] + (P @ ahead)[..., 0]
        size = np.abs(self.rewards - r[:, None]) + (np.abs(P) @ np.abs(ahead))[..., 0]
        rounding = ROUNDING * np.maximum(np.abs(self.rewards), np.abs(r)[:, None])
        return improvement(gain, policy, np.maximum(TIE * size, rounding))

    def experience(self, visits: int, rng: np.random.Generator) -> Experience:
        """Tries every action in every state ``visits`` times.

        Args:
            visits: ≥ 1.
            rng: Source of the states that follow.

        Raises:
            TypeError: If ``visits`` is no integer, or ``rng`` no generator.
            ValueError: If ``visits`` is out of range.
        """
        rng = arguments.generator("rng", rng)
        S, A = self.rewards.shape
        visits = arguments.integer("visits", visits, 1)
        counts = rng.multinomial(visits, self.transitions)
        s, a = np.divmod(np.repeat(np.arange(S * A), visits), A)
        following = np.repeat(np.tile(np.arange(S), S * A), counts.ravel())
        return Experience(s, a, self.rewards[s, a], following, S, A)


def improvement(action_values: np.ndarray, policy: np.ndarray, margin: np.ndarray | float) -> np.ndarray:
    """The greedy policy; a state keeps its action where no other is better by more than a margin.

    Args:
        action_values: q, or q less a number for each state, ``(S, A)``.
        policy: The policy so far, integers ``(S,)``.
        margin: Of each action, ``(S, A)``, or of all.
    """
    own = np.take_along_axis(action_values, policy[:, None], -1)
    better = action_values > own + margin
    return np.where(better.any(-1), np.where(better, action_values, -np.inf).argmax(-1), policy)
