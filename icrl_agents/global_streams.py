"""Global generators of random numbers, which no seed that is given decides."""

from __future__ import annotations

import pickle
import random
import warnings
from typing import Any

import numpy as np
import torch


def global_streams() -> tuple[Any, ...]:
    """Where the global generators of NumPy, of whatever kind, Python and torch are; those of accelerators last."""
    states = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ())]
    numpys = pickle.dumps(np.random.get_state(legacy=False))  # noqa: NPY002 - it is only looked at
    return numpys, random.getstate(), *(each.numpy().tobytes() for each in states)


IN_ENVIRONMENT = (
    "the environment or the policy",
    "reset",
    "let the environment draw from self.np_random after super().reset(seed=seed) in its reset, and the policy from the "
    "rng that it is given",
)
IN_CRITIC = ("the evaluator or the features", "fit", "let them draw from a generator of their own, with a seed")


def warn_of_global_draws(
    before: tuple[Any, ...], seed: int | None, stacklevel: int, where: tuple[str, str, str] = IN_ENVIRONMENT
) -> None:
    """Warns if something has drawn from a global generator since ``before``, though ``seed`` was to decide.

    Args:
        before: What ``global_streams`` gave.
        seed: None where nothing was to decide.
        stacklevel: As of ``warnings.warn``, from the caller.
        where: Who may have drawn, which call of theirs may seed that, and what to do.
    """
    if seed is not None and global_streams()[: len(before)] != before:  # an accelerator may be in use since then
        warnings.warn(
            f"seed: {seed} does not decide the result, since {where[0]} draws from the global generator of NumPy, "
            f"Python or torch (unless another thread does, or {where[1]} seeds that with it); {where[2]}.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )
