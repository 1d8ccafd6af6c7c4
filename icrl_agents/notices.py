"""Warnings of this package, which what calls it may hear instead, in its own thread: ``catch_warnings`` is for all."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_HEARD: ContextVar[list[Warning] | None] = ContextVar("_HEARD", default=None)


def warn(message: str | Warning, category: type[Warning] = UserWarning, *, stacklevel: int = 1) -> None:
    """As ``warnings.warn``, unless somebody hears it."""
    heard = _HEARD.get()
    if heard is None:
        warnings.warn(message, category, stacklevel=stacklevel + 1)
    else:
        heard.append(message if isinstance(message, Warning) else category(message))


@contextmanager
def hearing() -> Iterator[list[Warning]]:
    """The warnings of this package in this thread, which are not shown."""
    heard: list[Warning] = []
    before = _HEARD.set(heard)
    try:
        yield heard
    finally:
        _HEARD.reset(before)
