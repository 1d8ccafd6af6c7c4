"""What a computation asks of the machine: a device, and how many threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

_LOCK = threading.Lock()
_BEFORE: list[int] = []
"""Torch's number of threads before the first of those that keep it on one, as often as there are any."""


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Keeps torch on one thread: where products are small, threads that wait for each other cost more.

    Of several at a time, in threads of the caller's, the last one to end gives back what was before the first.
    """
    with _LOCK:
        _BEFORE.append(_BEFORE[0] if _BEFORE else torch.get_num_threads())
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _LOCK:
            before = _BEFORE.pop()
            if not _BEFORE:
                torch.set_num_threads(before)


def check_device(name: str) -> None:
    """Raises ValueError if the torch device ``name`` cannot compute here."""
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device: {name!r} is not available here ({str(error).splitlines()[0][:120]}).") from None
