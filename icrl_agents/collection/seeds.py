"""Copies that a seed does not tell apart."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv

from icrl_agents.episode import Episode


def warn_of_equal_workers(env: Any, by_copy: Sequence[Sequence[Episode]], seed: int | None, stacklevel: int) -> None:  # noqa: ANN401
    """Warns if all copies in workers did the same in all episodes, though each has a seed of its own.

    Workers begin with the global generators of the process that started them, and what they draw is not seen here.

    Args:
        env: An environment or vector environment.
        by_copy: Episodes of each copy, of which the numbers may differ by one; no single step tells.
        seed: As of ``warn_of_global_draws``.
        stacklevel: As of ``warn_of_global_draws``.
    """
    known = [episodes for episodes in by_copy if episodes]
    workers = isinstance(env.unwrapped, AsyncVectorEnv)
    if not workers or seed is None or len(known) < 2 or sum(map(len, known[0])) < 2:
        return
    if all(
        np.array_equal(one.observations, other.observations) and np.array_equal(one.rewards, other.rewards)
        for episodes in known[1:]
        for one, other in zip(known[0], episodes, strict=False)
    ):
        warnings.warn(
            f"env: {len(known)} copies did all the same, though each has a seed of its own: environment and policy are "
            "deterministic, and one copy is enough, or the environment ignores its seed, as where it draws from "
            "a global generator instead of self.np_random.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )
