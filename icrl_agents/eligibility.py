"""What linear policy evaluation reads from a context: next features and eligibility traces."""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch
from torch import Tensor

from icrl_agents.arrays import differentiated, floating, take_rows
from icrl_agents.blockwise import row_blocks
from icrl_agents.context import Context
from icrl_agents.distinct import group_rows
from icrl_agents.magnitudes import widened

ROUNDING = 4
"""Units in the last place within which γx′ is x."""
_SHORT = 1_000
"""Shorter contexts are not searched for equal rows: all pairs cost less."""


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
    decay = _delayed(lambda_ * widened(context.discounts * context.contiguous)[..., None], 1)  # squared at each step
    span = 1
    while span < n:
        rows = rows + decay.to(rows) * _delayed(rows, span)
        decay = decay * _delayed(decay, span)
        span *= 2
    return rows


def num_transitions(context: Context) -> Tensor:
    """The n of 1/n: valid transitions of each context, ``(*batch,)``, at least 1."""
    return context.mask.sum(-1).clamp(min=1).to(context.dtype)


def stable_step_size(context: Context, readers: Tensor, directions: Tensor, terms: Tensor | None = None) -> Tensor:
    """Step size α = n / max_k Σ_i |readers_iᵀ directions_k|, ``(*batch,)``; n where nothing is reached.

    A product is how much v(x_i), or δ_i, moves when transition k has δ_k = 1 and α = n.

    Args:
        context: n valid transitions.
        readers: ``(*batch, n, D)``.
        directions: ``(*batch, n, D)``.
        terms: What the products are sums of, of which they may be no more than rounding, ``(*batch,)``. That reaches
            nothing either: α is then n over this, at which it moves nothing, in whatever unit.
    """
    n = num_transitions(context)
    largest = largest_reach(readers, directions)
    if terms is not None:
        products, states = (torch.finfo(dtype).eps for dtype in (terms.dtype, context.dtype))
        rounding = max(directions.shape[-1] * products, (ROUNDING * states) ** 2) * terms
        largest = torch.where(largest > rounding, largest, terms)
    return n / torch.where(largest > 0, largest, 1.0)


def largest_reach(readers: Tensor, directions: Tensor) -> Tensor:
    """max_k Σ_i |readers_iᵀ directions_k|, ``(*batch,)``, of rows ``(*batch, n, D)``; 0 of none.

    Products are never held all at once. Equal rows are taken once, so that n may be large where they are few.
    """
    batch, n = readers.shape[:-2], readers.shape[-2]
    if n == 0:
        return readers.new_zeros(batch)
    readers, counts = _once(readers)
    directions, _ = _once(directions)
    blocks = row_blocks(directions, readers.shape[-2] * batch.numel())
    largest = readers.new_zeros(batch)
    for block in blocks:  # what is kept of each would keep its memory from being used by the next
        reach = (block @ readers.mT).abs()
        reach = reach if counts is None else reach * counts[..., None, :]
        largest = torch.maximum(largest, reach.sum(-1).amax(-1))
    return largest


def _once(rows: Tensor) -> tuple[Tensor, Tensor | None]:
    """The distinct ones of ``rows (*batch, n, D)`` and how often each is there, ``(*batch, G)``; 0 beyond them.

    Rows as they are, and None, where that gains little or a gradient is taken, which is each row's own.
    """
    n = rows.shape[-2]
    if n < _SHORT or differentiated(rows):
        return rows, None
    groups = group_rows(rows)
    if groups.first.shape[-1] > n // 2:
        return rows, None
    counts = rows.new_zeros(groups.first.shape).scatter_add(-1, groups.group, torch.ones_like(rows[..., 0]))
    return take_rows(rows, groups.first), counts


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
