"""Contexts that slide along one trajectory, each one transition further than the one before."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from icrl_agents.compressed.contexts import CompressedContexts
from icrl_envs import arguments


@dataclass(frozen=True, eq=False)
class SlidingWindows:
    """W windows of n transitions along each of B trajectories over M points; window t starts at S_t.

    Windows of one trajectory share its points, hence their scores, and differ by two transitions from one to the
    next. Window t is a context; S_{n+t}, where it ends, is its query.

    Args:
        points: Features of the distinct states, ``(B, M, d)``.
        rewards: R of a step from each point, ``(B, M)``.
        path: Points S_0 … S_{n+W−1} of each trajectory, integers in 0 … M − 1, ``(B, n + W)``.
        discounts: γ_k of each transition, ``(B, n + W − 1)``.
        counts: Number of transitions of each window that start at each point, ``(B, W, M)``.
        flows: Σ γ_k 1{x_k = s, x′_k = s′} over the transitions of each window, ``(B, W, M, M)``.
    """

    points: Tensor
    rewards: Tensor
    path: Tensor
    discounts: Tensor
    counts: Tensor
    flows: Tensor

    @classmethod
    def along(cls, points: Tensor, rewards: Tensor, path: Tensor, discounts: Tensor, length: int) -> SlidingWindows:
        """Returns the windows of ``length`` ≥ 1 transitions that fit into the trajectories.

        Raises:
            TypeError: As ``CompressedContexts``, or if ``length`` is no integer.
            ValueError: As ``CompressedContexts``, or if no window fits.
        """
        CompressedContexts(points, rewards, path, discounts)  # checks them
        arguments.integer("length", length, 1, max(1, path.shape[-1] - 1))
        B, M = rewards.shape
        start, cells = path[:, :-1], path[:, :-1] * M + path[:, 1:]
        counts = _sliding_sums(start, torch.ones_like(discounts), length, M)
        flows = _sliding_sums(cells, discounts, length, M * M).view(B, -1, M, M)
        flows = flows * (counts > 0)[..., None]  # what rounding has left of a state that no window visits any more
        return cls(points, rewards, path, discounts, counts, flows)

    @property
    def queries(self) -> Tensor:
        """The point S_{n+t} where each window ends, ``(B, W)``."""
        return self.path[:, -self.counts.shape[1] :]

    @property
    def contexts(self) -> CompressedContexts:
        """The windows as B · W contexts of their own, those of one trajectory in a row."""
        W = self.counts.shape[1]
        n = self.path.shape[-1] - W
        points, rewards = self.points.repeat_interleave(W, 0), self.rewards.repeat_interleave(W, 0)
        path, discounts = self.path.unfold(-1, n + 1, 1), self.discounts.unfold(-1, n, 1)
        return CompressedContexts(points, rewards, path.flatten(0, 1), discounts.flatten(0, 1))


def _sliding_sums(index: Tensor, weights: Tensor, length: int, size: int) -> Tensor:
    """Sums of the weights at each index over windows of ``length`` entries, ``(B, W, size)``.

    The first window is summed; each further one adds the entry that comes in and takes off the one that falls out.
    """
    B, W = len(index), index.shape[-1] - length + 1
    changes = weights.new_zeros(B, W, size)
    changes[:, 0].scatter_add_(-1, index[:, :length], weights[:, :length])
    changes[:, 1:].scatter_add_(-1, index[:, length:, None], weights[:, length:, None])
    changes[:, 1:].scatter_add_(-1, index[:, : W - 1, None], -weights[:, : W - 1, None])
    return changes.cumsum(1)
