"""Arrays that cross the public boundary: what they are turned into, and what is said when they do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

FLOATING = (torch.float32, torch.float64)


def as_tensor(name: str, value: Any) -> Tensor:  # noqa: ANN401 - anything array-like
    """Returns a tensor as it is, and a copy of anything else: arrays (of any memory layout), lists, numbers.

    Raises:
        TypeError: If ``value`` is not a rectangular array of numbers, naming the argument, or a sparse tensor.
    """
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise TypeError(f"{name}: expected a dense tensor, got one of layout {value.layout}; take .to_dense().")
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: the mask of a masked array would be lost; pass its .data, and the mask where one goes."
        )
    try:
        if isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(v, Tensor) for v in value):
            return torch.stack(list(value))
        array = np.array(value)
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name}: expected a rectangular array of numbers, got {type(value).__name__}: {error}"
        ) from error


def floating(name: str, value: Any, *, integers: bool = False) -> Tensor:  # noqa: ANN401
    """Returns a float32 or float64 tensor; integers of lists, and of arrays where allowed, become float64.

    Raises:
        TypeError: If the numbers are of another type: rounding them is the caller's decision.
    """
    tensor = as_tensor(name, value)
    if tensor.dtype in FLOATING:
        return tensor
    whole = not tensor.is_floating_point() and not tensor.is_complex()
    if tensor.numel() == 0 or (whole and (integers or isinstance(value, (list, tuple)))):
        return tensor.to(torch.float64)
    raise TypeError(
        f"{name}: expected float32 or float64, got {tensor.dtype}; convert it first, for instance with .astype(float)."
    )


def reals(name: str, value: Any) -> Tensor:  # noqa: ANN401
    """Returns real numbers of any type as a new float64 tensor without a gradient.

    Raises:
        TypeError: If they are booleans or complex.
    """
    tensor = as_tensor(name, value).detach()
    if tensor.dtype == torch.bool or tensor.is_complex():
        raise TypeError(f"{name}: expected real numbers, got {tensor.dtype}.")
    return tensor.to(torch.float64, copy=True)


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


def power_of_two(x: Tensor) -> Tensor:
    """Returns a power of two near the largest |x|, 1 where there is none: to divide by before squares, exactly."""
    largest = x.abs().amax() if x.numel() else x.new_zeros(())
    return largest / 2.0 / torch.frexp(largest)[0] if bool(largest > 0) else torch.ones_like(largest)


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
