"""Random finite chains: one from the seed that names the task, or many at once from a stream of random numbers."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from icrl_envs import arguments
from icrl_envs.arrays import read_only
from icrl_envs.batches import FiniteBatch
from icrl_envs.process import FiniteProcess
from icrl_envs.random_streams import task_streams

FEATURES = ("one_hot", "random")
DEFAULT_NUM_FEATURES = 4
MOST_TRANSITIONS = 20_000**2
"""Transition probabilities that are held at once, 3.2 GB of float64; more are taken for a slip."""

Law = Callable[[int, int, np.random.Generator], tuple[np.ndarray, np.ndarray]]
"""Draws P ``(N, S, S)`` and start distributions ``(N, S)`` of N chains with S states."""


def boyan_chain(
    *,
    num_states: int = 10,
    gamma: float = 0.9,
    features: str = "one_hot",
    num_features: int | None = None,
    representable: bool = False,
    task_seed: int = 0,
) -> FiniteProcess:
    """Return a random Boyan's chain, the task distribution of arXiv 2405.13861.

    State i goes to i+1 with a random probability p_i ~ U(0, 1) and otherwise to i+2; the second to last state goes
    to the last; the last restarts from the start distribution, itself drawn uniformly from the simplex.

    Args:
        num_states: S ≥ 2, the number of states.
        gamma: γ in ``[0, 1)``, the discount.
        features: ``"one_hot"`` (d = S) or ``"random"`` (entries from U(−1, 1)).
        num_features: d ≥ 1, the number of random features, 4 by default; with one-hot features None or S.
        representable: Whether the value is linear in the features. If so w* ~ U(−1, 1)ᵈ, v = Φw* and
            r = (I − γP)v; otherwise each reward is from U(−1, 1).
        task_seed: Names the chain: the same seed and arguments give the same chain.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of its range.

    Example:
        >>> boyan_chain(num_states=3).transition_matrix[1]
        array([0., 0., 1.])
    """
    streams = task_streams(arguments.task_seed(task_seed), 3)
    return _draw(_boyan, 1, streams, num_states, gamma, features, num_features, representable)[0]


def loop_chain(
    *,
    num_states: int = 10,
    gamma: float = 0.9,
    features: str = "one_hot",
    num_features: int | None = None,
    representable: bool = False,
    sparsity: float = 0.5,
    task_seed: int = 0,
) -> FiniteProcess:
    """Return a random ergodic chain: a cycle through all states plus random edges.

    The cycle makes the chain irreducible and a loop at state 0 makes it aperiodic, so it is ergodic at any sparsity.
    Of the remaining edges a share is absent; each row is the normalised random weights, from U(0, 1), of its edges.

    Args:
        num_states: S ≥ 2, the number of states.
        gamma: γ in ``[0, 1)``, the discount.
        features: ``"one_hot"`` (d = S) or ``"random"`` (entries from U(−1, 1)).
        num_features: d ≥ 1, the number of random features, 4 by default; with one-hot features None or S.
        representable: Whether the value is linear in the features. If so w* ~ U(−1, 1)ᵈ, v = Φw* and
            r = (I − γP)v; otherwise each reward is from U(−1, 1).
        sparsity: The share in ``[0, 1]`` of absent edges among the S² − S − 1 that ergodicity does not need.
        task_seed: Names the chain: the same seed and arguments give the same chain.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of its range.

    Example:
        >>> loop_chain(num_states=3, sparsity=1.0).transition_matrix[1:]
        array([[0., 0., 1.], [1., 0., 0.]])
    """
    law = partial(_loop, sparsity=arguments.real("sparsity", sparsity, 0.0, 1.0))
    streams = task_streams(arguments.task_seed(task_seed), 3)
    return _draw(law, 1, streams, num_states, gamma, features, num_features, representable)[0]


def boyan_chains(
    count: int,
    rng: np.random.Generator,
    *,
    num_states: int = 10,
    gamma: float = 0.9,
    features: str = "one_hot",
    num_features: int | None = None,
    representable: bool = False,
) -> FiniteBatch:
    """Return ``count`` independent chains with the law of :func:`boyan_chain`, drawn by array operations.

    Args:
        count: N ≥ 1.
        rng: The source of the draws.
        num_states: As in :func:`boyan_chain`, and so are those that follow.
        gamma: γ.
        features: ``"one_hot"`` or ``"random"``.
        num_features: d.
        representable: Whether values are linear in the features.

    Example:
        >>> boyan_chains(5, np.random.default_rng(0), num_states=3).values().shape
        (5, 3)
    """
    count = arguments.integer("count", count, 1)
    return _draw(
        _boyan, count, [arguments.generator("rng", rng)] * 3, num_states, gamma, features, num_features, representable
    )


def loop_chains(
    count: int,
    rng: np.random.Generator,
    *,
    num_states: int = 10,
    gamma: float = 0.9,
    features: str = "one_hot",
    num_features: int | None = None,
    representable: bool = False,
    sparsity: float = 0.5,
) -> FiniteBatch:
    """Return ``count`` independent chains with the law of :func:`loop_chain`; arguments as of ``boyan_chains``."""
    law = partial(_loop, sparsity=arguments.real("sparsity", sparsity, 0.0, 1.0))
    count = arguments.integer("count", count, 1)
    return _draw(
        law, count, [arguments.generator("rng", rng)] * 3, num_states, gamma, features, num_features, representable
    )


def _boyan(count: int, S: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    p, start = rng.random((count, S - 2)), rng.dirichlet(np.ones(S), count)
    P = np.zeros((count, S, S))
    i = np.arange(S - 2)
    P[:, i, i + 1], P[:, i, i + 2] = p, 1.0 - p
    P[:, S - 2, S - 1] = 1.0
    P[:, S - 1] = start
    return P, start


def _loop(count: int, S: int, rng: np.random.Generator, *, sparsity: float) -> tuple[np.ndarray, np.ndarray]:
    edges = np.broadcast_to(np.eye(S, k=1, dtype=bool), (count, S, S)).copy()
    edges[:, -1, 0] = edges[:, 0, 0] = True
    others = np.flatnonzero(~edges[0])
    kept = rng.permuted(np.tile(others, (count, 1)), axis=1)[:, round(sparsity * len(others)) :]
    np.put_along_axis(edges.reshape(count, -1), kept, True, axis=1)
    weights = np.where(edges, 1.0 - rng.random((count, S, S)), 0.0)  # in (0, 1]: an edge never has weight 0
    return weights / weights.sum(axis=-1, keepdims=True), rng.dirichlet(np.ones(S), count)


def _draw(
    law: Law,
    count: int,
    streams: Sequence[np.random.Generator],
    num_states: int,
    gamma: float,
    features: str,
    num_features: int | None,
    representable: bool,
) -> FiniteBatch:
    """Return chains with transitions of ``law`` and random features and rewards, from one stream for each."""
    S = arguments.integer("num_states", num_states, 2)
    _check_size(count, S)
    transition_rng, feature_rng, reward_rng = streams
    P, start = law(count, S, transition_rng)
    gamma = arguments.discount(gamma)
    phi = _features(features, num_features, count, S, feature_rng)
    if arguments.flag("representable", representable):
        v = phi @ reward_rng.uniform(-1.0, 1.0, (count, phi.shape[-1], 1))
        r = (v - gamma * P @ v)[..., 0]
    else:
        r = reward_rng.uniform(-1.0, 1.0, (count, S))
    return FiniteBatch(*map(read_only, (P, r, phi, start)), gamma=gamma)


def _check_size(count: int, S: int) -> None:
    """Raise ValueError where N matrices of S × S transitions are more than a machine holds, before any is drawn."""
    if count * S * S > MOST_TRANSITIONS:
        raise ValueError(
            f"num_states must be at most {math.isqrt(MOST_TRANSITIONS // count):,} for {count:,} chain(s) at once; "
            f"got {S:,}. Each holds S × S transition probabilities, {8e-9 * count * S * S:,.0f} GB in all."
        )


def _features(kind: str, num_features: int | None, count: int, S: int, rng: np.random.Generator) -> np.ndarray:
    """Return the feature matrices Φ, ``(N, S, d)``."""
    if arguments.choice("features", kind, FEATURES) == "random":
        d = DEFAULT_NUM_FEATURES if num_features is None else num_features
        d = arguments.integer("num_features", d, 1, MOST_TRANSITIONS // (count * S))  # d numbers for each state
        return rng.uniform(-1.0, 1.0, (count, S, d))
    if num_features is not None and arguments.integer("num_features", num_features, 1) != S:
        raise ValueError(
            f"num_features must be None or num_states={S} with one-hot features; got {num_features}. "
            "Leave it out, or use features='random'."
        )
    return np.broadcast_to(read_only(np.eye(S)), (count, S, S))
