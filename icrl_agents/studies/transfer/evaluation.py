"""The evaluators of the study, fixed once, and what they score on a cell."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from icrl_agents import constructions, kernels
from icrl_agents.adaptive import AdaptiveTD, default_bank
from icrl_agents.context import Context
from icrl_agents.diagnostics import centred_msve, msve, td_loss
from icrl_agents.evaluators import LSTD, KernelLSTD
from icrl_agents.studies.transfer.config import TransferConfig
from icrl_agents.studies.transfer.trajectories import Request, Trajectories
from icrl_agents.value_function import DivergenceError, Evaluator

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
    is that of the context's returns. ``depth`` is None for closed forms and for the adaptive mixture. An evaluator
    that diverged has infinite losses, one without a solution NaN.
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
    config: TransferConfig, named: dict[str, Evaluator], request: Request, noise: str, trajectories: Trajectories
) -> Iterator[Row]:
    """Yields the rows of one cell and seed."""
    context = Context.from_episodes(trajectories.context, config.gamma).to(config.device)
    held_out = Context.from_episodes(trajectories.held_out, config.gamma).to(config.device)
    returns, counted = _counted_returns(held_out, config.tail)
    truth = {
        "return_power": float(msve(torch.zeros_like(returns), returns, counted)),
        "return_variance": _variance(returns, counted),
        "context_return_variance": _variance(*_counted_returns(context, config.tail)),
    }
    for name, evaluator in named.items():
        depths = config.depths if name in TRANSFORMERS else [None]
        scores = _scores(evaluator, context, held_out, returns, counted, depths)
        for depth, loss, error, centred_error in zip(depths, *scores, strict=True):
            yield Row(
                domain=request.domain,
                noise=noise,
                sigma=request.noise,
                seed=request.seed,
                evaluator=name,
                depth=depth,
                td_loss=loss,
                msve=error,
                centred_msve=centred_error,
                **truth,
            )


def _counted_returns(context: Context, tail: int) -> tuple[Tensor, Tensor]:
    """Monte-Carlo returns, and 1 where they have at least ``tail`` rewards, 0 elsewhere."""
    returns, tails = context.returns()
    return returns, (tails >= tail).to(returns)


def _variance(returns: Tensor, counted: Tensor) -> float:
    return float(centred_msve(torch.zeros_like(returns), returns, counted))


def _scores(
    evaluator: Evaluator,
    context: Context,
    held_out: Context,
    returns: Tensor,
    counted: Tensor,
    depths: Sequence[int | None],
) -> tuple[list[float], list[float], list[float]]:
    """TD losses, MSVEs and centred MSVEs at each depth, None for its last: infinite if it diverges, NaN if unsolved."""
    try:
        values = evaluator.fit(context)
    except DivergenceError:
        return (none := [math.inf] * len(depths)), none, none
    except ValueError as error:
        warnings.warn(f"{type(evaluator).__name__}: left out of a cell: {error}", stacklevel=2)
        return (none := [math.nan] * len(depths)), none, none
    reached = [values.max_depth if depth is None else depth for depth in depths]
    by_depth = values.by_depth(held_out.states, reached).mT
    return (
        td_loss(values, held_out, reached).tolist(),
        msve(by_depth, returns, counted).tolist(),
        centred_msve(by_depth, returns, counted).tolist(),
    )
