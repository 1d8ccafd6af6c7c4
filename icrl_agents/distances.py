"""Distances between states: the typical one of a context, and all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from icrl_agents.arrays import differentiated
from icrl_agents.distinct import distinct_rows
from icrl_agents.magnitudes import near_power_of_two, power_of_two

_LARGEST_MEDIAN_SAMPLE = 1_000
_BY_DIFFERENCES = "donot_use_mm_for_euclid_dist"
_LARGEST_EXPANDED = {torch.float32: 1e6, torch.float64: 2e2}
"""Largest ‖x‖²/2 + ‖x′‖²/2, in units of ℓ², whose rounding in float64 stays below 1e-9 and 1e-12."""


def median_distance(keys: Tensor, mask: Tensor | None = None) -> Tensor:
    """Median Euclidean distance between the distinct states of each context, the usual heuristic for ℓ.

    Each state counts once, however often it was visited, so the median stays positive when most states coincide;
    where all of them do, it is 1. Of an even number of distances it is the lower of the two in the middle. Of more
    than 1,000 distinct states, 1,000 are compared, evenly spaced in lexicographic order.

    Args:
        keys: States ``(*batch, n, d)``.
        mask: False for padding, ``(*batch, n)``.

    Returns:
        The median, ``(*batch,)``.
    """
    batch = keys.shape[:-2]
    flat = keys.reshape(batch.numel(), *keys.shape[-2:])
    valid = torch.ones_like(flat[..., 0], dtype=torch.bool) if mask is None else mask.reshape(flat.shape[:-1])
    return torch.stack([_median(k[v]) for k, v in zip(flat, valid, strict=True)]).reshape(batch)


def common_offset(y: Tensor) -> Tensor:
    """What can be subtracted from all of ``y (*batch, n, d)`` without rounding, ``(*batch, 1, d)``; 0 if nothing.

    Numbers within a factor of 2 of each other have exact differences, while divided by ℓ both would be rounded first.
    """
    if y.shape[-2] == 0:
        return y.new_zeros(y.shape[-1:])
    first = y.detach()[..., :1, :]
    exact = ((y.detach() - first).abs() <= first.abs() / 4).all(-2, keepdim=True)
    return torch.where(exact, first, 0.0)


def without_offset(x: Tensor, y: Tensor, offset: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Both without ``offset``, by default the common one of y."""
    offset = common_offset(y) if offset is None else offset.to(x)
    return (x - offset, y - offset) if bool(offset.any()) else (x, y)


def pairwise_distance(x: Tensor, y: Tensor, p: float) -> Tensor:
    """‖x_i − y_j‖_p, ``(*batch, m, n)``, from differences, of ``x (*batch, m, d)`` and ``y (*batch, n, d)``."""
    if not differentiated(x, y):
        return torch.cdist(x, y, p, _BY_DIFFERENCES)
    batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return cast(Tensor, _Distance.apply(x.expand(*batch, -1, -1), y.expand(*batch, -1, -1), p))


class _Distance(torch.autograd.Function):
    """``torch.cdist``, whose own gradient is wrong for several at once, as ``torch.func.jacrev`` asks for them.

    That reads as many tables of distances as there are gradients, where there is one.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, p: float) -> Tensor:
        return torch.cdist(x, y, p, _BY_DIFFERENCES)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:  # noqa: ANN401
        x, y, ctx.p = inputs
        ctx.save_for_backward(x, y, output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # noqa: ANN401
        (gradient,), (x, y, found) = gradients, ctx.saved_tensors
        return *_gradients(gradient, x, y, ctx.p, found, ctx.needs_input_grad), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:  # noqa: ANN401
        raise NotImplementedError("torch has no derivatives of distances in forward mode; take RBF, or reverse mode.")


def _gradients(
    gradient: Tensor, x: Tensor, y: Tensor, p: float, found: Tensor, needed: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    found = found + torch.zeros_like(gradient)
    backward = torch.ops.aten._cdist_backward
    return (
        backward(gradient.contiguous(), x, y, p, found) if needed[0] else None,
        backward(gradient.mT.contiguous(), y, x, p, found.mT.contiguous()) if needed[1] else None,
    )


def squared_distance(x: Tensor, y: Tensor) -> Tensor:
    """``pairwise_distance(x, y, 2)²``, which has all derivatives, in forward mode too."""
    if not differentiated(x, y):
        return pairwise_distance(x, y, 2.0).square()
    batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return cast(Tensor, _SquaredDistance.apply(x.expand(*batch, -1, -1), y.expand(*batch, -1, -1)))


class _SquaredDistance(torch.autograd.Function):
    """Keeps all differences, ``(*batch, m, n, d)``, where there may be further derivatives alone."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return torch.cdist(x, y, 2.0, _BY_DIFFERENCES).square()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ANN401
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:  # noqa: ANN401
        (gradient,), (x, y) = gradients, ctx.saved_tensors
        if not torch.is_grad_enabled():
            found = torch.cdist(x, y, 2.0, _BY_DIFFERENCES)
            return _gradients(2.0 * found * gradient, x, y, 2.0, found, ctx.needs_input_grad)
        weighted = 2.0 * gradient[..., None] * _differences(x, y)
        return weighted.sum(-2), -weighted.sum(-3)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:  # noqa: ANN401
        return 2.0 * (_differences(*ctx.saved_tensors) * _differences(*tangents)).sum(-1)


def _differences(x: Tensor, y: Tensor) -> Tensor:
    return x[..., :, None, :] - y[..., None, :, :]


class ExpandedScore:
    """−‖(x − y)/ℓ‖²/2 = x̃ᵀỹ − ‖x̃‖²/2 − ‖ỹ‖²/2 of any x to the same y, one product each; y is prepared once.

    x̃ = (x − ȳ)/ℓ with ȳ the mean of y: taken first, and in float64, it leaves of an offset only what the states round.

    Args:
        y: ``(*batch, n, d)``.
        scale: ℓ, to be broadcast with y.
    """

    def __init__(self, y: Tensor, scale: Tensor) -> None:
        self._right: Tensor | None = None
        if y.device.type == "mps" or y.numel() == 0:  # MPS has no float64
            return
        self._centre, self._scale = y.detach().double().mean(-2, keepdim=True), scale.double()
        y = (y.double() - self._centre) / self._scale
        half = _half_squares(y)
        self._largest = float(half.detach().amax())
        self._right = torch.cat([y, torch.ones_like(half), -half], dim=-1).mT

    def __call__(self, x: Tensor, factor: float = 1.0) -> Tensor | None:
        """``factor`` × the scores of ``x (*batch, m, d)``, ``(*batch, m, n)``; None where that would lose digits."""
        if self._right is None or x.shape[-2] == 0:
            return None
        left = (x.double() - self._centre) / self._scale
        half = _half_squares(left)
        if not float(half.detach().amax()) + self._largest < _LARGEST_EXPANDED[x.dtype]:
            return None
        left = factor * torch.cat([left, -half, torch.ones_like(half)], dim=-1)
        scores = (left @ self._right).to(x.dtype)
        if differentiated(scores):  # to which a bound would be a constant
            return scores - scores.detach().clamp(min=0.0)
        return scores.clamp_(max=0.0)


def _half_squares(x: Tensor) -> Tensor:
    return 0.5 * x.square().sum(-1, keepdim=True)


def _median(states: Tensor) -> Tensor:
    states = distinct_rows(states)
    if len(states) > _LARGEST_MEDIAN_SAMPLE:
        chosen = torch.linspace(0, len(states) - 1, _LARGEST_MEDIAN_SAMPLE, dtype=torch.float64, device=states.device)
        states = states[chosen.round().long()]
    if len(states) < 2:
        return states.new_ones(())
    unit = power_of_two(states)  # so that no square leaves the type's range
    median = torch.pdist(states / unit).median()
    if float(median) ** 2 < 1e9 * torch.finfo(states.dtype).tiny:  # squares of what is small beside one of the states
        unit = near_power_of_two(torch.pdist(states, float("inf")).median())
        median = torch.pdist(states / unit).nan_to_num(float("inf")).median()
    return median * unit
