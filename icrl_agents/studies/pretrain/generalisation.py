"""Pretrained transformers on tasks they were not trained for: more states, longer contexts, deeper loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from icrl_agents.compressed.passes import unchecked_state_values
from icrl_agents.pretraining import PretrainConfig, PretrainResult
from icrl_agents.pretraining.batches import Batch, evaluation_batch
from icrl_agents.pretraining.errors import return_error, value_error
from icrl_agents.pretraining.model import construction
from icrl_agents.transformer import InContextTransformer
from icrl_agents.value_function import DivergenceError

TASKS, CARTPOLE_TASKS = 200, 64
FACTORS = {
    "num_states": (0.5, 1, 2, 4),
    "context_length": (0.25, 0.5, 1, 2, 5, 10, 20),
    "num_layers": (0.5, 1, 2, 4, 8, 16),
}
LONGEST_CARTPOLE = 4
"""Factor of the longest contexts of CartPole, whose time steps are all distinct states."""


@dataclass(frozen=True, kw_only=True)
class GeneralisationRow:
    """Value errors on fresh tasks where one number differs from training.

    Args:
        seed: Seed of the pretrained transformer.
        changed: ``"num_states"``, ``"context_length"`` or ``"num_layers"``.
        value: What it is here.
        trained: What it was in training.
        measure: ``"value"``, errors Σ μ (v̂ − v)² / Σ μ v² against the exact value over the fresh tasks; or
            ``"return"``, errors Σ (v̂ − G)² / Σ (G − Ḡ)² against Monte-Carlo values.
        error: Of the pretrained transformer; NaN where v̂ is not finite.
        construction_error: Of the constructed transformer of that depth.
    """

    seed: int
    changed: str
    value: int
    trained: int
    measure: str
    error: float
    construction_error: float


def generalisation(result: PretrainResult) -> list[GeneralisationRow]:
    """Returns errors for changed numbers of states, context lengths and, for looped layers, depths.

    Numbers of states beyond the dimension of one-hot features are left out, and so are those of CartPole.
    """
    return [_row(result, changed, trained, config) for changed, trained, config in _changes(result.config)]


def _changes(config: PretrainConfig) -> Iterator[tuple[str, int, PretrainConfig]]:
    cartpole = config.chain == "cartpole"
    for changed, factors in FACTORS.items():
        if cartpole and changed == "num_states":
            continue
        trained, least = getattr(config, changed), 2 if changed == "num_states" else 1
        for value in sorted(
            {max(least, round(factor * trained)) for factor in factors if not cartpole or factor <= LONGEST_CARTPOLE}
        ):
            too_many = config.features == "one_hot" and changed == "num_states" and value > config.dim
            if not too_many and (config.tied or changed != "num_layers"):
                features = None if cartpole else config.dim
                other = dataclasses.replace(config, num_features=features, min_layers=None, **{changed: value})
                yield changed, trained, other


def _row(result: PretrainResult, changed: str, trained: int, config: PretrainConfig) -> GeneralisationRow:
    cartpole = config.chain == "cartpole"
    count = CARTPOLE_TASKS if cartpole else TASKS
    batch = evaluation_batch(dataclasses.replace(config, precision="float64"), count)
    blocks = list(result.transformer.blocks)
    errors = []
    for each in (InContextTransformer(blocks, config.num_layers // len(blocks)), construction(config)):
        values = _values(each, batch)
        errors.append(return_error(batch, values) if cartpole else value_error(config, batch, values))
    return GeneralisationRow(
        seed=config.seed,
        changed=changed,
        value=getattr(config, changed),
        trained=trained,
        measure="return" if cartpole else "value",
        error=errors[0],
        construction_error=errors[1],
    )


def _values(transformer: InContextTransformer, batch: Batch) -> torch.Tensor:
    """Values at every point, however far off they are; NaN everywhere if one is not finite, or they are refused."""
    none = torch.full_like(batch.contexts.rewards, torch.nan)
    try:
        with torch.no_grad():
            values = unchecked_state_values(transformer, batch.contexts)
    except DivergenceError:
        return none
    return values if bool(torch.isfinite(values).all()) else none
