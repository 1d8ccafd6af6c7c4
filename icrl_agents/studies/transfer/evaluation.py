"""The evaluators of the study, fixed once, and what they score on a cell."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from icrl_agents import constructions, kernels
from icrl_agents.context import Context
from icrl_agents.diagnostics import centred_msve, msve, td_loss
from icrl_agents.evaluators import LSTD, KernelLSTD
from icrl_agents.studies.transfer.config import TransferConfig
from icrl_agents.studies.transfer.trajectories import Request, Trajectories
from icrl_agents.value_function import DivergenceError, Evaluator

TRANSFORMERS = ("softmax", "kernel", "linear")
REFERENCES = ("LSTD", "kernel LSTD")
_KERNELS = {"laplace": kernels.Laplace, "rbf": kernels.RBF, "exponential": kernels.Exponential}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One evaluator at one depth on the held-out trajectories of one domain, noise level and seed.

    ``msve`` and ``centred_msve`` are against Monte-Carlo returns; ``return_power`` is the mean square of those
    returns and ``return_variance`` their variance, by which the relative errors divide. ``depth`` is None for
    closed forms. An evaluator that diverged has infinite losses, one without a solution NaN.
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
        "LSTD": LSTD(config.ridge),
        "kernel LSTD": KernelLSTD(kernel, config.ridge),
    }


def evaluate(
    config: TransferConfig, named: dict[str, Evaluator], request: Request, noise: str, trajectories: Trajectories
) -> Iterator[Row]:
    """Yields the rows of one cell and seed."""
    context = Context.from_episodes(trajectories.context, config.gamma).to(config.device)
    held_out = Context.from_episodes(trajectories.held_out, config.gamma).to(config.device)
    returns, tails = held_out.returns()
    counted = (tails >= config.tail).to(returns)
    truth = {
        "return_power": float(msve(returns.new_zeros(returns.shape), returns, counted)),
        "return_variance": float(centred_msve(returns.new_zeros(returns.shape), returns, counted)),
    }
    for name, evaluator in named.items():
        depths = config.depths if name in TRANSFORMERS else [0]
        losses, errors, centred = _scores(evaluator, context, held_out, returns, counted, depths)
        for depth, loss, error, centred_error in zip(depths, losses, errors, centred, strict=True):
            yield Row(
                domain=request.domain,
                noise=noise,
                sigma=request.noise,
                seed=request.seed,
                evaluator=name,
                depth=depth if name in TRANSFORMERS else None,
                td_loss=loss,
                msve=error,
                centred_msve=centred_error,
                **truth,
            )


def _scores(
    evaluator: Evaluator, context: Context, held_out: Context, returns: Tensor, counted: Tensor, depths: list[int]
) -> tuple[list[float], list[float], list[float]]:
    """TD losses, MSVEs and centred MSVEs at each depth: infinite if it diverges, NaN if it has no solution."""
    try:
        values = evaluator.fit(context)
    except DivergenceError:
        return (none := [math.inf] * len(depths)), none, none
    except ValueError as error:
        warnings.warn(f"{type(evaluator).__name__}: left out of a cell: {error}", stacklevel=2)
        return (none := [math.nan] * len(depths)), none, none
    by_depth = values.by_depth(held_out.states, depths).mT
    return (
        td_loss(values, held_out, depths).tolist(),
        msve(by_depth, returns, counted).tolist(),
        centred_msve(by_depth, returns, counted).tolist(),
    )
