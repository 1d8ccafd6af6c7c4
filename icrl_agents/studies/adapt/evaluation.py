"""What a bank's members, and mixtures of them, score on a cell."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from icrl_agents.adaptive import AdaptiveTD, AdaptiveValueFunction, RelevanceTD, default_bank
from icrl_agents.context import Context
from icrl_agents.diagnostics import centred_msve, msve
from icrl_agents.evaluators import WeightedSoftmaxTD
from icrl_agents.ground_truth import GroundTruth
from icrl_agents.studies.adapt.config import AdaptConfig
from icrl_agents.studies.transfer.trajectories import Request, Trajectories
from icrl_agents.value_function import Evaluator, ValueFunction

FIXED, ADAPTIVE, NAIVE = "fixed", "adaptive", "leave one out"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method on the held-out trajectories of one domain, noise level and seed.

    ``method`` is ``fixed`` (one member of the bank), ``adaptive`` (the mixture chosen for the context) or ``leave one
    out`` (the member with the least mean TD loss on trajectories left out of the context, for comparison). ``weight``
    is a member's share of the mixture; of the mixture itself, how far it went from the default, 0 to 1. ``msve`` and
    ``centred_msve`` are against single Monte-Carlo returns, ``true_centred_msve`` is against means of several from each
    of some states, NaN without them.
    """

    domain: str
    noise: str
    sigma: float
    seed: int
    method: str
    kernel: str
    depth: int | None
    weight: float
    td_loss: float
    msve: float
    centred_msve: float
    true_centred_msve: float


def adaptive(config: AdaptConfig) -> AdaptiveTD:
    """The evaluator of the study: the same object for every cell."""
    return AdaptiveTD(default_bank(config.depth), config.depths, config.caution, config.return_weight)


def evaluate(
    config: AdaptConfig,
    evaluator: AdaptiveTD,
    request: Request,
    noise: str,
    trajectories: Trajectories,
    truth: GroundTruth | None = None,
) -> Iterator[Row]:
    """Yields the rows of one cell and seed; ``truth`` are values of states of the held-out trajectories, if wanted."""
    held_out = Context.from_episodes(trajectories.held_out, config.gamma).to(config.device)
    values = evaluator.fit(Context.from_episodes(trajectories.context, config.gamma).to(config.device))
    returns, tails = held_out.returns()
    counted = (tails >= config.tail).to(returns)

    def row(method: str, kernel: str, depth: int | None, weight: float, values: ValueFunction | None) -> Row:
        losses = (*_losses(values, held_out, returns, counted), _true_error(values, held_out, truth))
        named = dict(zip(("td_loss", "msve", "centred_msve", "true_centred_msve"), losses, strict=True))
        cell = {"domain": request.domain, "noise": noise, "sigma": request.noise, "seed": request.seed}
        return Row(**cell, method=method, kernel=kernel, depth=depth, weight=weight, **named)

    fixed = [row(FIXED, *member) for member in _members(evaluator, values)]
    yield from fixed
    losses = values.choice.td_losses.mean(0)
    naive = fixed[int(losses.nan_to_num(math.inf).argmin())] if len(values.choice.td_losses) else fixed[0]
    yield Row(**{**vars(naive), "method": NAIVE})
    yield row(ADAPTIVE, "mixture", None, values.choice.step, values)


def label(evaluator: Evaluator) -> str:
    """Kernel and length scale in a few words."""
    if isinstance(evaluator, RelevanceTD):
        return f"relevance {evaluator.length_scale:g}"
    kernel = evaluator.kernel if isinstance(evaluator, WeightedSoftmaxTD) else evaluator
    scale = getattr(kernel, "length_scale", None)
    return type(kernel).__name__ + (f" {scale.item():g}" if isinstance(scale, Tensor) and scale.ndim == 0 else "")


def _members(evaluator: AdaptiveTD, values: AdaptiveValueFunction) -> Iterator[tuple[str, int, float, ValueFunction]]:
    """Kernel, depth, weight and value function of each candidate."""
    parts = {id(each): part for each, part in zip(evaluator.evaluators, values.parts, strict=True)}
    for candidate, weight in zip(values.choice.candidates, values.choice.weights.tolist(), strict=True):
        part = parts[id(candidate.evaluator)]
        if part is not None:
            yield label(candidate.evaluator), candidate.depth, weight, part.at_depth(candidate.depth)


def _losses(
    values: ValueFunction | None, held_out: Context, returns: Tensor, counted: Tensor
) -> tuple[float, float, float]:
    if values is None:
        return math.inf, math.inf, math.inf
    found = values(held_out.points)
    loss = held_out.td_errors(found).square().mean()
    found = found[: len(held_out)]
    return float(loss), float(msve(found, returns, counted)), float(centred_msve(found, returns, counted))


def _true_error(values: ValueFunction | None, held_out: Context, truth: GroundTruth | None) -> float:
    """Variance of v − v̂ over the states of the ground truth v̂, whose own noise is the same for every method."""
    if truth is None or values is None:
        return math.nan if truth is None else math.inf
    found = values(torch.as_tensor(truth.observations).to(held_out.states))
    return float(np.var(found.numpy(force=True) - truth.values))
