"""Pretrained transformers on tasks they were not trained for: more states, longer contexts, deeper loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from icrl_agents.compressed import state_values
from icrl_agents.pretraining import PretrainConfig, PretrainResult
from icrl_agents.pretraining.batches import evaluation_batch
from icrl_agents.pretraining.model import construction
from icrl_agents.transformer import InContextTransformer
from icrl_agents.value_function import DivergenceError

TASKS = 200
FACTORS = {
    "num_states": (0.5, 1, 2, 4),
    "context_length": (0.25, 0.5, 1, 2, 5, 10, 20),
    "num_layers": (0.5, 1, 2, 4, 8, 16),
}


@dataclass(frozen=True, kw_only=True)
class GeneralisationRow:
    """Value errors on fresh tasks where one number differs from training.

    Args:
        seed: Seed of the pretrained transformer.
        changed: ``"num_states"``, ``"context_length"`` or ``"num_layers"``.
        value: What it is here.
        trained: What it was in training.
        value_error: Σ μ (v̂ − v)² / Σ μ v² over the fresh tasks; NaN where v̂ is not finite.
        construction_error: The same for the constructed transformer of that depth.
    """

    seed: int
    changed: str
    value: int
    trained: int
    value_error: float
    construction_error: float


def generalisation(result: PretrainResult) -> list[GeneralisationRow]:
    """Returns value errors for changed numbers of states, context lengths and, for looped layers, depths.

    Numbers of states beyond the dimension of one-hot features are left out.
    """
    return [_row(result, changed, trained, config) for changed, trained, config in _changes(result.config)]


def _changes(config: PretrainConfig) -> Iterator[tuple[str, int, PretrainConfig]]:
    for changed, factors in FACTORS.items():
        trained = getattr(config, changed)
        for value in sorted({max(2, round(factor * trained)) for factor in factors}):
            too_many = config.features == "one_hot" and changed == "num_states" and value > config.dim
            if not too_many and (config.tied or changed != "num_layers"):
                yield (
                    changed,
                    trained,
                    dataclasses.replace(config, num_features=config.dim, min_layers=None, **{changed: value}),
                )


def _row(result: PretrainResult, changed: str, trained: int, config: PretrainConfig) -> GeneralisationRow:
    batch = evaluation_batch(dataclasses.replace(config, precision="float64"), TASKS)
    blocks = list(result.transformer.blocks)
    transformer = InContextTransformer(blocks, config.num_layers // len(blocks))
    errors = []
    with torch.no_grad():
        for each in (transformer, construction(config)):
            try:
                values = state_values(each, batch.contexts)
            except DivergenceError:
                values = torch.full_like(batch.contexts.rewards, torch.nan)
            if batch.stationary is None or batch.values is None:
                raise ValueError("config: expected chains, whose values are known.")
            power = (batch.stationary * batch.values.square()).sum()
            errors.append(float((batch.stationary * (values - batch.values).square()).sum() / power))
    return GeneralisationRow(
        seed=config.seed,
        changed=changed,
        value=getattr(config, changed),
        trained=trained,
        value_error=errors[0],
        construction_error=errors[1],
    )
