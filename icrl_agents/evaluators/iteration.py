"""Sweeps over a context in the space of its kernel expansion, v_t(x) = Σ_k K(x_k, x) w_k, and their limit."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from icrl_agents.attention import Attention, attend_points
from icrl_agents.blockwise import BlockwiseMatrix
from icrl_agents.context import Context
from icrl_agents.error_dynamics import check_sweeps
from icrl_agents.evaluators.fixed_points import fixed_point
from icrl_agents.evaluators.nystrom import Nystrom
from icrl_agents.value_function import ValueFunction
from icrl_agents.weighted_context import weighted


def iterate(
    rule: Attention, context: Context, num_sweeps: float, step_size: float = 1.0, approximation: Nystrom | None = None
) -> ValueFunction:
    """Runs w_{t+1} = w_t + α δ⁽ᵗ⁾ from w_0 = 0, equal states kept once where that pays.

    Args:
        rule: The attention K.
        context: The context.
        num_sweeps: L ≥ 0, or infinite for the limit.
        step_size: α > 0.
        approximation: What stands in for K during the sweeps; None for K itself.

    Raises:
        DivergenceError: If values leave the finite or the possible numbers, naming the sweep.
    """
    if approximation is not None:
        return approximation.iterate(rule, context, num_sweeps, step_size)
    if num_sweeps == math.inf:
        return fixed_point(rule, context, step_size)
    distinct = weighted(context)
    attention, K, step = attend_points(rule, distinct)
    step = step_size * step
    w, v = torch.zeros_like(distinct.rewards), torch.zeros_like(distinct.points[..., 0])
    history = [w]
    for sweep in range(int(num_sweeps)):
        v = apply(K, w) if sweep > 0 else v
        w = torch.addcmul(w, step, distinct.td_errors(v))
        history.append(w)
    coefficients = torch.stack(history, dim=-2)
    check_sweeps(rule, context, coefficients, K, v, step_size)
    return ValueFunction([attention], [coefficients], context, depth=int(num_sweeps))


def apply(K: Tensor | BlockwiseMatrix, w: Tensor) -> Tensor:
    """K w, ``(*batch, m)``, of ``w (*batch, n)``."""
    return torch.mv(K, w) if isinstance(K, Tensor) and w.ndim == 1 else (K @ w[..., None])[..., 0]
