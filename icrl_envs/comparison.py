"""Whether two processes, or the tasks that environments run, are the same, as far as that can be told."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

DEEPEST = 6
"""Containers in each other, the process's own attributes among them, in which numbers are looked for."""


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
        self.kind, self.numbers = type(process).__qualname__, _held(process)


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

    What they hold are the numbers and strings that both have: in attributes and slots, also in arrays, lists,
    dictionaries, dataclasses, namespaces and the weights of modules there.
    """
    if task is None or other is None:
        return task is not other
    same = equal(task.process, other.process)
    if same is None:
        return task.seed != other.seed or _hold_others(task.process, other.process)
    return not same


def _hold_others(process: object, other: object) -> bool:
    held, theirs = _held(process), _held(other)
    pairs = [(held[path], theirs[path]) for path in held.keys() & theirs.keys()]
    return any(
        not (np.array_equal(one, two) or (one.shape == two.shape and one.tobytes() == two.tobytes()))  # also NaN
        for one, two in pairs
    )


def _held(process: object) -> dict[tuple[Any, ...], np.ndarray]:
    """The numbers and strings of a process, by the names that lead to each."""
    slots = [name for kind in type(process).__mro__ for name in _names(getattr(kind, "__slots__", ()))]
    own = {name: getattr(process, name) for name in slots if hasattr(process, name)}
    return dict(_numbers({**own, **getattr(process, "__dict__", {})}, (), DEEPEST))


def _names(slots: str | Iterable[str]) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _numbers(value: Any, path: tuple[Any, ...], depth: int) -> Iterator[tuple[tuple[Any, ...], np.ndarray]]:  # noqa: ANN401
    plain = _plain(value)
    if plain is not None:
        yield path, plain
    elif depth:
        for name, part in _parts(value):
            yield from _numbers(part, (*path, name), depth - 1)


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:  # noqa: ANN401
    """What a container holds, by name; nothing of other objects."""
    if isinstance(value, type):
        return ()
    if callable(getattr(value, "state_dict", None)):
        value = value.state_dict()
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, (list, tuple)):
        return enumerate(value)
    kept = isinstance(value, SimpleNamespace) or dataclasses.is_dataclass(value)
    return getattr(value, "__dict__", {}).items() if kept else ()


def _plain(value: Any) -> np.ndarray | None:  # noqa: ANN401 (an attribute of any kind)
    """Numbers or strings as an array; None of anything else."""
    try:
        array = np.asarray(value)
    except Exception:  # of lists of different lengths, of tensors with a gradient, …
        return None
    return array if array.dtype.kind in "biufcSU" else None
