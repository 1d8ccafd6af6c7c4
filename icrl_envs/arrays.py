"""Arrays that cross the public boundary: what they are turned into, and what is said when they do not fit."""

from typing import Any

import numpy as np

from icrl_envs import arguments

ROUNDING = 1e-14
"""Rows whose sums are as close to 1 are left as they are, so that copies stay equal."""


def chain_arrays(
    given: Any,  # noqa: ANN401 - has the attributes below
    batch_axes: int,
    start: str = "start",
    tolerance: float = 1e-8,
) -> dict[str, np.ndarray]:
    """Return the arrays of one finite chain or of a batch: P ``(*N, S, S)``, r ``(*N, S)``, Φ ``(*N, S, d)``, start.

    Args:
        given: Has the attributes ``transition_matrix``, ``rewards``, ``features`` and ``start``.
        batch_axes: Number of axes N.
        start: Name of the last of them, a distribution over the states.
        tolerance: How far from 1 the sum of a row or of ``start`` may be.

    Raises:
        TypeError: If one cannot be read as real numbers.
        ValueError: If a shape disagrees with P's rows, an entry is not finite, or a row or start is no distribution.
    """
    *N, S, _ = real_array("transition_matrix", given.transition_matrix, batch_axes + 2).shape
    expected = {"transition_matrix": (*N, S, S), "rewards": (*N, S), "features": (*N, S, -1), start: (*N, S)}
    arrays = {name: real_array(name, getattr(given, name), len(shape)) for name, shape in expected.items()}
    for name, array in arrays.items():
        _check_shape(name, array, expected[name])
    for name, title in (("transition_matrix", "each row of transition_matrix"), (start, start)):
        arrays[name] = distributions(title, arrays[name], tolerance)
    return arrays


def real_array(name: str, value: object, rank: int, *, empty: bool = False) -> np.ndarray:
    """Return ``value`` in float64 with ``rank`` axes, none of them empty unless ``empty``; not copied if it is that."""
    arguments.unmasked(name, value)
    try:
        given = np.asarray(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # the last of a tensor with a gradient
        raise TypeError(f"{name} must be an array of real numbers with {rank} axes; {error}.") from None
    if given.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be an array of real numbers with {rank} axes; got an array of {given.dtype}.")
    array = given.astype(np.float64, copy=False)
    if given.dtype.kind in "iu":
        large = np.abs(array) >= 2.0**53
        if any(int(number) != int(integer) for number, integer in zip(array[large], given[large], strict=True)):
            raise ValueError(f"{name} must be numbers that float64 holds; got integers beyond 2**53.")
    if array.ndim != rank or (array.size == 0 and not empty):
        kind = "an array" if empty else "a non-empty array"
        raise ValueError(f"{name} must be {kind} with {rank} axes; got shape {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; got {array[~np.isfinite(array)][0]} among its entries.")
    return array


def kept(array: np.ndarray) -> np.ndarray:
    """Return an array that no one will write into: a copy, unless it and all that it is a view of are read-only."""
    part = array
    while isinstance(part, np.ndarray) and not part.flags.writeable:
        part = part.base
    return array if part is None else read_only(array.copy())


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a new array, which its maker will not write into any more, itself as a read-only one."""
    array.setflags(write=False)
    return array


def _check_shape(name: str, array: np.ndarray, expected: tuple[int, ...]) -> None:
    """Compare a shape with the expected one, in which −1 stands for any length."""
    if any(length not in (-1, actual) for length, actual in zip(expected, array.shape, strict=True)):
        wanted = str(expected).replace("-1", "d")
        raise ValueError(
            f"{name} must have shape {wanted}, by the rows of transition_matrix; got {array.shape}. "
            "The arrays must speak of the same states."
        )


def distributions(name: str, array: np.ndarray, tolerance: float = 1e-8) -> np.ndarray:
    """Return rows, along the last axis, that sum to 1: the same array, or a scaled copy where they were a little off.

    Args:
        name: What the rows are called in an error.
        array: ``(*batch, S)``, of float64.
        tolerance: How far from 1 a sum may be.

    Raises:
        ValueError: If an entry is negative or no number, or a sum is further from 1.
    """
    sums = array.sum(axis=-1, keepdims=True)
    off = np.abs(sums - 1.0)
    bad = np.argwhere((array < 0).any(axis=-1) | ~(off[..., 0] <= tolerance))
    if len(bad):
        row = array[tuple(bad[0])]
        where = "it" if array.ndim == 1 else f"row {bad[0][0] if array.ndim == 2 else tuple(bad[0].tolist())}"
        ends = " Where a step may end the process, add a state of reward 0 that it leads to, and that leads to itself."
        raise ValueError(
            f"{name} must be non-negative and sum to 1; {where} has minimum {row.min():g} and sum {row.sum():.10g}. "
            f"Divide by the sum where only rounding is the reason.{ends if row.min() >= 0 and row.sum() < 1 else ''}"
        )
    return array if (off <= ROUNDING).all() else array / sums


def shaped(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise ValueError if ``array`` has another shape."""
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; got {array.shape}.")
