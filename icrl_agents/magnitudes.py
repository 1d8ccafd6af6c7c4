"""How large numbers are, and what a floating type still holds of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LARGEST_PRODUCT = 1e2
"""Products beyond this one lose so many digits of float32, 1e-5 of attention, that softmax takes them in float64."""

_WHOLE = 2.0**24
"""Up to which float32 holds all whole numbers."""
_COARSE = 2.0**-21
"""Four units in the last place of float32."""


def widened(x: Tensor) -> Tensor:
    """Returns ``x`` in float64, where its device has that."""
    return x if x.device.type == "mps" else x.double()


def for_products(x: Tensor, y: Tensor, *factors: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the rows of both for products xᵀBy, B a product of ``factors``: in float64 where float32 loses digits.

    Its rounding grows with what is summed, ‖x‖ ‖B‖ ‖y‖ at most, and not with what is left where terms cancel.
    """
    if x.dtype != torch.float32 or x.numel() == 0 or y.numel() == 0:
        return x, y
    sizes = [rows.detach().norm(dim=-1).amax() for rows in (x, y)] + [factor.detach().norm() for factor in factors]
    return (widened(x), widened(y)) if math.prod(map(float, sizes)) > LARGEST_PRODUCT else (x, y)


def check_floating(*states: Tensor) -> None:
    """Raises TypeError if states are not float32 or float64 tensors: weights would be rounded to what they are.

    ValueError if they differ in their dimension d, since one of 1 would be taken for any.
    """
    for each in states:
        if not isinstance(each, Tensor) or each.dtype not in (torch.float32, torch.float64):
            got = each.dtype if isinstance(each, Tensor) else type(each).__name__
            raise TypeError(f"states: expected tensors of float32 or float64, got {got}.")
    if any(each.shape[-1:] != states[0].shape[-1:] for each in states):
        shapes = " and ".join(str(tuple(each.shape)) for each in states)
        raise ValueError(f"states: expected x (..., m, d) and y (..., n, d) of one dimension d, got {shapes}.")


def check_squares(name: str, states: Tensor) -> None:
    """Raises ValueError where squares of a context's ``states (*batch, n, d)`` leave the floating type.

    Steps of that context would be 0 or infinite.
    """
    if states.numel() == 0:
        return
    limits, largest = torch.finfo(states.dtype), widened(states.detach().abs().amax((-2, -1)))
    squares, most = largest.square(), limits.max / states.shape[-2:].numel()
    outside = (largest > 0) & ~((squares > limits.tiny) & (squares < most))
    if bool(outside.any()):
        size = float(largest[outside].flatten()[0])
        raise ValueError(
            f"{name}: states of size {size:.3g} have squares outside of {states.dtype}; scale them to about 1."
        )


def power_of_two(x: Tensor) -> Tensor:
    """Returns a power of two near the largest |x|, 1 where there is none: to divide by before squares, exactly."""
    largest = x.abs().amax() if x.numel() else x.new_zeros(())
    return near_power_of_two(largest) if bool(largest > 0) else torch.ones_like(largest)


def cosine_similarity(x: Tensor, y: Tensor, dim: int = -1) -> Tensor:
    """The cosine of vectors along ``dim``, however small or large they are; 0 where one of them is 0."""
    units = (each.abs().amax(dim, keepdim=True).detach() for each in (x, y))
    scaled = (each / unit.masked_fill(unit == 0, 1.0) for each, unit in zip((x, y), units, strict=True))
    return torch.cosine_similarity(*scaled, dim=dim)


def is_rounded(x: Tensor) -> bool:
    """Whether float32 holds all numbers of ``x``, and half precision not all, so that they were rounded to it."""
    return x.numel() > 0 and float(resolution(x.reshape(-1, 1))) > torch.finfo(torch.float64).eps


def resolution(x: Tensor) -> Tensor:
    """By what share of it a number of each column of ``x (*batch, n, d)`` was rounded, ``(*batch, 1, d)``.

    As much as float32 does where that holds all of them, whatever their type is by now, such as observations in a
    float64 context; but for numbers that half precision holds as well, whole ones, and steps of a grid much coarser
    than the rounding of the largest: 0.5 or 500,000.25 were not rounded.
    """
    x = x.detach()
    narrow = (x.float().to(x) == x).all(-2, keepdim=True)
    grid = _COARSE * near_power_of_two(x.abs().amax(-2, keepdim=True)) if x.shape[-2] else 1.0
    exact = (x.half().to(x) == x) | ((x.round() == x) & (x.abs() <= _WHOLE)) | ((x / grid).round() * grid == x)
    own = torch.full_like(narrow, torch.finfo(x.dtype).eps, dtype=x.dtype)
    return torch.where(narrow & ~exact.all(-2, keepdim=True), torch.finfo(torch.float32).eps, own)


def near_power_of_two(positive: Tensor) -> Tensor:
    """Returns the power of two in (x / 2, x] of each x > 0; for subnormal ones the smallest normal number."""
    positive = positive.clamp(min=torch.finfo(positive.dtype).tiny)
    return positive / 2.0 / torch.frexp(positive)[0]


def relative_distance(found: Tensor, exact: Tensor, least: Tensor | None = None) -> Tensor:
    """Their distance over the size of ``exact (b,)``, or of ``least`` if larger, root mean squares; 0 where b = 0."""
    if len(exact) == 0:
        return exact.new_zeros(())
    compared = [exact] if least is None else [exact, least]
    unit = power_of_two(torch.cat(compared))  # so that no square leaves the type's range
    size = torch.stack([(each / unit).square().mean().sqrt() for each in compared]).amax()
    return ((found - exact) / unit).square().mean().sqrt() / size.clamp(min=torch.finfo(exact.dtype).tiny)
