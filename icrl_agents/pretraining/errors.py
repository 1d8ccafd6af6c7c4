"""How far values are from the truth, on held-out tasks."""

from __future__ import annotations

import math

from torch import Tensor

from icrl_agents.pretraining.batches import Batch
from icrl_agents.pretraining.config import PretrainConfig


def value_error(config: PretrainConfig, batch: Batch, values: Tensor, targets: Tensor | None = None) -> float:
    """Relative value error Σ μ (v̂ − v)² / Σ μ v² over all tasks; NaN where values are not known exactly.

    Under average reward values mean something up to a constant only: v̂ and v are first centred by μ.

    Args:
        config: Says whether the reward is averaged.
        batch: Held-out tasks.
        values: v̂ at every state, ``(B, M)``.
        targets: v, by default the exact values.
    """
    if batch.values is None or batch.stationary is None:
        return math.nan
    mu, errors = batch.stationary, values - (batch.values if targets is None else targets)
    if config.algorithm == "average_reward":
        errors = errors - (mu * errors).sum(-1, keepdim=True)
    return float((mu * errors.square()).sum() / (mu * batch.values.square()).sum())


def return_error(batch: Batch, values: Tensor) -> float:
    """Σ (v̂(S_n) − G)² / Σ (G − Ḡ)² over all tasks, G the Monte-Carlo value of S_n; NaN without returns.

    1 is what the best constant scores.

    Args:
        batch: Held-out tasks.
        values: v̂ at every point, ``(B, M)``.
    """
    if batch.returns is None:
        return math.nan
    found = values.gather(-1, batch.future[:, :1])[:, 0]
    spread = (batch.returns - batch.returns.mean()).square().sum()
    return float((found - batch.returns).square().sum() / spread)
