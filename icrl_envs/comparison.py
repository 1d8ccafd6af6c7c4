"""Whether two processes, or the tasks that environments run, are the same, as far as that can be told."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Task(NamedTuple):
    """What an environment runs.

    Args:
        process: A process, or what else says what it is.
        seed: Of the task, where it was drawn; it counts where processes cannot be compared.
    """

    process: object
    seed: int | None = None


class Held:
    """The numbers and strings that a process holds, in place of one that cannot be sent; it has no equality either.

    Args:
        process: The process.
    """

    def __init__(self, process: object) -> None:
        held = {"": type(process).__qualname__, **getattr(process, "__dict__", {})}
        self.__dict__ = {name: plain for name, value in held.items() if (plain := _plain(value)) is not None}


def equal(process: object, other: object) -> bool | None:
    """Return whether two processes are equal; None of a class without an equality of its own, where it is not known."""
    if type(process) is not type(other):
        return False
    if process is other:
        return True
    if type(process).__eq__ is object.__eq__:
        return None
    try:
        return bool(process == other)
    except Exception:  # of arrays or tensors, as in a plain dataclass, each raises its own
        return None


def different(task: Task | None, other: Task | None) -> bool:
    """Return whether two tasks are known to differ; of processes without an equality: their seeds, or what they hold.

    What they hold are the numbers and strings, also in arrays and lists, among the attributes that both have.
    """
    if task is None or other is None:
        return task is not other
    same = equal(task.process, other.process)
    if same is None:
        return task.seed != other.seed or _hold_others(task.process, other.process)
    return not same


def _hold_others(process: object, other: object) -> bool:
    held, theirs = (getattr(each, "__dict__", {}) for each in (process, other))
    pairs = [(_plain(held[name]), _plain(theirs[name])) for name in held.keys() & theirs.keys()]
    return any(
        one is not None
        and two is not None
        and not (np.array_equal(one, two) or (one.shape == two.shape and one.tobytes() == two.tobytes()))  # also NaN
        for one, two in pairs
    )


def _plain(value: Any) -> np.ndarray | None:  # noqa: ANN401 (an attribute of any kind)
    """Numbers or strings as an array; None of anything else."""
    try:
        array = np.asarray(value)
    except Exception:  # of lists of different lengths, of tensors with a gradient, …
        return None
    return array if array.dtype.kind in "biufcSU" else None
