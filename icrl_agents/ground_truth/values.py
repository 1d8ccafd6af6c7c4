"""Monte-Carlo values of given states, with their standard errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from icrl_agents.arrays import reals
from icrl_agents.collection.outcomes import single_step
from icrl_agents.collection.recorder import flattening
from icrl_agents.collection.seeds import held_streams, warn_of_unseeded_draws
from icrl_agents.global_streams import global_streams, warn_of_global_draws
from icrl_agents.ground_truth.states import Restorable, check_kept, observed, restorable, restored
from icrl_envs import arguments

MOST_STEPS = 10_000_000
"""Rewards of one return, minutes of the fastest environment; more are taken for a slip."""

SMALLEST = 1e-130
"""Of returns that are not all 0: squares of their 16 digits are numbers."""


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """Values of m states, each the mean return of n independent continuations.

    Args:
        observations: What the environment shows of the states, flattened as by ``collect``, ``(m, d)``.
        returns: Of each continuation, ``(m, n)``.
        gamma: Discount γ.
        horizon: Rewards in each return, unless the process terminated before.

    Raises:
        TypeError: If they are no real numbers.
        ValueError: If there are no m observations and m × n returns with finite squares, m ≥ 1 and n ≥ 2, or all
            returns are so small that squares of their differences would be 0.
    """

    observations: np.ndarray
    returns: np.ndarray
    gamma: float
    horizon: int

    def __post_init__(self) -> None:
        """Checks the arguments, and makes float64 arrays of them."""
        for name in ("observations", "returns"):
            object.__setattr__(self, name, reals(name, getattr(self, name)).numpy(force=True))
        shape = np.shape(self.returns)
        if len(shape) != 2 or shape[0] < 1 or shape[1] < 2 or np.shape(self.observations)[:1] != shape[:1]:
            raise ValueError(
                "returns: expected two for each state at least, (m, n), and observations (m, d), got shapes "
                f"{shape} and {np.shape(self.observations)}."
            )
        with np.errstate(over="ignore"):
            if not np.isfinite(np.square(self.returns).sum()):
                raise ValueError("returns: expected numbers with finite squares, got NaN, inf or larger ones.")
        if 0 < np.abs(self.returns).max() < SMALLEST:
            raise ValueError(
                f"returns: expected numbers of at least {SMALLEST}, or 0, got smaller ones; scale them up."
            )
        object.__setattr__(self, "gamma", arguments.discount(self.gamma))
        object.__setattr__(self, "horizon", arguments.integer("horizon", self.horizon, 1))

    @property
    def continuations(self) -> int:
        """N."""
        return self.returns.shape[1]

    @property
    def values(self) -> np.ndarray:
        """v̂(s) = mean return, ``(m,)``; unbiased but for the rewards behind the horizon."""
        return self.returns[:, 0] + self._beyond_first.mean(1)

    @property
    def _beyond_first(self) -> np.ndarray:
        """Each return less the first one of its state, ``(m, n)``: of equal ones moments of these are exact."""
        return self.returns - self.returns[:, :1]

    @property
    def standard_errors(self) -> np.ndarray:
        """Standard error of each value, √(Σ (G − v̂)² / (n (n − 1))), ``(m,)``."""
        return self._beyond_first.std(1, ddof=1) / math.sqrt(self.continuations)

    @property
    def return_variance(self) -> float:
        """E[Var(G | s)]: how far single returns scatter about the value, unbiased."""
        return float(self._beyond_first.var(1, ddof=1).mean())

    @property
    def value_variance(self) -> float:
        """Var(v(s)) over the states: the variance of v̂ without the part that its standard errors put in.

        It is unbiased where the states are independent of each other, and so it may come out negative. Of one state
        it is NaN.
        """
        if len(self.values) < 2:
            return math.nan
        return float((self.values - self.values[0]).var(ddof=1) - np.square(self.standard_errors).mean())

    @property
    def noise_share(self) -> float:
        """E[Var(G | s)] / (E[Var(G | s)] + Var(v)): the part of single returns that their states do not decide.

        A variance that comes out negative counts as 0; where both are 0, so is the share. Of one state it is NaN.
        """
        within, between = self.return_variance, np.maximum(self.value_variance, 0.0)
        return float(within / (within + between)) if within + between != 0 else 0.0


def horizon(gamma: float, missing: float) -> int:
    """The least T ≥ 1 with γᵀ ≤ ``missing``: what is left out is at most that share of r_max / (1 − γ).

    Args:
        gamma: γ in [0, 1).
        missing: In [2.3e-308, 1].
    """
    gamma, missing = arguments.discount(gamma), arguments.real("missing", missing, 2.3e-308, 1.0)
    steps = max(1, math.ceil(math.log(missing) / math.log(gamma))) if gamma > 0 else 1
    while steps > 1 and gamma ** (steps - 1) <= missing:  # where rounding of the logarithms has passed an integer
        steps -= 1
    while gamma**steps > missing:
        steps += 1
    return steps


def ground_truth(
    env: gym.Env[Any, Any],
    snapshots: Sequence[Any],
    *,
    gamma: float,
    continuations: int,
    seed: int,
    missing: float = 1e-3,
) -> GroundTruth:
    """Returns the values of states by running the environment on from each of them, again and again.

    It is left in the last continuation: reset it before another use.

    Args:
        env: See ``Restorable``; wrapped by nothing that changes observations or rewards.
        snapshots: m ≥ 1 states; see ``states_along``.
        gamma: γ in [0, 1).
        continuations: n ≥ 2 for each state, independent of each other.
        seed: Of all continuations; that of one state and number does not depend on how many others there are.
        missing: A bound of γᵀ, T the number of rewards in a return; see ``horizon``.

    Raises:
        TypeError: If the environment cannot be restored, observations cannot be flattened, or an argument has the wrong
            type.
        ValueError: If an argument is out of range, observations are pixels, the environment truncates a continuation,
            or a continuation has written into its snapshot.

    Example:
        >>> import icrl_envs
        >>> from icrl_agents.ground_truth import states_along
        >>> env = gym.make("icrl/BoyanChain-v0", num_states=4, gamma=0.5)
        >>> states = states_along(env, episodes=1, states_per_episode=3, steps=12, seed=0)
        >>> ground_truth(env, states, gamma=0.5, continuations=20, seed=0).values.shape
        (3,)
    """
    gamma = arguments.discount(gamma)
    process, steps = restorable(env), horizon(gamma, missing)
    if steps > MOST_STEPS:
        raise ValueError(
            f"gamma, missing: expected returns of at most {MOST_STEPS:,} rewards, got {steps:,}; take a smaller gamma "
            "or a larger missing."
        )
    count = arguments.integer("continuations", continuations, 2)
    seeds = np.random.SeedSequence(arguments.integer("seed", seed, 0))
    shown, row = observed(env, snapshots), flattening(process.observation_space)
    returns, streams, held = np.empty((len(snapshots), count)), global_streams(), held_streams(env)
    for i, (snapshot, of_state) in enumerate(zip(snapshots, seeds.spawn(len(snapshots)), strict=True)):
        for j, child in enumerate(of_state.generate_state(count)):
            check_kept(row(restored(process, snapshot, seed=int(child))), shown[i])
            returns[i, j] = _return(process, gamma, steps)
    warn_of_global_draws(streams, seed, stacklevel=2)
    warn_of_unseeded_draws(env, held, seed, stacklevel=2)
    return GroundTruth(shown, returns, gamma, steps)


def _return(process: Restorable, gamma: float, steps: int) -> float:
    """R₁ + γ R₂ + … + γ^(T−1) R_T of the steps that follow."""
    total, weight = 0.0, 1.0
    for step in range(1, steps + 1):
        _, rewards, terminated, truncated, _ = single_step(process.step(0))
        total, weight = total + weight * float(rewards[0]), weight * gamma
        if terminated:
            break
        if truncated and step < steps:
            raise ValueError(
                f"snapshots: expected {steps} steps between each state and the end of its episode, got {step}; "
                "take earlier states, a smaller gamma or a larger missing."
            )
    return total
