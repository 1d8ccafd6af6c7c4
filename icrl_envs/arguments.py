"""Checks of the arguments that cross the public boundary; each error names the argument and the way out."""

import difflib
import math
import numbers
import operator
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

LONGEST_LIST = 12
"""Options are not all listed beyond this number where there is a close one to suggest."""
MOST_SEEDS = 100_000
"""A study keeps a list of its seeds; a number beyond this one is taken for a slip."""


def choice(name: str, value: object, options: Collection[str]) -> str:
    """Return ``value`` if it is one of ``options``.

    Args:
        name: The argument's name, as the caller spelled it.
        value: What the caller passed.
        options: The valid strings, in the order in which the error lists them.

    Raises:
        TypeError: If ``value`` is not a string.
        ValueError: If ``value`` is not one of ``options``; the message suggests the closest one.
    """
    listed = "one of " + ", ".join(repr(option) for option in options)
    if not isinstance(value, str):
        raise TypeError(f"{name} must be {listed}; got {value!r} of type {type(value).__name__}.")
    if value not in options:
        closest = suggestion(value, options)
        if closest and len(options) > LONGEST_LIST:
            listed = f"one of {len(options)} names"
        raise ValueError(f"{name} must be {listed}; got {value!r}.{closest}")
    return value


def suggestion(value: str, options: Collection[str]) -> str:
    """Return `` Did you mean 'x'?`` for the closest option, or an empty string where none is close."""
    closest = difflib.get_close_matches(value, options, n=1)
    return f" Did you mean {closest[0]!r}?" if closest else ""


def flag(name: str, value: object) -> bool:
    """Return ``value`` if it is a bool.

    Raises:
        TypeError: If it is not.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False; got {value!r} of type {type(value).__name__}.")
    return value


def integer(name: str, value: object, minimum: int, maximum: int | None = None) -> int:
    """Return ``value`` as a Python int in ``[minimum, maximum]``; a bool is not an integer here.

    Args:
        name: The argument's name, as the caller spelled it.
        value: What the caller passed: a Python or NumPy integer.
        minimum: The smallest valid value.
        maximum: The largest valid value; None means unbounded.

    Raises:
        TypeError: If ``value`` is not an integer.
        ValueError: If ``value`` is outside the range.
    """
    expected = f"an integer ≥ {minimum}" if maximum is None else f"an integer in [{minimum}, {maximum}]"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be {expected}; got {value!r} of type {type(value).__name__}.")
    number = operator.index(value)
    if number < minimum or (maximum is not None and number > maximum):
        raise ValueError(f"{name} must be {expected}; got {number}.")
    return number


def real(
    name: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    low_open: bool = False,
    high_open: bool = False,
) -> float:
    """Return ``value`` as a finite Python float between ``low`` and ``high``; a bool is not a number here.

    Args:
        name: The argument's name, as the caller spelled it.
        value: What the caller passed: a Python or NumPy real number.
        low: The lower end of the range.
        high: The upper end of the range.
        low_open: Whether ``low`` itself is excluded.
        high_open: Whether ``high`` itself is excluded.

    Raises:
        TypeError: If ``value`` is not a real number.
        ValueError: If ``value`` is outside the range, infinite or NaN.
    """
    left = "(" if low_open or math.isinf(low) else "["
    right = ")" if high_open or math.isinf(high) else "]"
    expected = f"a finite number in {left}{low:g}, {high:g}{right}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be {expected}; got {value!r} of type {type(value).__name__}.")
    try:
        number = float(value)
    except OverflowError:  # an integer beyond every float
        raise ValueError(f"{name} must be {expected}; got an integer of more than 300 digits.") from None
    above = number > low if low_open else number >= low
    below = number < high if high_open else number <= high
    if not (math.isfinite(number) and above and below):
        raise ValueError(f"{name} must be {expected}; got {number!r}.")
    return number


def generator(name: str, value: object) -> np.random.Generator:
    """Return ``value`` if it is a NumPy generator.

    Raises:
        TypeError: If it is anything else, such as a seed.
    """
    if not isinstance(value, np.random.Generator):
        raise TypeError(f"{name} must be a NumPy generator such as np.random.default_rng(0); got {value!r}.")
    return value


def discount(gamma: object) -> float:
    """Return ``gamma`` as a float in ``[0, 1)``, the range in which every recurrent process has a value.

    Raises:
        TypeError: If ``gamma`` is not a real number.
        ValueError: If ``gamma`` is outside ``[0, 1)``.
    """
    try:
        return real("gamma", gamma, 0.0, 1.0, high_open=True)
    except ValueError as error:
        raise ValueError(
            f"{error} At gamma ≥ 1 the sum of rewards of a process that never ends is infinite: "
            "use a discount below 1, such as 0.99."
        ) from None


def task_seed(seed: object) -> int:
    """Return ``seed`` as the non-negative integer that names a task.

    Raises:
        TypeError: If ``seed`` is not an integer.
        ValueError: If ``seed`` is negative.
    """
    return integer("task_seed", seed, 0)


def seeds(count: object, first: object) -> range:
    """Return the seeds ``first``, ``first + 1``, … of a study.

    Args:
        count: Their number, in [1, 100000].
        first: The first of them, in [0, 2³¹].

    Raises:
        TypeError: If one is not an integer.
        ValueError: If one is outside its range.
    """
    start = integer("first_seed", first, 0, 2**31)
    return range(start, start + integer("seeds", count, 1, MOST_SEEDS))


def reset_task_seed(options: dict[str, Any] | None) -> int | None:
    """Return the ``task_seed`` of ``reset(options=...)``, or None where the task is to stay.

    Raises:
        TypeError: If the options are not a dictionary or the seed is not an integer.
        ValueError: If there is an unknown option or the seed is negative.
    """
    if options is None:
        return None
    if not isinstance(options, dict):
        raise TypeError(f"options must be a dictionary or None; got {options!r}.")
    for key in options:
        choice("the key of options", key, ("task_seed",))
    return task_seed(options["task_seed"]) if "task_seed" in options else None


def unmasked(name: str, value: Any) -> None:  # noqa: ANN401 (anything array-like)
    """Raise TypeError if ``value``, or a row of a list, is a masked array: NumPy would drop the mask in silence."""
    rows = set(map(type, value)) if isinstance(value, list | tuple) else ()
    if any(issubclass(kind, np.ma.MaskedArray) for kind in (type(value), *rows)):
        raise TypeError(
            f"{name}: the mask of a masked array would be lost; pass its .data, and the mask where one goes."
        )


def same_kind(processes: Sequence[Any], kind: type, *names: str) -> None:
    """Raise ValueError if there are no processes, or they do not all sample and observe as ``kind``, or differ.

    Args:
        processes: Of that kind or of a class that inherits it.
        kind: Of which a batch makes all steps itself.
        names: Attributes that are the same in all of them.
    """
    if len(processes) == 0:
        raise ValueError("processes must be a list of at least one process; got none.")
    for process in processes:
        for method in ("sample_start", "sample_step", "observe"):
            if getattr(type(process), method, None) is not getattr(kind, method):
                raise ValueError(
                    f"processes must {method} as {kind.__name__} does, whose batch makes all steps itself; got a "
                    f"{type(process).__name__}, which would be ignored. Step each of them, as a ProcessEnv does."
                )
    for name in names:
        first, *others = map(operator.attrgetter(name), processes)
        for index, other in enumerate(others, start=1):
            if other != first:
                raise ValueError(
                    f"processes must have the same {name}; got {first!r} at index 0 and {other!r} at index {index}. "
                    "Make a batch of each kind."
                )


def returned(name: str, value: Any, *parts: str, by: str = "env") -> tuple[Any, ...]:  # noqa: ANN401 (checked here)
    """Return what an environment or a process returned, ``value``, if it has these parts.

    Raises:
        ValueError: If it has others, or if its reward is True or False and the flag behind it is not: so where the two
            are in each other's place.
    """
    if not isinstance(value, (tuple, list)) or len(value) != len(parts):
        got = f"{len(value)} things" if isinstance(value, (tuple, list)) else type(value).__name__
        like = ", as in Gymnasium" if by == "env" else ""
        raise ValueError(f"{by}: expected {name} to return ({', '.join(parts)}){like}, got {got}.")
    kinds = {part: _is_flag(each) for part, each in zip(parts, value, strict=True)}
    if kinds.get("reward") and not kinds["terminated"]:
        reward, terminated = (value[parts.index(part)] for part in ("reward", "terminated"))
        raise ValueError(
            f"{by}: expected {name} to return the reward before whether it terminated, got {reward!r} and "
            f"{terminated!r}, which seem to be in each other's place."
        )
    return tuple(value)


def _is_flag(value: object) -> bool:
    return isinstance(value, (bool, np.bool_)) or getattr(value, "dtype", None) == np.bool_
