"""Folds of a context: whole trajectories, left out by turns."""

from __future__ import annotations

import torch
from torch import Tensor

from icrl_agents.context import Context


def trajectories(context: Context) -> list[Tensor]:
    """Returns the indices of each trajectory's transitions: the longest contiguous runs, padding left out."""
    indices = torch.arange(len(context), device=context.device)[context.mask]
    if len(indices) == 0:
        return []
    ends = torch.nonzero(~context.contiguous[indices])[:, 0] + 1
    return list(torch.tensor_split(indices, ends[:-1].cpu()))


def folds(context: Context, most: int) -> list[Tensor]:
    """Returns the indices of each fold's transitions: one trajectory each, or neighbouring ones where there are more.

    Args:
        context: One context.
        most: Largest number of folds ≥ 1; beyond it, trajectories are grouped in order to folds of similar length.
    """
    runs = trajectories(context)
    if len(runs) <= most:
        return runs
    total = sum(map(len, runs))
    grouped: list[list[Tensor]] = [[] for _ in range(most)]
    before = 0
    for run in runs:
        grouped[(before + len(run) // 2) * most // total].append(run)
        before += len(run)
    return [torch.cat(group) for group in grouped if group]


def subset(context: Context, indices: Tensor) -> Context:
    """Returns the context of some whole trajectories, given by their transitions' indices."""
    return Context(
        context.states[indices],
        context.rewards[indices],
        context.discounts[indices],
        context.next_states[indices],
        contiguous=context.contiguous[indices],
    )
