"""One cell of the study: a source domain and a seed, pretrained or constructed, measured on all targets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from icrl_agents import constructions
from icrl_agents.context import Context
from icrl_agents.diagnostics import centred_msve, msve, td_loss
from icrl_agents.evaluators import LSTD
from icrl_agents.studies.depths import shallower
from icrl_agents.studies.matrix.config import MatrixConfig
from icrl_agents.studies.matrix.data import Cell, check_goals, evaluation, source_episodes
from icrl_agents.studies.matrix.training import KERNELS, pretrained
from icrl_agents.studies.transfer.trajectories import Trajectories
from icrl_agents.transformer import InContextTransformer
from icrl_agents.value_function import DivergenceError, Evaluator

CONSTRUCTED = "constructed"
"""The source of transformers whose weights are written down; of LSTD, the limit of the linear one, too."""
LENGTH_SCALE, RIDGE = 0.1, 0.02
"""Of the softmax transformer and of LSTD without pretraining: what served best over these domains."""
MODELS = "models"
SOFTMAX, LINEAR, CLOSED = "softmax", "linear", "LSTD"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A frozen transformer at one depth on the held-out trajectories of one target.

    Args:
        source: Where its weights come from: a domain, or ``"constructed"``.
        seed: Of the cell.
        target: The domain it is measured on.
        noise: Its noise level.
        model: ``"softmax"``, ``"linear"`` or ``"LSTD"``.
        depth: Number of layers; None for LSTD.
        td_loss: Mean squared TD error; infinite where the layers diverge.
        msve: Mean squared error against Monte-Carlo returns.
        centred_msve: The same after the best constant.
        zero_td_loss: TD loss of v = 0, the mean squared reward.
        return_power: Mean square of the returns.
        return_variance: Their variance.
    """

    source: str
    seed: int
    target: str
    noise: str
    model: str
    depth: int | None
    td_loss: float
    msve: float
    centred_msve: float
    zero_td_loss: float
    return_power: float
    return_variance: float


def rows_of(config: MatrixConfig, cell: Cell) -> list[Row]:
    """Pretrains, saves and evaluates, or constructs and evaluates."""
    levels = dict(zip(config.noise, config.transfer().scales, strict=True))
    if cell.source == CONSTRUCTED:
        first = evaluation(config, config.domains[0], levels[config.noise[0]], cell.seed)
        models = constructed(config, np.asarray(first.context[0].observations).shape[-1])
    else:
        check_goals(cell)
        models = pretrained(config, source_episodes(config, cell), cell.seed)
        for name, model in models.items():
            model.save_pretrained(folder_of(config, cell, name))
    rows: list[Row] = []
    for target in config.domains:
        for noise, sigma in levels.items():
            for scores in evaluate(config, models, evaluation(config, target, sigma, cell.seed)):
                rows.append(Row(source=cell.source, seed=cell.seed, target=target, noise=noise, **scores))
    return rows


def constructed(config: MatrixConfig, dim: int) -> dict[str, Evaluator]:
    """The transformers without any pretraining, one length scale for all dimensions, and LSTD."""
    return {
        SOFTMAX: constructions.weighted_softmax_td(KERNELS[config.kernel](LENGTH_SCALE), config.depth),
        LINEAR: constructions.linear_td(dim, config.depth),
        CLOSED: LSTD(RIDGE),
    }


def folder_of(config: MatrixConfig, cell: Cell, model: str) -> Path:
    """Where a pretrained transformer is kept."""
    return config.out.absolute() / MODELS / f"{cell.source}_seed_{cell.seed}" / model


def evaluate(config: MatrixConfig, models: Mapping[str, Evaluator], trajectories: Trajectories) -> Iterator[dict]:
    """Yields the entries of a row, from ``model`` on, for each model and depth."""
    context, held_out = (
        Context.from_episodes(episodes, config.gamma).to(config.device)
        for episodes in (trajectories.context, trajectories.held_out)
    )
    returns, tails = held_out.returns()
    counted = (tails >= config.tail).to(returns)
    nothing = returns.new_zeros(returns.shape)
    truth = {
        "zero_td_loss": float(held_out.rewards.square().mean()),
        "return_power": float(msve(nothing, returns, counted)),
        "return_variance": float(centred_msve(nothing, returns, counted)),
    }
    for name, model in models.items():
        depths = [0] if name == CLOSED else config.transfer().depths
        scores = _scores(model, context, held_out, returns, counted, depths)
        for depth, (loss, error, centred) in zip(depths, scores, strict=True):
            losses = {"td_loss": loss, "msve": error, "centred_msve": centred}
            yield {"model": name, "depth": None if name == CLOSED else depth, **losses, **truth}


def _scores(
    model: Evaluator, context: Context, held_out: Context, returns: Tensor, counted: Tensor, depths: list[int]
) -> list[tuple[float, float, float]]:
    """TD loss, MSVE and centred MSVE at each depth; infinite where it diverges."""
    try:
        values = model.fit(context)
    except DivergenceError:
        if len(depths) == 1 or not isinstance(model, InContextTransformer):
            return [(math.inf, math.inf, math.inf)] * len(depths)
        each = [_scores(shallower(model, depth), context, held_out, returns, counted, [depth]) for depth in depths]
        return [losses for (losses,) in each]
    by_depth = values.by_depth(held_out.states, depths).mT
    losses = (
        td_loss(values, held_out, depths),
        msve(by_depth, returns, counted),
        centred_msve(by_depth, returns, counted),
    )
    return list(zip(*(loss.tolist() for loss in losses), strict=True))
