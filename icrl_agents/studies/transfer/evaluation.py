"""The evaluators of the study, fixed once, and what they score on a cell."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from icrl_agents import constructions, kernels
from icrl_agents.adaptive import AdaptiveTD, default_bank
from icrl_agents.context import Context
from icrl_agents.diagnostics import centred_msve, msve, td_loss
from icrl_agents.evaluators import LSTD, KernelLSTD
from icrl_agents.ground_truth import GroundTruth, true_centred_msve
from icrl_agents.studies.depths import shallower
from icrl_agents.studies.transfer.config import TransferConfig
from icrl_agents.studies.transfer.trajectories import Request, Trajectories
from icrl_agents.transformer import InContextTransformer
from icrl_agents.value_function import DivergenceError, Evaluator, ValueFunction

TRANSFORMERS = ("softmax", "kernel", "linear")
ADAPTIVE = "adaptive"
REFERENCES = ("LSTD", "kernel LSTD")
_KERNELS = {
    "product_laplace": kernels.ProductLaplace,
    "laplace": kernels.Laplace,
    "rbf": kernels.RBF,
    "exponential": kernels.Exponential,
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One evaluator at one depth on the held-out trajectories of one domain, noise level and seed.

    ``msve`` and ``centred_msve`` are against Monte-Carlo returns; ``return_power`` is the mean square of those
    returns and ``return_variance`` their variance, by which the relative errors divide; ``context_return_variance``
    is that of the context's returns. ``true_centred_msve`` and ``true_variance`` are the same as ``centred_msve`` and
    ``return_variance`` against the ground truth of some states, what its noise puts in taken away; NaN where none was
    asked for. ``depth`` is None for closed forms and for the adaptive mixture. An evaluator that diverged has infinite
    losses, one without a solution NaN.
    """

    domain: str
    noise: str
    sigma: float
    seed: int
    evaluator: str
    depth: int | None
    td_loss: float
    msve: float
    centred_msve: float
    return_power: float
    return_variance: float
    context_return_variance: float
    true_centred_msve: float = math.nan
    true_variance: float = math.nan


def evaluators(config: TransferConfig, dim: int) -> dict[str, Evaluator]:
    """The evaluators by name; the same objects, and so the same weights, serve every cell.

    Args:
        config: The study's configuration.
        dim: Dimension of the observation.
    """
    kernel = _KERNELS[config.kernel](config.kernel_length_scale)
    return {
        "softmax": constructions.weighted_softmax_td(
            _KERNELS[config.kernel](config.length_scale), config.depth, form=config.form
        ),
        "kernel": constructions.kernel_td(kernel, config.depth, form=config.form),
        "linear": constructions.linear_td(dim, config.depth),
        ADAPTIVE: AdaptiveTD(default_bank(config.depth), (max(1, config.depth // 4), config.depth)),
        "LSTD": LSTD(config.ridge),
        "kernel LSTD": KernelLSTD(kernel, config.ridge),
    }


def evaluate(
    config: TransferConfig,
    named: dict[str, Evaluator],
    request: Request,
    noise: str,
    trajectories: Trajectories,
    truth: GroundTruth | None = None,
) -> Iterator[Row]:
    """Yields the rows of one cell and seed; ``truth`` are values of states of the held-out trajectories, if wanted."""
    context = Context.from_episodes(trajectories.context, config.gamma).to(config.device)
    held_out = Context.from_episodes(trajectories.held_out, config.gamma).to(config.device)
    returns, counted = _counted_returns(held_out, config.tail)
    target = _Target(held_out, returns, counted, truth)
    cell = {
        "return_power": float(msve(torch.zeros_like(returns), returns, counted)),
        "return_variance": _variance(returns, counted),
        "context_return_variance": _variance(*_counted_returns(context, config.tail)),
        **({} if truth is None else {"true_variance": true_centred_msve(np.zeros(len(truth.values)), truth).error}),
    }
    for name, evaluator in named.items():
        depths = config.depths if name in TRANSFORMERS else [None]
        scores = _scores(evaluator, context, target, depths)
        for i, depth in enumerate(depths):
            yield Row(
                domain=request.domain,
                noise=noise,
                sigma=request.noise,
                seed=request.seed,
                evaluator=name,
                depth=depth,
                **{measure: by_depth[i] for measure, by_depth in scores.items()},
                **cell,
            )


def _counted_returns(context: Context, tail: int) -> tuple[Tensor, Tensor]:
    """Monte-Carlo returns, and 1 where they have at least ``tail`` rewards, 0 elsewhere."""
    returns, tails = context.returns()
    return returns, (tails >= tail).to(returns)


def _variance(returns: Tensor, counted: Tensor) -> float:
    return float(centred_msve(torch.zeros_like(returns), returns, counted))


@dataclass(frozen=True)
class _Target:
    """What values are measured on: held-out transitions, their returns, which of them count, and ground truth."""

    held_out: Context
    returns: Tensor
    counted: Tensor
    truth: GroundTruth | None

    def measured(self, values: ValueFunction, depths: Sequence[int]) -> dict[str, list[float]]:
        """Each loss at each depth."""
        by_depth = values.by_depth(self.held_out.states, depths).mT
        found = {
            "td_loss": td_loss(values, self.held_out, depths).tolist(),
            "msve": msve(by_depth, self.returns, self.counted).tolist(),
            "centred_msve": centred_msve(by_depth, self.returns, self.counted).tolist(),
        }
        if (truth := self.truth) is not None:
            states = torch.as_tensor(truth.observations).to(self.held_out.states)
            there = values.by_depth(states, depths).mT.numpy(force=True)
            found["true_centred_msve"] = [true_centred_msve(each, truth).error for each in there]
        return found

    def lost(self, loss: float, depths: int) -> dict[str, list[float]]:
        """The same where there are no values."""
        true = () if self.truth is None else ("true_centred_msve",)
        return dict.fromkeys(("td_loss", "msve", "centred_msve", *true), [loss] * depths)


def _scores(
    evaluator: Evaluator, context: Context, target: _Target, depths: Sequence[int | None]
) -> dict[str, list[float]]:
    """Losses by name at each depth, None for its last: infinite where it diverges, NaN if unsolved."""
    try:
        values = evaluator.fit(context)
    except DivergenceError:
        if len(depths) == 1 or not isinstance(evaluator, InContextTransformer):
            return target.lost(math.inf, len(depths))
        each = [_scores(shallower(evaluator, depth or 0), context, target, [None]) for depth in depths]
        return {name: [losses[name][0] for losses in each] for name in each[0]}
    except ValueError as error:
        warnings.warn(f"{type(evaluator).__name__}: left out of a cell: {error}", stacklevel=2)
        return target.lost(math.nan, len(depths))
    return target.measured(values, [values.max_depth if depth is None else depth for depth in depths])
