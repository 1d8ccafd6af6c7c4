"""What linear policy evaluation reads from a context: next features and eligibility traces."""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch
from torch import Tensor

from icrl_agents.arrays import floating
from icrl_agents.blockwise import row_blocks
from icrl_agents.context import Context


def features(states: Tensor) -> Tensor:
    """The states themselves, ``(*batch, m, d)``: the basis in which linear value functions are expanded."""
    return states


def discounted_features(context: Context) -> Tensor:
    """γ_k x′_k, ``(*batch, n, d)``; 0 where the transition terminates or is padding."""
    return context.discounts[..., None] * _successors(context)


def continuing_features(context: Context) -> Tensor:
    """x′_k without the discount, ``(*batch, n, d)``; 0 in the padding.

    Raises:
        ValueError: If a transition terminates, so that nothing follows it.
    """
    terminal = context.mask & (context.discounts == 0)
    if bool(terminal.any()):
        where = tuple(terminal.nonzero()[0].tolist())
        raise ValueError(
            "context: average-reward evaluation needs transitions that continue, got a terminal one (γ = 0) at "
            f"index {where}; expected any γ in (0, 1], which is then ignored."
        )
    return _successors(context).masked_fill(~context.mask[..., None], 0.0)


def eligibility_traces(context: Context, rows: Tensor, lambda_: float) -> Tensor:
    """Eligibility traces e_k = z_k + γ_{k−1} λ e_{k−1} along each trajectory, e_k = z_k where one starts.

    With the lower-triangular matrix M_ki = Π_{i≤j<k} γ_j λ inside each trajectory, e = M z; M is never formed: the
    recursion is run by doubling, in log₂ n steps.

    Args:
        context: n transitions; ``contiguous`` says where a trajectory continues.
        rows: z, one row per transition, ``(*batch, n, D)``.
        lambda_: λ in [0, 1].

    Returns:
        e, ``(*batch, n, D)``.
    """
    n, lambda_ = len(context), float(lambda_)
    if lambda_ == 0:
        return rows
    decay = _delayed((lambda_ * context.discounts * context.contiguous)[..., None], 1)
    span = 1
    while span < n:
        rows = rows + decay * _delayed(rows, span)
        decay = decay * _delayed(decay, span)
        span *= 2
    return rows


def num_transitions(context: Context) -> Tensor:
    """The n of 1/n: valid transitions of each context, ``(*batch,)``, at least 1."""
    return context.mask.sum(-1).clamp(min=1).to(context.dtype)


def stable_step_size(context: Context, readers: Tensor, directions: Tensor) -> Tensor:
    """Step size α = n / max_k Σ_i |readers_iᵀ directions_k|, ``(*batch,)``; n where nothing is reached.

    A product is how much v(x_i), or δ_i, moves when transition k has δ_k = 1 and α = n. They are never held all at
    once.

    Args:
        context: n valid transitions.
        readers: ``(*batch, n, D)``.
        directions: ``(*batch, n, D)``.
    """
    n = num_transitions(context)
    if len(context) == 0:
        return n
    blocks = row_blocks(directions, readers.shape[-2] * n.numel())
    largest = torch.stack([(block @ readers.mT).abs().sum(-1).amax(-1) for block in blocks]).amax(0)
    return n / torch.where(largest > 0, largest, 1.0)


def check_lambda(lambda_: float) -> float:
    """Returns ``lambda_`` if it lies in [0, 1]; raises ValueError otherwise."""
    if isinstance(lambda_, bool) or not isinstance(lambda_, Real) or not 0 <= lambda_ <= 1:
        raise ValueError(f"lambda_: expected a trace decay λ in [0, 1], got {lambda_!r}.")
    return float(lambda_)


def check_preconditioner(preconditioner: Any, dim: int | None = None) -> Tensor | None:  # noqa: ANN401
    """Returns C as a float64 tensor ``(d, d)`` (None for the identity); raises ValueError if it is not one."""
    if preconditioner is None:
        return None
    matrix = floating("preconditioner", preconditioner, integers=True).to(torch.float64)
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
    if not square or (dim is not None and len(matrix) != dim) or not bool(torch.isfinite(matrix).all()):
        size = "d" if dim is None else dim
        raise ValueError(
            f"preconditioner: expected a finite matrix ({size}, {size}) or None, got shape {tuple(matrix.shape)}."
        )
    return matrix


def _successors(context: Context) -> Tensor:
    index = context.successors[..., None].expand(*context.successors.shape, context.dim)
    return torch.gather(context.points, -2, index)


def _delayed(rows: Tensor, steps: int) -> Tensor:
    """Row k becomes row k − ``steps``, zero where there is none."""
    return torch.cat([torch.zeros_like(rows[..., :steps, :]), rows[..., :-steps, :]], dim=-2)
