"""Draws from cumulative probabilities, of many chains at once."""

import numpy as np


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
        ValueError: If shapes disagree, or a row does not grow to 1.
    """
    N, S = cumulative_start.shape
    for name, rows in {"cumulative_transitions": cumulative_transitions, "cumulative_start": cumulative_start}.items():
        if rows.shape[-1] != S or not ((np.diff(rows) >= 0).all() and (np.abs(rows[..., -1] - 1.0) < 1e-9).all()):
            raise ValueError(
                f"{name}: expected rows of {S} numbers that grow to 1; take cumsum(axis=-1) of probabilities."
            )
    table = cumulative_transitions.reshape(-1, S)
    offsets = S * np.arange(N) if len(cumulative_transitions) > 1 else np.zeros(N, dtype=np.int64)
    path = np.empty((length + 1, N), dtype=np.int64)
    path[0] = inverted(cumulative_start, rng)
    for t in range(length):
        path[t + 1] = inverted(table.take(offsets + path[t], axis=0), rng)
    return np.ascontiguousarray(path.T)


def inverted(cumulative_rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return one draw per row of cumulative probabilities ``(N, S)``: the first entry above a uniform number."""
    return (cumulative_rows > rng.random((len(cumulative_rows), 1))).argmax(axis=1)
