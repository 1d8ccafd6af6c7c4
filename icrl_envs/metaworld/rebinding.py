"""Copies of library functions that see other names: what they call can change without changing the library."""

import types
from collections.abc import Callable
from typing import Any


def rebound(function: Callable[..., Any], **names: object) -> Callable[..., Any]:
    """Return a copy of a Python function whose global ``names`` are replaced; the original stays as it is.

    Raises:
        TypeError: If ``function`` is not a plain Python function.
    """
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"function must be a plain Python function; got {function!r}.")
    globals_ = {**function.__globals__, **names}
    copy = types.FunctionType(
        function.__code__, globals_, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
