"""Advantages: how much better an action turned out than the policy's average, by any value function."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from icrl_agents.arrays import finite
from icrl_agents.context import Context, check_context
from icrl_agents.eligibility import check_lambda

_ROUNDING = 32
"""TD errors of n transitions are rounding below so many times √n units in the last place of the largest value."""


def generalised_advantages(context: Context, values: Tensor, lambda_: float) -> Tensor:
    """Generalised advantage estimates A_k = δ_k + γ_k λ A_{k+1} (arXiv 1506.02438, generalised advantage estimation).

    δ_k = R_k + γ_k v(x′_k) − v(x_k) is the TD error. The sum goes along each trajectory and stops at its end:
    behind a terminal transition (γ_k = 0) nothing follows and nothing is bootstrapped, behind a truncation nothing
    follows either, but δ_k bootstraps from the true final observation. At λ = 0 it is the TD error, at λ = 1 the
    return minus v.

    Args:
        context: n transitions in the order in which they happened, no batch dimensions.
        values: v at ``context.points``, shape ``(n + e,)``.
        lambda_: λ in [0, 1].

    Returns:
        A, shape ``(n,)``, without a gradient; of the wider type of context and values.

    Raises:
        TypeError: If ``values`` is no tensor of floating numbers.
        ValueError: If λ is outside [0, 1], the context has batch dimensions, or ``values`` another shape or NaN, or
            sums of its TD errors overflow.

    Example:
        >>> context = Context([[0.0], [1.0]], [1.0, 1.0], [0.9, 0.0], [[1.0], [2.0]])
        >>> generalised_advantages(context, context.rewards.new_zeros(2), lambda_=1.0)
        tensor([1.9000, 1.0000], dtype=torch.float64)
    """
    check_context(context)
    check_lambda(lambda_)
    if context.rewards.ndim != 1:
        raise ValueError(f"context: expected one without batch dimensions, got shape {tuple(context.rewards.shape)}.")
    errors = context.td_errors(values)
    if errors.ndim != 1:
        raise ValueError(f"values: expected shape ({len(context.points)},), got {tuple(values.shape)}.")
    finite("values", errors, " whose TD errors are finite")
    delta = errors.tolist()
    decay = (lambda_ * context.discounts * context.contiguous).tolist()
    following = 0.0
    for k in range(len(delta) - 1, -1, -1):
        following = delta[k] = delta[k] + decay[k] * following
    advantages = errors.new_tensor(delta)
    finite("values", advantages, " whose TD errors have finite sums")
    return advantages


def are_rounding(errors: Tensor, values: Tensor, rewards: Tensor) -> bool:
    """Whether TD errors δ_k = R_k + γ_k v(x′_k) − v(x_k), not all of numbers that are 0, are no more than it leaves."""
    if errors.numel() < 2:
        return False
    largest = float(torch.cat([values.detach(), rewards.detach()]).abs().max())
    rounding = _ROUNDING * math.sqrt(len(errors)) * torch.finfo(values.dtype).eps * largest
    return largest > 0.0 and float(errors.detach().abs().max()) <= rounding
