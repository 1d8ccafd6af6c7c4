"""What is measured along training, on held-out tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from icrl_agents.compressed.passes import unchecked_state_values as state_values
from icrl_agents.diagnostics.distances import attention_distance, value_distance, value_row_distance
from icrl_agents.diagnostics.emergence import (
    context_diagonality,
    implicit_weight_similarity,
    sensitivity_similarity,
    value_weights,
)
from icrl_agents.pretraining.batches import evaluation_batch
from icrl_agents.pretraining.config import PretrainConfig
from icrl_agents.pretraining.errors import return_error, value_error
from icrl_agents.pretraining.model import construction
from icrl_agents.transformer import InContextTransformer

SIMILARITY_TASKS = 16
"""Tasks over which similarities are averaged: they differentiate the whole forward pass."""


@dataclass(frozen=True, kw_only=True)
class TrainingRow:
    """One row of measurements; NaN where something is not defined. Sequential weights are averaged over layers.

    Args:
        seed: Seed of the run.
        step: Steps taken so far.
        loss: Mean loss of the last 100 steps.
        diagonality: Mean kernel diagonality on the held-out contexts.
        value_error: Σ μ (v̂ − v)² / Σ μ v² over the held-out tasks, v exact; centred under average reward.
        construction_error: The same for the constructed transformer of the same depth, on the same contexts.
        return_error: Σ (v̂ − G)² / Σ (G − Ḡ)² against Monte-Carlo values G, where no exact ones are known.
        construction_return_error: The same for the constructed transformer.
        value_difference: Σ μ (v̂ − v̂*)² / Σ μ v², v̂* of the constructed transformer.
        implicit_weight_similarity: Against the constructed transformer.
        sensitivity_similarity: Against the constructed transformer, if that is differentiable in the query.
        weight_reward: Value weight on R.
        weight_target: Value weight on u.
        weight_value: Value weight on v.
        value_distance: Distance of V (or P) to the construction up to scale.
        value_row_distance: The same of row v (or of the last row of P) alone.
        attention_distance: Distance of A (or Q) to the construction up to scale.
    """

    seed: int
    step: int
    loss: float
    diagonality: float
    value_error: float
    construction_error: float
    return_error: float
    construction_return_error: float
    value_difference: float
    implicit_weight_similarity: float
    sensitivity_similarity: float
    weight_reward: float
    weight_target: float
    weight_value: float
    value_distance: float
    value_row_distance: float
    attention_distance: float

    @property
    def has_td_signs(self) -> bool:
        """Whether the value weights have the signs (+, +, −) of the construction."""
        return self.weight_reward > 0 and self.weight_target > 0 and self.weight_value < 0


class Measurements:
    """Measures transformers on one set of held-out tasks.

    Args:
        config: Says which tasks.
    """

    def __init__(self, config: PretrainConfig) -> None:
        self.config = config
        self.batch = evaluation_batch(config)
        self.construction = construction(config)
        with torch.no_grad():
            self._reference = state_values(self.construction, self.batch.contexts)

    def __call__(self, transformer: InContextTransformer, step: int, loss: float) -> TrainingRow:
        """Returns the row of ``transformer`` after ``step`` steps, at a training loss of ``loss``."""
        config, batch, linear = self.config, self.batch, self.config.form == "linear"
        with torch.no_grad():
            values = state_values(transformer, batch.contexts)
            diagonal = math.nan if linear else context_diagonality(transformer, batch.contexts).mean().item()
            weights = [math.nan] * 3 if linear else value_weights(transformer).mean(0).tolist()
        weight_similarity, sensitivity = self._similarities(transformer)
        return TrainingRow(
            seed=config.seed,
            step=step,
            loss=loss,
            diagonality=diagonal,
            value_error=value_error(config, batch, values),
            construction_error=value_error(config, batch, self._reference),
            return_error=return_error(batch, values),
            construction_return_error=return_error(batch, self._reference),
            value_difference=value_error(config, batch, values, self._reference),
            implicit_weight_similarity=weight_similarity,
            sensitivity_similarity=sensitivity,
            weight_reward=weights[0],
            weight_target=weights[1],
            weight_value=weights[2],
            value_distance=value_distance(transformer, self.construction).mean().item(),
            value_row_distance=value_row_distance(transformer, self.construction).mean().item(),
            attention_distance=attention_distance(
                transformer, self.construction, one_hot=config.features == "one_hot" and config.chain != "cartpole"
            )
            .mean()
            .item(),
        )

    def _similarities(self, transformer: InContextTransformer) -> tuple[float, float]:
        if self.batch.stationary is None:
            return math.nan, math.nan
        rows = slice(SIMILARITY_TASKS)
        contexts = self.batch.contexts.rows(rows)
        mu = self.batch.stationary[rows]
        with torch.no_grad():
            pair = transformer.fit(contexts.context), self.construction.fit(contexts.context)
            weights = implicit_weight_similarity(*pair, contexts.points, mu).mean().item()
        if self.config.form != "linear" and self.config.features != "one_hot":
            return weights, math.nan
        return weights, sensitivity_similarity(*pair, contexts.points, mu).mean().item()
