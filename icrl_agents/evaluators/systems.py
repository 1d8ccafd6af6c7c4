"""Linear systems of closed forms: of each context in double precision, and refused where digits are lost."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor

from icrl_agents.context import Context

SMALLEST_RECIPROCAL_CONDITION = 1e-12
"""Systems below it are refused: fewer than four digits of their solution would be meaningful."""


def check_ridge(ridge: float) -> None:
    """Raises ValueError if ``ridge`` is no finite number ≥ 0."""
    if isinstance(ridge, bool) or not isinstance(ridge, Real) or not 0 <= ridge <= torch.finfo(torch.float64).max:
        raise ValueError(f"ridge: expected a finite number ≥ 0, got {ridge!r}.")


def each_context(solve: Callable[..., Tensor], context: Context, *tensors: Tensor) -> Tensor:
    """Applies ``solve(mask, *tensors)`` to each context of a batch, in float64."""
    batch = context.mask.shape[:-1]
    flat = [t.double().reshape(batch.numel(), *t.shape[len(batch) :]) for t in tensors]
    mask = context.mask.reshape(batch.numel(), len(context))
    solved = torch.stack([solve(*each) for each in zip(mask, *flat, strict=True)])
    return solved.reshape(*batch, *solved.shape[1:]).to(context.dtype)


def reciprocal_condition(matrix: Tensor, scale: Tensor | float) -> Tensor:
    """1 / (‖A⁻¹‖₁ max(‖A‖₁, scale)), ``(*batch,)``, of ``matrix (*batch, D, D)``, a difference of terms of that size.

    Where the terms cancel, what is left is rounding, of which the condition number by itself tells nothing.
    """
    norm = torch.linalg.matrix_norm(matrix, 1)
    found = 1.0 / torch.linalg.cond(matrix, p=1) * norm / torch.maximum(norm, torch.as_tensor(scale).to(norm))
    return torch.where(norm > 0, found, 0.0)


def solved(
    matrix: Tensor, right: Tensor, scale: Tensor | float, singular: Callable[[int], str], ridge: float
) -> Tensor:
    """Solves ``matrix @ x = right``; ValueError if that is singular or hopelessly ill-conditioned."""
    if len(matrix) == 0:
        return right
    reciprocal = float(reciprocal_condition(matrix, scale).detach())
    if not reciprocal >= SMALLEST_RECIPROCAL_CONDITION:
        rank = int(torch.linalg.matrix_rank(matrix))
        remedy = f"larger than {ridge:g}" if ridge else f"> 0, for instance {1e-6 * len(right):g}"
        raise ValueError(
            f"{singular(rank)} (reciprocal condition number {reciprocal:.0e}), so the context does not determine "
            f"the values, as with γ = 1 and no termination or with a kernel too wide for the distances between states; "
            f"pass ridge {remedy}."
        )
    return torch.linalg.solve(matrix, right)
