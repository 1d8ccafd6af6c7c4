"""What can be measured about an evaluator: value errors and TD losses."""

from __future__ import annotations

import torch
from torch import Tensor

from icrl_agents.context import Context
from icrl_agents.value_function import ValueFunction


def msve(values: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean squared value error Σ_i ρ_i (v_i − v*_i)².

    Args:
        values: Estimated values, ``(*batch, m)``.
        targets: True values or Monte-Carlo returns, ``(m,)`` or ``(*batch, m)``.
        weights: ρ, non-negative, ``(m,)``, normalised here; for instance a stationary distribution, or the
            indicator of the states that count. Default uniform.

    Returns:
        ``(*batch,)``.
    """
    return _average((values - targets).square(), weights)


def relative_msve(values: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """MSVE over the mean square of the targets: 0 is exact, 1 is what v = 0 scores. Arguments of ``msve``."""
    return msve(values, targets, weights) / _average(targets.square(), weights)


def centred_msve(values: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """MSVE after the best state-independent offset, which cancels in advantages and rankings, is taken away.

    Arguments of ``msve``.
    """
    error = values - targets
    return _average((error - _average(error, weights)[..., None]).square(), weights)


def relative_centred_msve(values: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Centred MSVE over the variance of the targets: 0 is exact, 1 is what any constant scores.

    Arguments of ``msve``.
    """
    return centred_msve(values, targets, weights) / centred_msve(torch.zeros_like(targets), targets, weights)


def td_loss(value_function: ValueFunction, context: Context, depths: list[int]) -> Tensor:
    """Mean squared TD error mean_k δ_k² on ``context``, held out or not, at several depths.

    Args:
        value_function: The value function, whatever its evaluator.
        context: Transitions, ``(*batch, n)``.
        depths: Depths ℓ in 0 … ``value_function.max_depth``.

    Returns:
        ``(*batch, len(depths))``.
    """
    values = value_function.by_depth(context.points, depths)
    losses = [context.td_errors(values[..., i]).square().sum(-1) for i in range(len(depths))]
    return torch.stack(losses, dim=-1) / context.mask.sum(-1, keepdim=True).clamp(min=1)


def _average(values: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        return values.mean(-1)
    weights = weights.to(values)
    return (values * weights).sum(-1) / weights.sum(-1)
