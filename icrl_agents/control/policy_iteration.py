"""Policy iteration whose evaluation step is any evaluator, on contexts of state–action pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from icrl_agents.adaptive import AdaptiveTD
from icrl_agents.arrays import finite, reals, same_shape
from icrl_agents.blockwise import row_blocks
from icrl_agents.context import Context
from icrl_agents.control.critic import check_evaluator
from icrl_agents.control.finite_mdp import TIE, Experience, improvement
from icrl_agents.evaluators import MonteCarlo, OffsetCorrected, WeightedSoftmaxTD
from icrl_agents.ground_truth import horizon
from icrl_agents.kernels import RBF
from icrl_agents.value_function import Evaluator, check_discounted
from icrl_envs import arguments

LENGTH_SCALE = 0.25
"""Of the default evaluator: pairs are at least 1 apart, so that exp(−1/2ℓ²) = 3e-4."""
FEWEST_SWEEPS, MOST_SWEEPS, MISSING = 200, 2_000, 1e-9
"""It takes so many sweeps that at most this share of the largest value is missing, or their limit instead of many."""
NOISE = 1e-13
"""An action that is better by no more than this share of the largest action value of all is not better."""


@dataclass(frozen=True, eq=False)
class PolicyIteration:
    """Where policy iteration ended.

    Args:
        policy: Action of each state, integers ``(S,)``.
        action_values: Its values q(s, a) as the evaluator inferred them, ``(S, A)``.
        rounds: Number of evaluations.
        converged: Whether it came to an end, as against ``max_rounds``, at which no action is better than the policy's
            by more than 1e-10 of the largest action value: what an evaluator leaves of a tie.
    """

    policy: np.ndarray
    action_values: np.ndarray
    rounds: int
    converged: bool


def policy_iteration(
    experience: Experience,
    evaluator: Evaluator | None = None,
    *,
    gamma: float,
    features: np.ndarray | None = None,
    max_rounds: int = 100,
) -> PolicyIteration:
    """Evaluates a policy in context, makes it greedy, and so on until it stays as it is, or comes to an earlier one.

    The same transitions serve every round: only what the policy would do next is read anew. No model of the
    transitions is made, and no weight is updated. A state keeps its action where no other is better by more than 1e-13
    of the largest action value of all: what rounding leaves of a tie.

    Args:
        experience: Transitions in which every action was tried in every state.
        evaluator: Anything with ``fit(context)``; by default weighted softmax TD with a Gaussian kernel, in the limit
            of its sweeps or, where 2,000 sweeps do, so near to it that 1e-9 of the largest value is missing.
            Transitions are no trajectories, so that it must bootstrap: returns are single rewards.
        gamma: γ in [0, 1).
        features: φ(s, a) in the order of ``s·A + a``, ``(S·A, d)``; by default the pair (s, a) itself.
        max_rounds: Evaluations at most, ≥ 1.

    Raises:
        TypeError: If ``experience`` is none, ``evaluator`` has no ``fit``, is Monte-Carlo, or corrects or mixes it, or
            ``features`` are no real numbers.
        ValueError: If a number is out of range, ``features`` has another number of rows or is not finite, a pair was
            never tried, or the evaluator's values are differential or not finite.

    Example:
        >>> from icrl_agents.control.finite_mdp import FiniteMDP
        >>> rng = np.random.default_rng(0)
        >>> mdp = FiniteMDP.random(5, 2, 0.9, rng)
        >>> found = policy_iteration(mdp.experience(1_000, rng), gamma=0.9)
        >>> bool((found.policy == mdp.optimum().policy).all())
        True
    """
    if evaluator is not None:
        check_evaluator(evaluator)
        _check_bootstraps(evaluator)
    if not isinstance(experience, Experience):
        raise TypeError(f"experience must be an Experience, such as FiniteMDP.experience gives; got {experience!r}.")
    S, A = experience.num_states, experience.num_actions
    phi = reals("features", pair_features(S, A) if features is None else features)
    finite("features", phi)
    if phi.ndim != 2 or len(phi) != S * A:
        raise ValueError(f"features: expected shape (S·A, d) = ({S * A}, d), got {tuple(phi.shape)}.")
    arguments.integer("max_rounds", max_rounds, 1)
    if len(untried := experience.untried()):
        s, a = divmod(int(untried[0]), A)
        raise ValueError(
            f"experience: expected every action in every state, but {len(untried)} of {S * A} pairs were never tried, "
            f"such as action {a} in state {s}."
        )
    if evaluator is None:
        evaluator = _default_evaluator(arguments.discount(gamma), phi, experience.visits())
    policy, rounds, seen = np.zeros(S, dtype=np.int64), 0, set()
    while True:
        seen.add(policy.tobytes())
        value = evaluator.fit(action_value_context(experience, policy, phi, arguments.discount(gamma)))
        check_discounted("evaluator", value)
        values = reals("evaluator: values", value(phi))
        same_shape("evaluator: values", values, torch.Size((S * A,)))
        finite("evaluator: values", values)
        q = values.reshape(S, A).numpy(force=True)
        rounds, largest = rounds + 1, np.abs(q).max()
        improved = improvement(q, policy, NOISE * largest)
        again = improved.tobytes() in seen
        if again or rounds == max_rounds:
            tied = improvement(q, policy, TIE * largest) == policy
            return PolicyIteration(policy, q, rounds, again and bool(tied.all()))
        policy = improved


def action_value_context(experience: Experience, policy: np.ndarray, phi: torch.Tensor, gamma: float) -> Context:
    """The transitions from pair to pair, (s, a) → (s′, π(s′)), as in SARSA: its value is q of the policy.

    Args:
        experience: Transitions.
        policy: π, integers ``(S,)``.
        phi: Features of the pairs, ``(S·A, d)``.
        gamma: γ.
    """
    A = experience.num_actions
    pairs = torch.from_numpy(experience.states * A + experience.actions)
    following = torch.from_numpy(experience.next_states * A + policy[experience.next_states])
    discounts = torch.full((len(pairs),), gamma, dtype=torch.float64, device="cpu")
    unlinked = torch.zeros(len(pairs), dtype=torch.bool, device="cpu")
    return Context(phi[pairs], experience.rewards, discounts, phi[following], contiguous=unlinked)


def _check_bootstraps(evaluator: Evaluator) -> None:
    """Raises where an evaluator is Monte-Carlo, or corrects or mixes one that is."""
    if isinstance(evaluator, MonteCarlo):
        raise TypeError("evaluator: expected one that bootstraps, got MonteCarlo: transitions have no returns.")
    if isinstance(evaluator, OffsetCorrected):
        _check_bootstraps(evaluator.evaluator)
    if isinstance(evaluator, AdaptiveTD):
        for each in evaluator.evaluators:
            _check_bootstraps(each)


def _default_evaluator(gamma: float, phi: torch.Tensor, visits: np.ndarray) -> WeightedSoftmaxTD:
    """Softmax TD whose sweeps leave at most ``MISSING`` of the largest value of these pairs, visited so often.

    A sweep maps an error e of the pairs' values to (I − W + γWP)e, where W is what pairs attend to each other. Its rows
    sum to 1, so that with d = min_s W(s, s) the error's largest entry shrinks by γ + 2(1 − d) or more.
    """
    kernel, pairs, counts = RBF(LENGTH_SCALE), phi.double(), torch.from_numpy(visits).double()
    reached = torch.cat([kernel(rows, pairs) @ counts for rows in row_blocks(pairs, len(pairs))])
    rate = gamma + 2.0 * (1.0 - float((counts / reached).min()))
    sweeps = max(FEWEST_SWEEPS, horizon(rate, MISSING)) if rate < 1.0 else MOST_SWEEPS + 1
    return WeightedSoftmaxTD(kernel, math.inf if sweeps > MOST_SWEEPS else sweeps)


def pair_features(num_states: int, num_actions: int) -> np.ndarray:
    """The pairs (s, a) themselves, in the order of ``s·A + a``, ``(S·A, 2)``."""
    return np.stack(np.divmod(np.arange(num_states * num_actions), num_actions), axis=-1).astype(np.float64)
