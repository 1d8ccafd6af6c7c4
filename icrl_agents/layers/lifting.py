"""Features under which the RBF is a bilinear score, so that a standard attention head computes it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from icrl_agents.arrays import as_tensor, check_kind, finite, floating
from icrl_agents.context import Context
from icrl_agents.kernels import RBF
from icrl_agents.notices import warn
from icrl_envs import arguments

LIFTED = 2
"""How many rows lifting adds."""

LARGEST_ROUNDING = 1e-3
"""By how much rounding may move the scores of lifted features, and so attention relative to itself, without a word."""


def lifted_features(states: Tensor, length_scale: float | Tensor = 1.0, centre: Tensor | float = 0.0) -> Tensor:
    """Lifted features x̃ = [y; ‖y‖²/2; 1] of the centred and scaled states y = (x − x̄)/ℓ (arXiv 2605.07333).

    With the matrix of ``lifted_score`` the score x̃ᵀB x̃′ is that of the RBF, up to a term of the query that cancels in
    softmax. The RBF does not depend on x̄; but far from it, the squares lose the digits that the distances need.

    Args:
        states: x, ``(*batch, m, d)``.
        length_scale: ℓ > 0, ``()``, ``(d,)`` or broadcast against the states.
        centre: x̄, broadcast against the states; for instance the mean of the context's states.

    Returns:
        ``(*batch, m, d + 2)``.

    Raises:
        TypeError: If an argument is no array of numbers.
        ValueError: If shapes do not fit, ℓ is not positive, or a square overflows.

    Example:
        >>> lifted_features(torch.tensor([[3.0]]), length_scale=0.5, centre=torch.tensor([2.0]))
        tensor([[2., 2., 1.]])
    """
    states = floating("states", states)
    scale, x = as_tensor("length_scale", length_scale).to(states), as_tensor("centre", centre).to(states)
    if not bool((torch.isfinite(scale) & (scale > 0)).all()):
        raise ValueError(f"length_scale: expected positive finite numbers, got {length_scale}.")
    try:
        if states.ndim == 0 or torch.broadcast_shapes(states.shape, scale.shape, x.shape)[-1] != states.shape[-1]:
            raise RuntimeError
    except RuntimeError:
        raise ValueError(
            f"states: expected shape (*batch, m, d) with length_scale and centre to be broadcast, got "
            f"{tuple(states.shape)}, {tuple(scale.shape)} and {tuple(x.shape)}."
        ) from None
    y = (states - x) / scale
    finite("states", y.square(), " after centring, scaling and squaring")
    return torch.cat([y, y.square().sum(-1, keepdim=True) / 2, torch.ones_like(y[..., :1])], dim=-1)


def lifted_score(dim: int, *, symmetric: bool = False) -> Tensor:
    """B with x̃ᵀB x̃′ = yᵀy′ − ‖y′‖²/2, the RBF's score up to the query's own norm, ``(d + 2, d + 2)``.

    Args:
        dim: d ≥ 1.
        symmetric: Whether to subtract ‖y‖²/2 as well: then it is the RBF's score exactly, as attention without a
            normaliser needs it.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If d < 1.
    """
    arguments.integer("dim", dim, 1)
    check_kind("symmetric", symmetric, bool)
    B = torch.diag(torch.tensor([1.0] * dim + [0.0] * LIFTED, dtype=torch.float64, device="cpu"))
    B[-1, -2] = -1.0
    if symmetric:
        B[-2, -1] = -1.0
    return B


def context_lift(context: Context, kernel: RBF) -> tuple[Tensor, Tensor]:
    """The length scale ℓ of ``kernel`` in a context and the mean x̄ of the context's states, both to be broadcast."""
    scale = kernel.bind(context.states, context.mask).length_scale
    count = context.mask.sum(-1).clamp(min=1)[..., None, None]
    centre = context.states.masked_fill(~context.mask[..., None], 0.0).sum(-2, keepdim=True) / count
    return (centre.new_ones(()) if scale is None else scale.to(centre)), centre


def check_digits(lift: tuple[Tensor, Tensor] | None, features: Tensor) -> None:
    """Warns where the squares of lifted ``features`` are so large that rounding them moves the scores."""
    if lift is None or features.numel() == 0:
        return
    largest = float(features.detach()[..., -2].amax())
    moved = largest * torch.finfo(features.dtype).eps
    if moved > LARGEST_ROUNDING:
        warn(
            f"states lie up to {math.sqrt(2 * largest):.3g} length scales from the mean of their context, where lifted "
            f"features in {features.dtype} move scores by about {moved:.1g}: take a float64 context, or the layer that "
            "was exported, which computes distances.",
            RuntimeWarning,
            stacklevel=2,
        )
