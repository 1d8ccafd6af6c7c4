"""Errors of values against ground truth, free of what the ground truth's own noise puts in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from icrl_agents.arrays import check_kind, reals
from icrl_agents.ground_truth.values import GroundTruth


class Measured(NamedTuple):
    """An error and how well it is known.

    Args:
        error: Unbiased, and so below 0 now and then where it is small.
        standard_error: What the noise of the ground truth leaves open, for these states; other states would add theirs.
    """

    error: float
    standard_error: float


def true_msve(values: np.ndarray, truth: GroundTruth) -> Measured:
    """Mean squared value error, Σ_i ((v_i − v̂_i)² − s_i²) / m, with s_i the standard error of v̂_i.

    Since E (v − v̂)² = (v − v*)² + s², it is unbiased. Its variance, for normal noise and n continuations, is
    Σ_i (4 (v_i − v*_i)² s_i² + 2 s_i⁴ n / (n − 1)) / m², of which 4 (v_i − v̂_i)² s_i² − s_i⁴ (2n − 4) / (n + 1) in
    place of the bracket is an unbiased estimate. The standard error is the root of its sum, or of what the second term
    alone comes to, 2 s_i⁴ n / (n + 1), where that is larger, as by chance where values are close to the truth.

    Args:
        values: v at the states of ``truth``, ``(m,)``.
        truth: v̂.

    Raises:
        ValueError: If there is not one finite value for each state.
    """
    gaps, noise = _checked(values, truth)
    return _measured(gaps, noise, float(noise.mean()), truth.continuations)


def true_centred_msve(values: np.ndarray, truth: GroundTruth) -> Measured:
    """The same after the best constant is taken away: Σ_i ((e_i − ē)² − (1 − 1/m) s_i²) / m with e = v − v̂.

    Arguments of ``true_msve``.
    """
    gaps, noise = _checked(values, truth)
    return _measured(gaps - gaps.mean(), noise, float(noise.mean()) * (1.0 - 1.0 / len(gaps)), truth.continuations)


def _measured(gaps: np.ndarray, noise: np.ndarray, bias: float, n: int) -> Measured:
    """From v − v̂, s², what s² puts into the mean of (v − v̂)², and the number of continuations."""
    squares = np.square(noise)
    bracket = 4.0 * np.square(gaps) * noise - squares * (2 * n - 4) / (n + 1)
    variance = max(float(bracket.sum()), float(squares.sum()) * 2 * n / (n + 1)) / len(gaps) ** 2
    return Measured(float(np.square(gaps).mean()) - bias, variance**0.5)


def _checked(values: np.ndarray, truth: GroundTruth) -> tuple[np.ndarray, np.ndarray]:
    """V − v̂ and s², ``(m,)``."""
    check_kind("truth", truth, GroundTruth)
    values = reals("values", values).numpy(force=True)
    if values.shape != truth.values.shape:
        raise ValueError(f"values: expected one for each of {len(truth.values)} states, got shape {values.shape}.")
    if not np.isfinite(values).all():
        raise ValueError(f"values: expected finite numbers, got {values[~np.isfinite(values)][0]}.")
    return values - truth.values, np.square(truth.standard_errors)
