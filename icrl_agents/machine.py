"""What a computation asks of the machine: a device, and how many threads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Keeps torch on one thread: where products are small, threads that wait for each other cost more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_device(name: str) -> None:
    """Raises ValueError if the torch device ``name`` cannot compute here."""
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device: {name!r} is not available here ({str(error).splitlines()[0][:120]}).") from None
