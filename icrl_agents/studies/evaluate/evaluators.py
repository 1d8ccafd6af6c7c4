"""The evaluators of the study, and the choice of their kernels' width on the context alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

from icrl_agents.context import Context
from icrl_agents.diagnostics import msve, td_loss
from icrl_agents.distances import median_distance
from icrl_agents.episode import Episode
from icrl_agents.evaluators import LSTD, KernelLSTD, KernelTD, MonteCarlo, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, Kernel, Laplace
from icrl_agents.studies.evaluate.config import EvaluateConfig
from icrl_agents.value_function import DivergenceError, Evaluator, ValueFunction

WIDTHS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""Length scales that are tried, in medians of the distance between the context's states."""
UNCHOSEN = 0.25
"""The length scale where the context cannot judge any: of one episode, no half can be held out."""
LINEAR = "LSTD"
_KERNELS: dict[str, Callable[[float], Kernel]] = {"laplace": Laplace, "rbf": RBF}


def kernel_evaluators(config: EvaluateConfig) -> dict[str, Callable[[Kernel], Evaluator]]:
    """The evaluators that take a kernel, by name."""
    return {
        "softmax TD": lambda kernel: WeightedSoftmaxTD(kernel, config.num_sweeps),
        "kernel TD": lambda kernel: KernelTD(kernel, config.num_sweeps),
        "kernel LSTD": lambda kernel: KernelLSTD(kernel, config.ridge),
        "Monte-Carlo": lambda kernel: MonteCarlo(kernel, config.min_tail),
    }


def linear_evaluator(config: EvaluateConfig) -> Evaluator:
    """LSTD, on features with a constant."""
    return LSTD(config.ridge)


def context_of(config: EvaluateConfig, episodes: Sequence[Episode]) -> Context:
    """The episodes as a context, on the study's device."""
    return Context.from_episodes(episodes, config.gamma).to(config.device)


def kernel_of(config: EvaluateConfig, context: Context, width: float) -> Kernel:
    """The kernel whose length scale is ``width`` medians of the distance between the context's states."""
    return _KERNELS[config.kernel](width * float(median_distance(context.states)))


def chosen_width(
    config: EvaluateConfig, make: Callable[[Kernel], Evaluator], episodes: Sequence[Episode]
) -> float | None:
    """The width whose values, fitted on every other episode, are nearest to the returns of the rest, both ways.

    Where no return counts, the TD loss decides. A width at which sweeps do not contract is not taken; None if there is
    no other, or nothing to fit on in one half.

    Args:
        config: The study's configuration.
        make: The evaluator of a kernel.
        episodes: At least two, the context's.
    """
    folds = (episodes[::2], episodes[1::2])
    halves = [context_of(config, fold) for fold in folds]

    def loss(width: float) -> float:
        evaluators = [make(kernel_of(config, half, width)) for half in halves]
        return sum(
            _held_out_loss(config, evaluator, own, other)
            for evaluator, own, other in zip(evaluators, halves, halves[::-1], strict=True)
        )

    losses = {width: loss(width) for width in WIDTHS}
    least = min(losses.values())
    return next(width for width in WIDTHS if losses[width] == least) if math.isfinite(least) else None


def fitted(evaluator: Evaluator, context: Context) -> ValueFunction | None:
    """The value function, or None if the evaluator diverges or finds no solution, with a warning."""
    try:
        return evaluator.fit(context)
    except (DivergenceError, ValueError) as error:
        warnings.warn(f"{type(evaluator).__name__}: left out: {error}", stacklevel=2)
        return None


def _held_out_loss(config: EvaluateConfig, evaluator: Evaluator, own: Context, other: Context) -> float:
    """The loss on ``other`` of a fit on ``own``; inf if there is none, sweeps do not contract, or values are beyond."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            return _loss(config, evaluator.fit(own), other)
    except (DivergenceError, ValueError, RuntimeWarning):
        return math.inf


def _loss(config: EvaluateConfig, value: ValueFunction, context: Context) -> float:
    returns, tails = context.returns()
    counted = (tails >= config.min_tail).to(returns)
    if not bool(counted.any()):
        return float(td_loss(value, context, [value.max_depth])[0])
    return float(msve(value(context.states), returns, counted))
