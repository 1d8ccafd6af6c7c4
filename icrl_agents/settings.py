"""Settings that may come out of an array, and those that are checked whenever they are set."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np

_Value = TypeVar("_Value")


class Checked(Generic[_Value]):
    """An attribute that is checked whenever it is set: later as when the object is made.

    Args:
        check: From the attribute's name and what is given to what is kept; raises an error that says what was expected.
    """

    def __init__(self, check: Callable[[str, Any], _Value]) -> None:
        self._check = check

    def __set_name__(self, owner: type, name: str) -> None:
        """Takes the name."""
        self._name = name

    @overload
    def __get__(self, item: None, owner: type) -> Self: ...

    @overload
    def __get__(self, item: object, owner: type) -> _Value: ...

    def __get__(self, item: object | None, owner: type) -> Self | _Value:
        """What it was set to."""
        if item is None:
            return self
        try:
            return vars(item)[self._name]
        except KeyError:
            raise AttributeError(f"{type(item).__name__} has no {self._name} yet") from None

    def __set__(self, item: object, value: Any) -> None:  # noqa: ANN401 - of any type
        """Checks and sets it."""
        vars(item)[self._name] = self._check(self._name, value)


def one_of(choices: Collection[str]) -> Callable[[str, Any], Any]:
    """A check for ``Checked`` that takes one of ``choices``, and raises ValueError at anything else."""

    def check(name: str, value: Any) -> Any:  # noqa: ANN401 - of any type
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"{name}: expected one of {list(choices)}, got {value!r}.")
        return value

    return check


def as_python(settings: Any) -> None:  # noqa: ANN401 - a frozen dataclass instance
    """Makes numbers of NumPy's among its fields, and in their tuples, those of Python: torch and JSON ask for them."""
    for name, value in list(vars(settings).items()):
        if isinstance(value, np.generic):
            object.__setattr__(settings, name, value.item())
        elif type(value) is tuple and any(isinstance(each, np.generic) for each in value):
            kept = tuple(each.item() if isinstance(each, np.generic) else each for each in value)
            object.__setattr__(settings, name, kept)
