"""Value errors and TD losses of an evaluator.

Arrays may be tensors, NumPy arrays or lists. A state of weight 0 is never read, so its target may be NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from icrl_agents.arrays import finite, floating
from icrl_agents.context import Context, check_context
from icrl_agents.magnitudes import near_power_of_two, resolution
from icrl_agents.value_function import ValueFunction, check_discounted
from icrl_agents.weighted_context import read_points


def msve(values: Any, targets: Any, weights: Any = None) -> Tensor:  # noqa: ANN401 - anything array-like
    """Mean squared value error Σ_i ρ_i (v_i − v*_i)².

    Args:
        values: Estimated values v, ``(*batch, m)`` with m ≥ 1. Where a square overflows, the error is inf.
        targets: True values or Monte-Carlo returns v*, ``(m,)`` or ``(*batch, m)``.
        weights: ρ, non-negative, ``(m,)`` or ``(*batch, m)``, normalised here; for instance a stationary
            distribution, or the indicator of the states that count. Default uniform.

    Returns:
        ``(*batch,)``.

    Raises:
        TypeError: If an argument is no array of numbers.
        ValueError: If shapes disagree, a value or target that counts is not finite, or the weights are negative, not
            finite or all zero.

    Example:
        >>> msve([1.0, 3.0], targets=[0.0, 0.0])
        tensor(5., dtype=torch.float64)
    """
    values, targets, rho = _checked(values, targets, weights)
    return _mean(_gaps(values, targets).square(), rho)


def relative_msve(values: Any, targets: Any, weights: Any = None) -> Tensor:  # noqa: ANN401
    """MSVE over the mean square of the targets: 0 is exact, 1 is what v = 0 scores.

    It is NaN where the targets are all 0, since then there is no scale to compare with. Arguments of ``msve``.
    """
    values, targets, rho = _checked(values, targets, weights)
    (gaps, gap_unit), (targets, unit) = _in_units(_gaps(values, targets)), _in_units(targets)
    power = _mean(targets.square(), rho)
    return _times_square(_mean(gaps.square(), rho) / power, gap_unit / unit).masked_fill(power == 0, torch.nan)


def centred_msve(values: Any, targets: Any, weights: Any = None) -> Tensor:  # noqa: ANN401
    """MSVE after the best state-independent offset, which cancels in advantages and rankings, is taken away.

    Arguments of ``msve``.
    """
    values, targets, rho = _checked(values, targets, weights)
    gaps, unit = _in_units(_gaps(values, targets))
    return _times_square(_variance(gaps, rho), unit)


def relative_centred_msve(values: Any, targets: Any, weights: Any = None) -> Tensor:  # noqa: ANN401
    """Centred MSVE over the variance of the targets: 0 is exact, 1 is what any constant scores.

    It is NaN where the targets are all equal up to rounding, since then there is no scale to compare with.
    Arguments of ``msve``.
    """
    values, targets, rho = _checked(values, targets, weights)
    rounded = resolution(targets[..., None])[..., 0, 0]  # before whole numbers are in units of their own
    (gaps, gap_unit), (targets, unit) = _in_units(_gaps(values, targets)), _in_units(targets)
    variance = _variance(targets, rho)
    rounding = (16 * rounded).square() * _mean(targets.square(), rho)
    ratio = _times_square(_variance(gaps, rho) / variance, gap_unit / unit)
    return ratio.masked_fill(variance <= rounding, torch.nan)


def td_loss(value_function: ValueFunction, context: Context, depths: Iterable[int] | None = None) -> Tensor:
    """Mean squared TD error mean_k δ_k² on ``context``, held out or not, at several depths.

    Args:
        value_function: The value function, whatever its evaluator.
        context: Transitions, ``(*batch, n)``; of an empty one the loss is 0.
        depths: At least one depth ℓ in 0 … ``value_function.max_depth``; default all of them.

    Returns:
        ``(*batch, len(depths))``; inf where a square overflows.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a depth is out of range, or there is none; or if rewards are counted from their average.
    """
    if not isinstance(value_function, ValueFunction):
        raise TypeError(f"value_function: expected a ValueFunction, got {type(value_function).__name__}.")
    check_context(context)
    check_discounted("value_function", value_function)
    if isinstance(depths, Iterable) and not isinstance(depths, (set, frozenset)):  # which by_depth refuses
        depths = list(depths)
        if len(depths) == 0:
            raise ValueError("depths: expected at least one depth, got none.")
    values = value_function.by_depth(read_points(context), depths)
    losses = [context.td_errors(values[..., i]).square().sum(-1) for i in range(values.shape[-1])]
    return torch.stack(losses, dim=-1) / context.mask.sum(-1, keepdim=True).clamp(min=1)


def _checked(values: Any, targets: Any, weights: Any) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
    """Values and targets in their common floating type, 0 where the weight is; and the normalised weights."""
    values = floating("values", values, integers=True)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(f"values: expected shape (*batch, m) with m ≥ 1, got {tuple(values.shape)}.")
    targets = _fitting("targets", targets, values)
    rho = _fitting("weights", torch.ones_like(values) if weights is None else weights, values)
    finite("weights", rho)
    if bool((rho < 0).any()) or not bool((rho.sum(-1) > 0).all()):
        raise ValueError("weights: expected non-negative numbers that are not all zero.")
    dtype = torch.promote_types(values.dtype, targets.dtype)
    unread = rho == 0
    values, targets = (t.to(dtype).masked_fill(unread, 0.0) for t in torch.broadcast_tensors(values, targets))
    finite("values", values)
    finite("targets", targets)
    rho = _in_units(rho)[0].to(dtype)
    return values, targets, rho / rho.sum(-1, keepdim=True)


def _fitting(name: str, array: Any, values: Tensor) -> Tensor:  # noqa: ANN401
    tensor = floating(name, array, integers=True).to(values.device)
    if tensor.shape not in (values.shape, values.shape[-1:]):
        expected = " or ".join(dict.fromkeys((str(tuple(values.shape)), str(tuple(values.shape[-1:])))))
        raise ValueError(f"{name}: expected shape {expected} to match the values, got {tuple(tensor.shape)}.")
    return tensor


def _in_units(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """The rows ``(*batch, m)`` over powers of two near their largest |x|, to be squared, and those, ``(*batch,)``."""
    largest = numbers.abs().amax(-1, keepdim=True)
    unit = torch.where(largest > 0, near_power_of_two(largest), 1.0)
    return numbers / unit, unit[..., 0]


def _times_square(number: Tensor, unit: Tensor) -> Tensor:
    """``number · unit²``, 0 where ``number`` is, however large the square."""
    unit = unit.clamp(max=torch.finfo(unit.dtype).max)
    return number * unit * unit


def _gaps(values: Tensor, targets: Tensor) -> Tensor:
    gaps = values - targets
    finite("values", gaps, " after the targets are taken away")
    return gaps


def _mean(numbers: Tensor, rho: Tensor) -> Tensor:
    return (numbers * rho).sum(-1)


def _variance(numbers: Tensor, rho: Tensor) -> Tensor:
    return _mean((numbers - _mean(numbers, rho)[..., None]).square(), rho)
