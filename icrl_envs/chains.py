"""Random finite chains: each is a pure function of its arguments and of the seed that names the task."""

import numpy as np

from icrl_envs import arguments
from icrl_envs.process import FiniteProcess
from icrl_envs.random_streams import task_streams

FEATURES = ("one_hot", "random")
DEFAULT_NUM_FEATURES = 4


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
    S = arguments.integer("num_states", num_states, 2)
    rng, *streams = task_streams(arguments.task_seed(task_seed), 3)
    p = rng.random(S - 2)
    start = rng.dirichlet(np.ones(S))
    P = np.zeros((S, S))
    i = np.arange(S - 2)
    P[i, i + 1], P[i, i + 2] = p, 1.0 - p
    P[S - 2, S - 1] = 1.0
    P[S - 1] = start
    return _with_rewards(P, start, streams, features, num_features, representable, gamma)


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
    S = arguments.integer("num_states", num_states, 2)
    absent = arguments.real("sparsity", sparsity, 0.0, 1.0)
    rng, *streams = task_streams(arguments.task_seed(task_seed), 3)
    edges = np.eye(S, k=1, dtype=bool)
    edges[-1, 0] = edges[0, 0] = True
    others = np.flatnonzero(~edges)
    edges.flat[rng.permutation(others)[round(absent * len(others)) :]] = True
    weights = np.where(edges, 1.0 - rng.random((S, S)), 0.0)  # in (0, 1]: an edge never has weight 0
    P = weights / weights.sum(axis=1, keepdims=True)
    start = rng.dirichlet(np.ones(S))
    return _with_rewards(P, start, streams, features, num_features, representable, gamma)


def _with_rewards(
    P: np.ndarray,
    start: np.ndarray,
    streams: list[np.random.Generator],
    features: str,
    num_features: int | None,
    representable: bool,
    gamma: float,
) -> FiniteProcess:
    """Return the process on transitions ``P (S, S)`` with random features and rewards, one stream for each."""
    gamma = arguments.discount(gamma)
    feature_rng, reward_rng = streams
    phi = _features(features, num_features, len(P), feature_rng)
    if not isinstance(representable, bool):
        raise TypeError(f"representable must be True or False; got {representable!r}.")
    if representable:
        v = phi @ reward_rng.uniform(-1.0, 1.0, phi.shape[1])
        r = v - gamma * P @ v
    else:
        r = reward_rng.uniform(-1.0, 1.0, len(P))
    return FiniteProcess(P, r, phi, gamma, start)


def _features(kind: str, num_features: int | None, S: int, rng: np.random.Generator) -> np.ndarray:
    """Return the feature matrix Φ, ``(S, d)``."""
    if arguments.choice("features", kind, FEATURES) == "random":
        d = DEFAULT_NUM_FEATURES if num_features is None else arguments.integer("num_features", num_features, 1)
        return rng.uniform(-1.0, 1.0, (S, d))
    if num_features is not None and arguments.integer("num_features", num_features, 1) != S:
        raise ValueError(
            f"num_features must be None or num_states={S} with one-hot features; got {num_features}. "
            "Leave it out, or use features='random'."
        )
    return np.eye(S)
