"""Attributes that are checked whenever they are set."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Generic, Self, TypeVar, overload

from torch import nn

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


class CheckedModule(nn.Module):
    """A module whose checked attributes are that for modules and parameters too, which torch would register."""

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401 - of any type
        """Sets an attribute."""
        own = getattr(type(self), name, None)
        if isinstance(own, Checked):
            own.__set__(self, value)
        else:
            super().__setattr__(name, value)


def one_of(choices: Collection[str]) -> Callable[[str, Any], Any]:
    """A check for ``Checked`` that takes one of ``choices``, and raises ValueError at anything else."""

    def check(name: str, value: Any) -> Any:  # noqa: ANN401 - of any type
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"{name}: expected one of {list(choices)}, got {value!r}.")
        return value

    return check
