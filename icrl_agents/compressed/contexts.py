"""Batches of contexts over few distinct states."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from icrl_agents.arrays import check_kind, finite, take_rows
from icrl_agents.context import Context
from icrl_agents.magnitudes import widened


@dataclass(frozen=True, eq=False)
class CompressedContexts:
    """B trajectories of n transitions, each over M points; several time steps may be at the same point.

    Equal states have equal rows and columns in every attention over features, so transitions that start at the
    same point act as one, whose message is their mean and whose weight is their number.

    Args:
        points: Features of the distinct states, ``(B, M, d)``.
        rewards: R of a step from each point, ``(B, M)``.
        path: Points S_0 … S_n of each trajectory, integers in 0 … M − 1, ``(B, n + 1)``.
        discounts: γ_k of each transition, ``(B, n)``.

    Raises:
        TypeError: If one is no tensor.
        ValueError: If shapes or floating types disagree, a number is not finite, a discount lies outside [0, 1], or
            the path leaves the points.
    """

    points: Tensor
    rewards: Tensor
    path: Tensor
    discounts: Tensor

    def __post_init__(self) -> None:
        """Checks types, shapes and the range of the path, and copies what may be written into later."""
        for name in ("points", "rewards", "path", "discounts"):
            check_kind(name, getattr(self, name), Tensor)
        if self.points.ndim != 3:
            raise ValueError(f"points: expected shape (B, M, d), got {tuple(self.points.shape)}.")
        B, M, _ = self.points.shape
        if self.path.dtype != torch.int64 or self.path.ndim != 2 or len(self.path) != B or self.path.shape[-1] == 0:
            raise ValueError(f"path: expected int64 ({B}, n + 1), got {self.path.dtype} {tuple(self.path.shape)}.")
        if not bool(((self.path >= 0) & (self.path < M)).all()):
            raise ValueError(f"path: expected points from 0 to {M - 1}, got others.")
        for name, shape in (("rewards", (B, M)), ("discounts", (B, len(self)))):
            array = getattr(self, name)
            if array.shape != shape or array.dtype != self.points.dtype:
                expected = f"{self.points.dtype} {shape} to match points and path"
                raise ValueError(f"{name}: expected {expected}, got {array.dtype} {tuple(array.shape)}.")
        for name in ("points", "rewards", "discounts"):
            finite(name, getattr(self, name))
        if not bool(((self.discounts >= 0) & (self.discounts <= 1)).all()):
            raise ValueError("discounts: expected numbers in [0, 1], got others.")
        for name in ("points", "rewards", "path", "discounts"):
            object.__setattr__(self, name, getattr(self, name).clone())

    def __len__(self) -> int:
        """Number of transitions n."""
        return self.path.shape[-1] - 1

    @cached_property
    def counts(self) -> Tensor:
        """Number of transitions that start at each point, ``(B, M)``."""
        return self._counts.to(self.discounts)

    @cached_property
    def _counts(self) -> Tensor:
        ones = torch.ones_like(widened(self.discounts))  # float32 counts to 2²⁴ alone
        return torch.zeros_like(widened(self.rewards)).scatter_add_(-1, self.path[:, :-1], ones)

    @cached_property
    def routing(self) -> Tensor:
        """Γ(s, s′): mean over the transitions from s of γ_k 1{x′_k = s′}, ``(B, M, M)``; 0 for unvisited s."""
        B, M = self.rewards.shape
        cells = self.path[:, :-1] * M + self.path[:, 1:]
        discounts = widened(self.discounts)  # of which n may be summed
        sums = discounts.new_zeros(B, M * M).scatter_add_(-1, cells, discounts)
        return (sums.view(B, M, M) / self._counts.clamp(min=1.0)[..., None]).to(self.discounts)

    @cached_property
    def context(self) -> Context:
        """The same contexts in full, one row per transition."""
        n = len(self)
        states = take_rows(self.points, self.path)
        linked = torch.arange(n, device=states.device) < n - 1
        return Context(
            states[:, :-1],
            self.rewards.gather(-1, self.path[:, :-1]),
            self.discounts,
            states[:, 1:],
            contiguous=linked.expand_as(self.discounts),
        )

    def rows(self, chosen: slice) -> CompressedContexts:
        """Some of the contexts."""
        return CompressedContexts(self.points[chosen], self.rewards[chosen], self.path[chosen], self.discounts[chosen])

    def by_point(self, weights: Tensor) -> Tensor:
        """Sums attention weights ``(B, m, n)`` over the transitions that start at the same point, ``(B, m, M)``."""
        index = self.path[:, None, :-1].expand_as(weights)
        return weights.new_zeros((*weights.shape[:-1], self.rewards.shape[-1])).scatter_add_(-1, index, weights)
