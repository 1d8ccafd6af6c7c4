"""How far an observation is from Markov: what it leaves open of the value."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from icrl_agents.arrays import check_kind, reals
from icrl_agents.ground_truth.values import GroundTruth
from icrl_agents.magnitudes import resolution

WIDTHS = (0.5, 1.0, 2.0, 4.0)
"""Length scales of the regression, in medians of the distances."""
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
CONSTANT = 1e-9
"""A column is constant where its spread is a smaller share of its largest number, as what physics leaves at rest."""


def unexplained_share(observations: np.ndarray, truth: GroundTruth) -> float:
    """The share of the value's variance that a regression on the observation leaves, each state left out in turn.

    Kernel ridge regression with an RBF kernel on standardised observations; of leaving state i out the error is
    α_i / [(K + ηI)⁻¹]_ii with α = (K + ηI)⁻¹ (v̂ − mean), in closed form. Width and ridge η are those that leave
    least. A column whose deviation is below 1e-9 of its largest number counts as constant. What the values' standard
    errors put in is taken away above and below. It bounds the share that the
    observation leaves open from above, since few states are hard to interpolate whatever they show: compare it
    between observations of the same states.

    Args:
        observations: ``(m, d)``, of the states of ``truth`` and in their order.
        truth: Their values.

    Returns:
        At least 0; about 1 where the observation says nothing; NaN where the values do not vary, or noise hides whether
        they do: where their variance without it is estimated to be no more than 0.

    Raises:
        TypeError: If ``observations`` are no real numbers, or ``truth`` is no ground truth.
        ValueError: If there is not one row of finite numbers for each state, or less than two states.
    """
    check_kind("truth", truth, GroundTruth)
    x = _standardised(observations)
    if len(x) != len(truth.values):
        raise ValueError(f"observations: expected one of each of {len(truth.values)} states, got {len(x)}.")
    y = truth.values - truth.values.mean()
    noise = float(np.square(truth.standard_errors).mean())
    squares = np.square(x[:, None] - x[None]).sum(-1)
    if truth.value_variance <= 0:
        return float("nan")
    pairs = squares[np.triu_indices(len(x), 1)]
    apart = pairs if np.median(pairs) > 0 else pairs[pairs > 0]  # where most states look the same
    median = float(np.median(apart)) if apart.size else 1.0
    left = min(
        _left_out(np.exp(-squares / (2 * median * width**2)), y, ridge)
        for width, ridge in itertools.product(WIDTHS, RIDGES)
    )
    return max(left - noise, 0.0) / truth.value_variance


def hidden_share(truth: GroundTruth, other: GroundTruth) -> float:
    """½ E[(v(s) − v(s′))²] / Var(v) over pairs of states that look the same: what the observation cannot tell.

    What the noise of both puts into the squares is taken away, s² + s′² − 2 k c/(n n′), with c the covariance of the
    first k = min(n, n′) returns of both: it is 0 up to chance, but where continuations of s and s′ had the same seed.
    With few continuations the share may so come out negative; it is NaN where the variance of the values itself does.

    Args:
        truth: Values of states s.
        other: Values of states s′ with the same observations, hidden variables otherwise.

    Raises:
        TypeError: If one is no ground truth.
        ValueError: If the observations, γ or horizons are not the same.
    """
    for name, given in (("truth", truth), ("other", other)):
        check_kind(name, given, GroundTruth)
    if (truth.gamma, truth.horizon) != (other.gamma, other.horizon):
        raise ValueError(
            f"other: expected gamma={truth.gamma} and horizon={truth.horizon}, got {other.gamma} and {other.horizon}."
        )
    if not np.array_equal(truth.observations, other.observations):
        raise ValueError("other: expected states with the same observations, got other ones.")
    pairs = min(truth.continuations, other.continuations)
    first, second = (
        each.returns[:, :pairs] - each.returns[:, :pairs].mean(1, keepdims=True) for each in (truth, other)
    )
    covariance = (first * second).sum(1) / (pairs - 1)
    shared = 2 * pairs * covariance / (truth.continuations * other.continuations)
    noise = np.square(truth.standard_errors) + np.square(other.standard_errors) - shared
    half = 0.5 * float((np.square(truth.values - other.values) - noise).mean())
    return half / truth.value_variance if truth.value_variance > 0 else float("nan")


def nearest(observations: np.ndarray) -> np.ndarray:
    """Index of the state that looks most like each, itself left out, ``(m,)``: by distance of standardised rows.

    A column whose deviation is below 1e-9 of its largest number, or no more than float32 rounds that where it holds
    the observations, counts as constant.

    Raises:
        ValueError: If ``observations`` are no rows of finite numbers, or less than two.
    """
    x = _standardised(observations)
    squares = np.square(x[:, None] - x[None]).sum(-1)
    np.fill_diagonal(squares, np.inf)
    return squares.argmin(1)


def _standardised(rows: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and variance 1, whatever their units; constant ones become 0."""
    rows = reals("observations", rows).numpy(force=True)
    if rows.ndim != 2 or len(rows) < 2 or not np.isfinite(rows).all():
        raise ValueError(f"observations: expected two rows (m, d) of finite numbers at least, got shape {rows.shape}.")
    rounded = resolution(torch.from_numpy(rows))[0].numpy()  # before whole numbers are in units of their own
    rows = np.ldexp(rows, -np.frexp(np.abs(rows).max(0))[1])  # by powers of two, so that squares stay in range
    spread, constant = rows.std(0), np.maximum(CONSTANT, rounded)
    return (rows - rows.mean(0)) / np.where(spread > constant, spread, np.inf)


def _left_out(kernel: np.ndarray, y: np.ndarray, ridge: float) -> float:
    """Mean square of the errors of leaving each row out."""
    inverse = np.linalg.inv(kernel + ridge * np.eye(len(y)))
    return float(np.square(inverse @ y / np.diag(inverse)).mean())
