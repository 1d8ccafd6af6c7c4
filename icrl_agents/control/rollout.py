"""What N copies of an environment did in T steps, as a context."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from icrl_agents.arrays import as_tensor, rounded_discounts
from icrl_agents.context import Context


class Rollout:
    """T steps of N copies, taken one row of N transitions at a time.

    Args:
        num_envs: Number of copies N.
    """

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self._rows: list[tuple[np.ndarray | Tensor, ...]] = []

    def __len__(self) -> int:
        """Number of rows T so far."""
        return len(self._rows)

    def add(
        self,
        states: Tensor,
        rewards: np.ndarray,
        next_states: Tensor,
        terminated: np.ndarray,
        truncated: np.ndarray,
        valid: np.ndarray | None = None,
    ) -> None:
        """Adds what one step of the copies did.

        Args:
            states: x, shape ``(N, d)``.
            rewards: R, shape ``(N,)``.
            next_states: x′, shape ``(N, d)``; at the end of an episode its true final observation.
            terminated: Whether x′ is terminal, shape ``(N,)``; it wins over ``truncated``.
            truncated: Whether the episode was cut at x′, shape ``(N,)``.
            valid: False where a copy restarted instead of taking a step, shape ``(N,)``.
        """
        valid = np.ones(self.num_envs, dtype=bool) if valid is None else valid
        self._rows.append((states, np.array(rewards), next_states, np.array(terminated), np.array(truncated), valid))

    def context(self, gamma: float) -> Context:
        """The transitions, those of copy 0 first; each copy's last one, if it ends no episode, is truncated.

        Args:
            gamma: Discount γ in [0, 1] of every transition that does not terminate.

        Raises:
            ValueError: If γ < 1 would be rounded to 1 in the type of the states, or all rewards to 0.
        """
        states, rewards, next_states, terminated, truncated, valid = (
            torch.stack([as_tensor("rollout", part) for part in column], dim=1)
            for column in zip(*self._rows, strict=True)
        )
        continues = ~(terminated | truncated)
        continues[:, -1] = False
        given, rewards = rewards, rewards.to(states)
        if bool((rewards.abs() < torch.finfo(rewards.dtype).tiny).all()) and bool(given.any()):
            raise ValueError(f"env: expected rewards that {rewards.dtype} holds, got smaller ones; scale them up.")
        discounts = torch.full_like(rewards, gamma, dtype=torch.float64).masked_fill(terminated.to(rewards.device), 0.0)
        discounts = rounded_discounts(discounts, rewards.dtype)
        columns = (states, rewards, discounts, next_states, continues)
        s, r, g, s_next, linked = (column[valid] for column in columns)
        return Context(s, r, g, s_next, contiguous=linked)

    @property
    def valid(self) -> Tensor:
        """Which of the N·T entries are rows of the context, shape ``(N, T)``."""
        return torch.stack([as_tensor("rollout", row[-1]) for row in self._rows], dim=1)
