"""Folds of a context: whole trajectories, left out by turns."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import torch
from torch import Tensor

from icrl_agents.context import Context

_FEW = 0.1
"""The share of states in several different trajectories up to which equal ones are no chance."""


def trajectories(context: Context) -> list[Tensor]:
    """Returns the indices of each trajectory's transitions: the longest contiguous runs, padding left out."""
    indices = torch.arange(len(context), device=context.device)[context.mask]
    if len(indices) == 0:
        return []
    ends = (torch.nonzero(~context.contiguous[indices])[:, 0] + 1).tolist()
    return [indices[first:last] for first, last in pairwise([0, *ends[:-1], len(indices)])]


def folds(context: Context, most: int) -> list[Tensor]:
    """Returns the indices of each fold's transitions: one trajectory each, or neighbouring ones where there are more.

    Equal trajectories, as of a bootstrap, count as one: none is left out while others like it are fitted on. Where
    different ones go through the same states too, as in a finite process, they are taken for others of each other.

    Args:
        context: One context.
        most: Largest number of folds ≥ 1; beyond it, trajectories are grouped in order to ``most`` folds, of similar
            length where no trajectory is longer than that.
    """
    runs = _distinct(context, trajectories(context))
    if len(runs) <= most:
        return runs
    total = sum(map(len, runs))
    grouped: list[list[Tensor]] = [[] for _ in range(most)]
    before, fold = 0, -1
    for i, run in enumerate(runs):
        wanted = (before + len(run) // 2) * most // total
        fold = max(min(wanted, fold + 1), fold, most - len(runs) + i)  # so that none stays empty
        grouped[fold].append(run)
        before += len(run)
    return [torch.cat(group) for group in grouped]


def _distinct(context: Context, runs: list[Tensor]) -> list[Tensor]:
    following = context.next_states.masked_fill((context.discounts == 0)[..., None], 0.0)
    rows = torch.cat([context.states, following, context.rewards[..., None], context.discounts[..., None]], -1).detach()
    equal: dict[tuple[tuple[float, ...], ...], list[Tensor]] = {}
    for run in runs:
        equal.setdefault(tuple(map(tuple, rows[run].tolist())), []).append(run)
    if len(equal) == len(runs) or _recur([[row[: context.dim] for row in run] for run in equal]):
        return runs
    return [torch.cat(alike) for alike in equal.values()]


def _recur(runs: list[list[tuple[float, ...]]]) -> bool:
    """Whether different trajectories go through the same states, so that some may have come out equal by chance."""
    times = Counter(state for run in runs for state in set(run))
    return sum(count > 1 for count in times.values()) > _FEW * len(times)


def subset(context: Context, indices: Tensor) -> Context:
    """Returns the context of some whole trajectories, given by their transitions' indices."""
    return Context(
        context.states[indices],
        context.rewards[indices],
        context.discounts[indices],
        context.next_states[indices],
        contiguous=context.contiguous[indices],
    )
