"""Arrays that cross the public boundary: what they are turned into, and what is said when they do not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from icrl_envs import arguments

FLOATING = (torch.float32, torch.float64)
LARGEST_INTEGER = 2.0**53
"""Up to this one float64 holds every integer."""


def as_tensor(name: str, value: Any) -> Tensor:  # noqa: ANN401 - anything array-like
    """Returns a tensor as it is, and a copy of anything else: arrays (of any memory layout), lists, numbers.

    Raises:
        TypeError: If ``value`` is not a rectangular array of numbers, naming the argument, or a sparse tensor.
        ValueError: If float64 cannot hold an integer of a list.
    """
    if isinstance(value, Tensor):
        if value.is_nested:
            raise TypeError(f"{name}: expected a dense tensor, got a nested one; pad it, or make one of each part.")
        if value.layout != torch.strided:
            raise TypeError(f"{name}: expected a dense tensor, got one of layout {value.layout}; take .to_dense().")
        return value
    arguments.unmasked(name, value)
    try:
        if isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(v, Tensor) for v in value):
            return torch.stack(list(value))
        array = np.array(value)
        tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name}: expected a rectangular array of numbers, got {type(value).__name__}: {error}"
        ) from error
    if isinstance(value, (list, tuple)) and tensor.is_floating_point():  # integers beside fractions among them
        _check_exact(name, tensor, lambda: np.array(value, dtype=object).flatten().tolist())
    return tensor


def floating(name: str, value: Any, *, integers: bool = False) -> Tensor:  # noqa: ANN401
    """Returns a float32 or float64 tensor; integers of lists, and of arrays where allowed, become float64.

    Raises:
        TypeError: If the numbers are of another type: rounding them is the caller's decision.
        ValueError: If float64 cannot hold an integer among them.
    """
    tensor = as_tensor(name, value)
    if tensor.dtype in FLOATING:
        return tensor
    whole = not tensor.is_floating_point() and not tensor.is_complex()
    if tensor.numel() == 0 or (whole and (integers or isinstance(value, (list, tuple)))):
        return _exactly(name, tensor)
    raise TypeError(
        f"{name}: expected float32 or float64, got {tensor.dtype}; convert it first, for instance with .astype(float)."
    )


def reals(name: str, value: Any) -> Tensor:  # noqa: ANN401
    """Returns real numbers of any type as a new float64 tensor without a gradient.

    Raises:
        TypeError: If they are booleans or complex.
        ValueError: If float64 cannot hold an integer among them.
    """
    tensor = as_tensor(name, value).detach()
    if tensor.dtype == torch.bool or tensor.is_complex():
        raise TypeError(f"{name}: expected real numbers, got {tensor.dtype}.")
    return _exactly(name, tensor).clone()


def no_flags(name: str, value: Any) -> Any:  # noqa: ANN401
    """Returns ``value`` as it is.

    Raises:
        TypeError: If it holds booleans, which are no discounts: an end told as True would be γ = 1.
    """
    tensor = as_tensor(name, value)
    if tensor.dtype == torch.bool and tensor.numel() > 0:
        raise TypeError(f"{name}: expected numbers in [0, 1], got booleans; where they tell of ends, take γ * ~them.")
    return value


def _exactly(name: str, tensor: Tensor) -> Tensor:
    """Returns ``tensor`` as float64; ValueError if that would round an integer."""
    numbers = tensor.to(torch.float64)
    if not tensor.is_floating_point():
        _check_exact(name, numbers, lambda: tensor.flatten().tolist())
    return numbers


def _check_exact(name: str, numbers: Tensor, given: Callable[[], list[Any]]) -> None:
    """Raises ValueError if ``numbers`` hold an integer of ``given`` rounded; looks only where one is large enough."""
    if not bool((numbers.abs() >= LARGEST_INTEGER).any()):
        return
    for integer, number in zip(given(), numbers.flatten().tolist(), strict=True):
        if isinstance(integer, Integral) and int(integer) != number:
            raise ValueError(
                f"{name}: float64 would round the integer {integer} to {number:.0f}; subtract an offset first, or "
                "convert it yourself, for instance with float(...)."
            )


def boolean(name: str, value: Any, like: Tensor) -> Tensor:  # noqa: ANN401
    """Returns a new boolean tensor of the shape and on the device of ``like``.

    Raises:
        TypeError: If it does not hold booleans.
        ValueError: If its shape is another.
    """
    tensor = as_tensor(name, value)
    if tensor.dtype != torch.bool and tensor.numel() > 0:
        raise TypeError(f"{name}: expected booleans, got {tensor.dtype}.")
    same_shape(name, tensor, like.shape)
    return torch.empty_like(like, dtype=torch.bool).copy_(tensor)


def check_kind(name: str, item: Any, kind: type, hint: str = "") -> None:  # noqa: ANN401 - checked here
    """Raises TypeError, ``hint`` at its end, if ``item`` is of another class."""
    if not isinstance(item, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        raise TypeError(f"{name}: expected {article} {kind.__name__}, got {type(item).__name__}{hint}.")


def check_list(name: str, items: Any, kind: type, hint: str = "") -> None:  # noqa: ANN401 - checked here
    """Raises TypeError or ValueError, ``hint`` at its end, if ``items`` is no list of ``kind``, one at least."""
    if isinstance(items, (kind, str)) or not isinstance(items, Sequence):
        raise TypeError(f"{name}: expected a list of {kind.__name__} objects, got {type(items).__name__}.")
    if len(items) == 0:
        raise ValueError(f"{name}: expected at least one, got none{hint}.")
    for i, item in enumerate(items):
        if not isinstance(item, kind):
            raise TypeError(f"{name}: expected {kind.__name__} objects, got {type(item).__name__} at index {i}.")


def same_shape(name: str, tensor: Tensor, shape: torch.Size) -> None:
    """Raises ValueError if ``tensor`` has another shape than the states ask for."""
    if tensor.shape != shape:
        raise ValueError(f"{name}: expected shape {tuple(shape)} to match the states, got {tuple(tensor.shape)}.")


def finite(name: str, tensor: Tensor, detail: str = "") -> None:
    """Raises ValueError if ``tensor`` holds NaN or inf, saying where."""
    good = torch.isfinite(tensor)
    if not bool(good.all()):
        where = tuple((~good).nonzero()[0].tolist())
        raise ValueError(f"{name}: expected finite numbers{detail}, got {tensor[where].item()} at index {where}.")


def rounded_discounts(discounts: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Returns ``discounts`` in a floating type, None for their own.

    Raises:
        ValueError: If one below 1 would become 1, so that a problem without a discount would be solved instead.
    """
    rounded = discounts.to(dtype=dtype)
    lost = (rounded == 1) & (discounts < 1)
    if bool(lost.any()):
        one = discounts[lost][0].item()
        raise ValueError(f"discounts: γ = {one!r} would be 1 in {dtype}; keep it in torch.float64, or lower it.")
    return rounded


def float_rows(name: str, array: np.ndarray) -> np.ndarray:
    """Returns an array of float32 or float64 as it is, and any other as float64.

    Raises:
        TypeError: If it holds words, dates or complex numbers.
        ValueError: If float64 cannot hold an integer of it.
    """
    if array.dtype in (np.float32, np.float64):
        return array
    if array.dtype.kind not in "biufO" or any(isinstance(item, (str, bytes)) for item in _objects(array)):
        raise TypeError(f"{name}: expected real numbers, got {array.dtype}.")
    numbers = array.astype(np.float64)
    if array.dtype.kind in "iuO" and (np.abs(numbers) >= LARGEST_INTEGER).any():
        _check_exact(name, torch.from_numpy(numbers), array.flatten().tolist)
    return numbers


def _objects(array: np.ndarray) -> list[Any]:
    return array.flatten().tolist() if array.dtype.kind == "O" else []


def front_rows(rows: Tensor, chosen: Tensor) -> Tensor:
    """Moves the chosen rows of each batch element to the front, ``(*batch, max chosen, d)``, zeros behind."""
    counts = chosen.sum(-1)
    most = int(counts.max()) if counts.numel() else 0
    front = rows.new_zeros((*rows.shape[:-2], most, rows.shape[-1]))
    rank = chosen.cumsum(-1) - 1
    where = chosen.nonzero(as_tuple=True)
    front[(*where[:-1], rank[where])] = rows[where]
    return front


def take_rows(rows: Tensor, index: Tensor) -> Tensor:
    """Rows ``(*batch, p, d)`` at ``index (*batch, n)``, ``(*batch, n, d)``."""
    return torch.gather(rows, -2, index[..., None].expand(*index.shape, rows.shape[-1]))


def fold(rows: Tensor, batch: torch.Size) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Rows ``(*more, *batch, m, d)`` as ``(*batch, more · m, d)``, and what unfolds ``(*batch, more · m, c)`` again."""
    shape, (m, d) = torch.broadcast_shapes(rows.shape[:-2], batch), rows.shape[-2:]
    count = shape[: len(shape) - len(batch)].numel()
    folded = rows.expand(*shape, m, d).reshape(count, *batch, m, d).movedim(0, -3).flatten(-3, -2)

    def unfold(found: Tensor) -> Tensor:
        return found.unflatten(-2, (count, m)).movedim(-3, 0).reshape(*shape, m, found.shape[-1])

    return folded, unfold


def constant(name: str, value: Any) -> Tensor:  # noqa: ANN401
    """Returns a float64 copy of real numbers that a module keeps.

    Raises:
        TypeError: If they are not real.
        ValueError: If they require a gradient, which the copy would lose, or float64 cannot hold an integer among them.
    """
    tensor = as_tensor(name, value)
    if tensor.dtype == torch.bool or tensor.is_complex():
        raise TypeError(f"{name}: expected real numbers, got {value!r}.")
    if tensor.requires_grad:
        raise ValueError(
            f"{name}: requires a gradient, which would be lost, since a copy is kept; pass {name}.detach(), and train "
            "the copy after requires_grad_(True) of what keeps it."
        )
    return _exactly(name, tensor).clone()


def positive(name: str, value: Any) -> Tensor:  # noqa: ANN401
    """Returns ``constant(name, value)``; raises ValueError if it is not positive and finite."""
    tensor = constant(name, value)
    if tensor.numel() == 0 or not bool((torch.isfinite(tensor) & (tensor > 0)).all()):
        raise ValueError(f"{name}: expected a positive finite number, got {value}.")
    return tensor


def differentiated(*tensors: Tensor) -> bool:
    """Whether a derivative is taken through one of them, in reverse or in forward mode."""
    return any(each.requires_grad or forward_ad.unpack_dual(each).tangent is not None for each in tensors)
