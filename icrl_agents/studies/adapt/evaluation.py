"""What a bank's members, and mixtures of them, score on a cell."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from icrl_agents.adaptive import AdaptiveTD, AdaptiveValueFunction, Candidate, RelevanceTD, default_bank
from icrl_agents.adaptive.depths import fit_deepest
from icrl_agents.context import Context
from icrl_agents.diagnostics import centred_msve, msve
from icrl_agents.evaluators import WeightedSoftmaxTD
from icrl_agents.ground_truth import GroundTruth
from icrl_agents.studies.adapt.config import AdaptConfig
from icrl_agents.studies.transfer.trajectories import Request, Trajectories
from icrl_agents.value_function import DivergenceError, Evaluator, ValueFunction

FIXED, ADAPTIVE, NAIVE = "fixed", "adaptive", "leave one out"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method on the held-out trajectories of one domain, noise level and seed.

    ``method`` is ``fixed`` (one member of the bank), ``adaptive`` (the mixture chosen for the context) or ``leave one
    out`` (the member with the least mean TD loss on trajectories left out of the context, for comparison). ``weight``
    is a member's share of the mixture; of the mixture itself, how far it went from the default, 0 to 1. ``msve`` and
    ``centred_msve`` are against single Monte-Carlo returns, ``true_centred_msve`` is against means of several from each
    of some states, NaN without them. What diverges has infinite losses. Where the default does, there is no mixture and
    no choice: both have infinite losses, and the kernel ``none``.
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
    context = Context.from_episodes(trajectories.context, config.gamma).to(config.device)
    values = _fitted(evaluator, context)
    returns, tails = held_out.returns()
    counted = (tails >= config.tail).to(returns)

    def row(method: str, kernel: str, depth: int | None, weight: float, values: ValueFunction | None) -> Row:
        losses = (*_losses(values, held_out, returns, counted), _true_error(values, held_out, truth))
        named = dict(zip(("td_loss", "msve", "centred_msve", "true_centred_msve"), losses, strict=True))
        cell = {"domain": request.domain, "noise": noise, "sigma": request.noise, "seed": request.seed}
        return Row(**cell, method=method, kernel=kernel, depth=depth, weight=weight, **named)

    fixed = [row(FIXED, *member) for member in _members(evaluator, context, values)]
    yield from fixed
    if values is None:
        yield from (row(method, "none", None, math.nan, None) for method in (NAIVE, ADAPTIVE))
        return
    least = _least(values)
    yield from (replace(each, method=NAIVE) for each in fixed if (each.kernel, each.depth) == least)
    yield row(ADAPTIVE, "mixture", None, values.choice.step, values)


def label(evaluator: Evaluator) -> str:
    """Kernel and length scale in a few words."""
    if isinstance(evaluator, RelevanceTD):
        return f"relevance {evaluator.length_scale:g}"
    kernel = evaluator.kernel if isinstance(evaluator, WeightedSoftmaxTD) else evaluator
    scale = getattr(kernel, "length_scale", None)
    return type(kernel).__name__ + (f" {scale.item():g}" if isinstance(scale, Tensor) and scale.ndim == 0 else "")


def _members(
    evaluator: AdaptiveTD, context: Context, values: AdaptiveValueFunction | None
) -> Iterator[tuple[str, int, float, ValueFunction | None]]:
    """Kernel, depth, weight and value function of each member at each depth, None where it has diverged by then."""
    weights: dict[tuple[str, int], float] = {}
    if values is None:
        fitted = (fit_deepest(each, context, evaluator.depths) for each in evaluator.evaluators)
        parts = [each and each.values for each in fitted]
    else:
        parts = values.parts
        weights = dict(zip(map(_name, values.choice.candidates), values.choice.weights.tolist(), strict=True))
    for each, part in zip(evaluator.evaluators, parts, strict=True):
        for depth in sorted(set(evaluator.depths), reverse=True):
            value = part.at_depth(depth) if part is not None and depth <= part.max_depth else None
            yield label(each), depth, weights.get((label(each), depth), 0.0), value


def _least(values: AdaptiveValueFunction) -> tuple[str, int]:
    """Kernel and depth of the candidate with the least mean loss left out; of the default, where none is left out."""
    losses = values.choice.td_losses.mean(0).nan_to_num(math.inf)
    return _name(values.choice.candidates[int(losses.argmin()) if len(values.choice.td_losses) else 0])


def _name(candidate: Candidate) -> tuple[str, int]:
    return label(candidate.evaluator), candidate.depth


def _fitted(evaluator: AdaptiveTD, context: Context) -> AdaptiveValueFunction | None:
    try:
        return evaluator.fit(context)
    except DivergenceError:
        return None


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
