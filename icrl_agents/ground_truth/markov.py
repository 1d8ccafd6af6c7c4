"""How far an observation is from Markov: what it leaves open of the value."""

from __future__ import annotations

import itertools

import numpy as np

from icrl_agents.ground_truth.values import GroundTruth

WIDTHS = (0.5, 1.0, 2.0, 4.0)
"""Length scales of the regression, in medians of the distances."""
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def unexplained_share(observations: np.ndarray, truth: GroundTruth) -> float:
    """The share of the value's variance that a regression on the observation leaves, each state left out in turn.

    Kernel ridge regression with an RBF kernel on standardised observations; of leaving state i out the error is
    α_i / [(K + ηI)⁻¹]_ii with α = (K + ηI)⁻¹ (v̂ − mean), in closed form. Width and ridge η are those that leave
    least. What the values' standard errors put in is taken away above and below. It bounds the share that the
    observation leaves open from above, since few states are hard to interpolate whatever they show: compare it
    between observations of the same states.

    Args:
        observations: ``(m, d)``, of the states of ``truth`` and in their order.
        truth: Their values.

    Returns:
        At least 0; about 1 where the observation says nothing; NaN where the values do not vary.
    """
    x = _standardised(observations)
    y = truth.values - truth.values.mean()
    noise = float(np.square(truth.standard_errors).mean())
    squares = np.square(x[:, None] - x[None]).sum(-1)
    median = float(np.median(squares[np.triu_indices(len(x), 1)]))
    if truth.value_variance <= 0 or median == 0:
        return float("nan")
    left = min(
        _left_out(np.exp(-squares / (2 * median * width**2)), y, ridge)
        for width, ridge in itertools.product(WIDTHS, RIDGES)
    )
    return max(left - noise, 0.0) / truth.value_variance


def hidden_share(truth: GroundTruth, other: GroundTruth) -> float:
    """½ E[(v(s) − v(s′))²] / Var(v) over pairs of states that look the same: what the observation cannot tell.

    What the standard errors put into the squares is taken away; with few continuations it may so come out negative.

    Args:
        truth: Values of states s.
        other: Values of states s′ with the same observations, hidden variables otherwise.

    Raises:
        ValueError: If the observations are not the same.
    """
    if not np.array_equal(truth.observations, other.observations):
        raise ValueError("other: expected states with the same observations, got other ones.")
    noise = np.square(truth.standard_errors) + np.square(other.standard_errors)
    half = 0.5 * float((np.square(truth.values - other.values) - noise).mean())
    return half / truth.value_variance if truth.value_variance > 0 else float("nan")


def nearest(observations: np.ndarray) -> np.ndarray:
    """Index of the state that looks most like each, itself left out, ``(m,)``: by distance of standardised rows."""
    x = _standardised(observations)
    squares = np.square(x[:, None] - x[None]).sum(-1)
    np.fill_diagonal(squares, np.inf)
    return squares.argmin(1)


def _standardised(rows: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and variance 1; constant ones become 0."""
    spread = rows.std(0)
    return (rows - rows.mean(0)) / np.where(spread > 1e-9, spread, np.inf)


def _left_out(kernel: np.ndarray, y: np.ndarray, ridge: float) -> float:
    """Mean square of the errors of leaving each row out."""
    inverse = np.linalg.inv(kernel + ridge * np.eye(len(y)))
    return float(np.square(inverse @ y / np.diag(inverse)).mean())
