"""Prompts: a context and its queries as the token matrix that a transformer reads.

Tokens are rows here, ``(*batch, columns, rows)``, the transpose of the papers' Z. A memory prompt has one token per
distinct time step (the context's ``points``), a linear prompt one per transition; then comes one per query. The
first n are the keys. A final observation, a padded transition and a query are never keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

from icrl_agents.context import Context
from icrl_agents.eligibility import continuing_features, discounted_features

MEMORY = 3
"""Rows below the features in a memory prompt: reward R, bootstrapped target u, value v."""


def memory_tokens(context: Context, queries: Tensor) -> Tensor:
    """Prompt of softmax and kernel attention, columns [φ; R; u; v] (arXiv 2605.07333, prompt construction).

    R is 0 where no transition starts (final observations, queries); the memory slots u and v start at 0.

    Args:
        context: n transitions over n + e points, dimension d.
        queries: ``(*batch, m, d)``.

    Returns:
        Tokens ``(*batch, n + e + m, d + 3)``.
    """
    features = torch.cat([context.points, _expanded(queries, context)], dim=-2)
    memory = features.new_zeros((*features.shape[:-1], MEMORY))
    memory[..., : len(context), 0] = context.rewards
    return torch.cat([features, memory], dim=-1)


def route(context: Context, row: Tensor) -> Tensor:
    """Routes a row along the trajectories: entry k becomes γ_k · row[succ(k)]; 0 where no transition starts.

    For a single trajectory and constant γ this is γ·shift, the Π of the target-value head and the Temporal Shift
    Module. With several episodes no entry crosses an episode's end.

    Args:
        context: n transitions over n + e points.
        row: ``(*batch, columns)``.

    Returns:
        ``(*batch, columns)``.
    """
    n = len(context)
    routed = context.discounts * torch.gather(row, -1, context.successors)
    return torch.cat([routed, torch.zeros_like(row[..., n:])], dim=-1)


def linear_tokens(context: Context, queries: Tensor) -> Tensor:
    """Prompt of linear attention, columns [φ; γφ′; R], queries [φ; 0; 0] (arXiv 2405.13861, prompt).

    γφ′ is 0 where a transition terminates; padded columns are 0.

    Args:
        context: n transitions, dimension d.
        queries: ``(*batch, m, d)``.

    Returns:
        Tokens ``(*batch, n + m, 2d + 1)``.
    """
    return _linear_prompt(context, queries, [discounted_features(context), context.rewards[..., None]])


def average_reward_tokens(context: Context, queries: Tensor) -> Tensor:
    """Prompt of average-reward linear attention, columns [φ; φ′; 1; R], queries [φ; 0; 0; 0] (arXiv 2405.13861).

    Args:
        context: n transitions that continue, dimension d; padded columns are 0.
        queries: ``(*batch, m, d)``.

    Returns:
        Tokens ``(*batch, n + m, 2d + 2)``.

    Raises:
        ValueError: If a transition of ``context`` is terminal.
    """
    ones = context.mask[..., None].to(context.dtype)
    return _linear_prompt(context, queries, [continuing_features(context), ones, context.rewards[..., None]])


def _linear_prompt(context: Context, queries: Tensor, rows: list[Tensor]) -> Tensor:
    keys = torch.cat([context.states, *rows], dim=-1)
    queries = _expanded(queries, context)
    blank = queries.new_zeros((*queries.shape[:-1], keys.shape[-1] - context.dim))
    return torch.cat([keys, torch.cat([queries, blank], dim=-1)], dim=-2)


def _expanded(queries: Tensor, context: Context) -> Tensor:
    return queries.to(context.points).expand(*context.points.shape[:-2], *queries.shape[-2:])
