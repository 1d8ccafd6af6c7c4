"""Linear systems of closed forms: of each context in double precision, and refused where digits are lost."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor

from icrl_agents.context import Context
from icrl_agents.kernels import Kernel
from icrl_agents.value_function import Basis, ValueFunction
from icrl_agents.weighted_context import Transitions, read_points

SMALLEST_RECIPROCAL_CONDITION = 1e-12
"""Systems below it are refused: fewer than four digits of their solution would be meaningful."""
LARGEST_ROUNDING = 1e-3
"""Values in single precision further than this from those in double precision, over the largest or all, are refused."""


def check_ridge(ridge: float) -> None:
    """Raises ValueError if ``ridge`` is no finite number ≥ 0."""
    if isinstance(ridge, bool) or not isinstance(ridge, Real) or not 0 <= ridge <= torch.finfo(torch.float64).max:
        raise ValueError(f"ridge: expected a finite number ≥ 0, got {ridge!r}.")


def in_double(context: Context, kernel: Kernel) -> Context:
    """Returns ``context`` in float64, that no more digits than those of its states are missing.

    Raises:
        TypeError: If the kernel cannot be asked about such states.
    """
    wide = context.to(dtype=torch.float64)
    if wide.dtype != context.dtype and len(context) > 0:
        some = read_points(wide)[..., :1, :]
        try:
            kernel(some, some)
        except RuntimeError as error:
            raise TypeError(
                f"kernel: asked in double precision here, which it does not take ({error}); convert it and the "
                "context, for instance with .double() and .to(dtype=torch.float64), or its weights where used, "
                "with .to(x)."
            ) from error
    return wide


def each_context(solve: Callable[..., Tensor], context: Transitions, *tensors: Tensor) -> Tensor:
    """``solve(mask, *tensors)`` of each context of a batch, from and in float64."""
    batch = context.mask.shape[:-1]
    flat = [t.double().reshape(batch.numel(), *t.shape[len(batch) :]) for t in tensors]
    mask = context.mask.reshape(batch.numel(), len(context))
    solved = torch.stack([solve(*each) for each in zip(mask, *flat, strict=True)])
    return solved.reshape(*batch, *solved.shape[1:])


def expansion(context: Context, basis: Basis, w: Tensor, wide: Basis) -> ValueFunction:
    """The value function v(x) = Σ_k b_k(x) w_k, of depth 0, in the context's type.

    Args:
        context: The context.
        basis: b, in the context's type.
        w: What was solved for in float64, ``(*batch, k)``.
        wide: b in float64.

    Raises:
        ValueError: If terms cancel so far that the context's type holds few digits of their sum.
    """
    found = ValueFunction([basis], [w[..., None, :].to(context.dtype)], context)
    if context.dtype != w.dtype and len(context) > 0:
        with torch.no_grad():
            points = read_points(context)
            exact = ValueFunction([wide], [w[..., None, :]], context.to(dtype=w.dtype))(points.to(w))
            gaps = (found(points) - exact).abs()
            gap, size = (torch.stack([v.sum(-1), v.amax(-1)]) for v in (gaps, exact.abs()))
        if bool((gap > LARGEST_ROUNDING * size).any()):
            worst = float((gap / size.clamp(min=torch.finfo(size.dtype).tiny)).max())
            raise ValueError(
                f"context: {context.dtype} rounds the values, sums of terms that cancel, by {worst:.1g} of themselves; "
                "take context.to(dtype=torch.float64), a narrower kernel or a larger ridge."
            )
    return found


def reciprocal_condition(matrix: Tensor, scale: Tensor | float) -> Tensor:
    """1 / (‖A⁻¹‖₁ max(‖A‖₁, scale)), ``(*batch,)``, of ``matrix (*batch, D, D)``, a difference of terms of that size.

    Where the terms cancel, what is left is rounding, of which the condition number by itself tells nothing.
    """
    norm = torch.linalg.matrix_norm(matrix, 1)
    largest = torch.maximum(norm, torch.as_tensor(scale, device=norm.device).to(norm))
    found = 1.0 / torch.linalg.cond(matrix, p=1) * norm / largest
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
