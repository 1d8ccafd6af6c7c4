"""Draws from cumulative probabilities, of many chains at once."""

import numpy as np

from icrl_envs import arguments
from icrl_envs.arrays import real_array


def sample_paths(
    cumulative_transitions: np.ndarray, cumulative_start: np.ndarray, length: int, rng: np.random.Generator
) -> np.ndarray:
    """Return N independent trajectories S_0 … S_length of N finite chains, integers ``(N, length + 1)``.

    Args:
        cumulative_transitions: Σ_{u ≤ s′} P(s, u), ``(N, S, S)``; or one chain's ``(1, S, S)`` for all.
        cumulative_start: Cumulative distribution of S_0, ``(N, S)``.
        length: Number of steps ≥ 0.
        rng: Source of the draws.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If shapes disagree, a row does not grow to 1, or ``length`` is negative.
    """
    arguments.integer("length", length, 0)
    arguments.generator("rng", rng)
    start = real_array("cumulative_start", cumulative_start, 2)
    transitions = real_array("cumulative_transitions", cumulative_transitions, 3)
    N, S = start.shape
    if transitions.shape not in ((N, S, S), (1, S, S)):
        raise ValueError(f"cumulative_transitions must have shape {(N, S, S)} or {(1, S, S)}; got {transitions.shape}.")
    for name, rows in (("cumulative_start", start), ("cumulative_transitions", transitions)):
        if (np.diff(rows) < 0).any() or (np.abs(rows[..., -1] - 1.0) > 1e-9).any():
            raise ValueError(f"{name} must have rows that grow to 1; take cumsum(axis=-1) of probabilities.")
    table = transitions.reshape(-1, S)
    offsets = S * np.arange(N) if len(transitions) > 1 else np.zeros(N, dtype=np.int64)
    path = np.empty((length + 1, N), dtype=np.int64)
    path[0] = inverted(start, rng)
    for t in range(length):
        path[t + 1] = inverted(table.take(offsets + path[t], axis=0), rng)
    return np.ascontiguousarray(path.T)


def inverted(cumulative_rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return one draw per row of cumulative probabilities ``(N, S)``: the first entry above a uniform number."""
    return (cumulative_rows > rng.random((len(cumulative_rows), 1))).argmax(axis=1)
