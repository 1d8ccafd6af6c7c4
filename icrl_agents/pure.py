"""Functions of states that a user gives, such as kernels: whether what they give depends on the call."""

from __future__ import annotations

import torch
from torch import Tensor

PAIRS = 4
"""Of neighbouring states that such a function is tried on: along a trajectory those are near each other."""

_DIFFERENT, _ROUNDING = 1e-2, 1e-5
"""Differences between what is given for the same states, to these and to the largest of them, above rounding."""


def some_rows(states: Tensor) -> tuple[Tensor, Tensor]:
    """A few of ``states (*batch, n, d)``, a copy, and the first half of those."""
    n = states.shape[-2]
    first = torch.linspace(0, n - 2, PAIRS).long()
    rows = torch.stack([first, first + 1], dim=-1).flatten() if n > 2 * PAIRS else torch.arange(n)
    some = states[..., rows, :]
    return some, some[..., : (some.shape[-2] + 1) // 2, :]


def depends_on_call(alone: Tensor, again: Tensor, among: Tensor) -> bool:
    """Whether states were given other numbers when asked for ``again``, or ``among`` others, than ``alone``."""
    rounding = _ROUNDING * float(alone.nan_to_num(posinf=0.0, neginf=0.0).abs().max())  # padding may have any
    repeats = torch.allclose(again, alone, rtol=0.0, atol=rounding, equal_nan=True)
    return not (repeats and torch.allclose(among, alone, rtol=_DIFFERENT, atol=rounding, equal_nan=True))
