"""What the evaluators score on one seed's episodes, and what the figures need of it."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from icrl_agents.context import Context
from icrl_agents.diagnostics import centred_msve, msve, td_loss
from icrl_agents.episode import Episode
from icrl_agents.kernels import Kernel
from icrl_agents.studies.evaluate.config import EvaluateConfig
from icrl_agents.studies.evaluate.evaluators import (
    LINEAR,
    UNCHOSEN,
    chosen_width,
    context_of,
    fitted,
    kernel_evaluators,
    kernel_of,
    linear_evaluator,
)
from icrl_agents.studies.evaluate.features import Standardisation, shortened, with_constant
from icrl_agents.value_function import Evaluator, ValueFunction


@dataclass(frozen=True, kw_only=True)
class Row:
    """One evaluator on the held-out episodes of one seed.

    ``td_loss`` is over all held-out transitions; the value errors are over those whose returns count, of which
    ``return_power`` is the mean square and ``return_variance`` the variance. ``width`` is the kernel's length scale in
    medians of the distance between states, ``effective_sample_size`` its mean over the held-out states; both None for
    LSTD. An evaluator without a solution has NaN.
    """

    env_id: str
    policy: str
    seed: int
    evaluator: str
    width: float | None
    context_transitions: int
    held_out_transitions: int
    returns_that_count: int
    td_loss: float
    td_loss_of_zero: float
    msve: float
    centred_msve: float
    bias: float
    return_power: float
    return_variance: float
    effective_sample_size: float | None
    seconds: float


@dataclass(frozen=True)
class Result:
    """What one evaluator says of the held-out states of one seed.

    Args:
        row: Its scores.
        values: v, ``(m,)``; NaN without a solution.
        returns: Monte-Carlo returns G, ``(m,)``.
        counted: Which returns count, ``(m,)``.
        sample_sizes: Effective sample sizes, ``(m,)``, or None for LSTD.
        lengths: Numbers of transitions of the held-out episodes.
    """

    row: Row
    values: np.ndarray
    returns: np.ndarray
    counted: np.ndarray
    sample_sizes: np.ndarray | None
    lengths: list[int]


def evaluate(
    config: EvaluateConfig, seed: int, context: Sequence[Episode], held_out: Sequence[Episode]
) -> Iterator[Result]:
    """Yields the result of each evaluator, fitted on ``context``, on ``held_out``."""
    context = shortened(context, config.max_transitions)
    if len(context) < 2:
        warnings.warn(
            f"seed {seed}: within {config.max_transitions} transitions there is one episode, and no second one to "
            f"choose a width by; it is {UNCHOSEN} medians. Take shorter episodes or more --max-transitions.",
            stacklevel=2,
        )
    scale = Standardisation(context)
    context, held_out = scale(context), scale(held_out)
    lengths = [len(episode) for episode in held_out]
    fitting, test = (context_of(config, episodes) for episodes in (context, held_out))
    for name, make in kernel_evaluators(config).items():
        started = time.perf_counter()
        width = _width(config, seed, name, make, context) if len(context) > 1 else UNCHOSEN
        value = fitted(make(kernel_of(config, fitting, width)), fitting)
        seconds = time.perf_counter() - started
        yield _result(config, seed, name, value, test, lengths, width, len(fitting), seconds)
    started = time.perf_counter()
    linear, linear_test = (context_of(config, with_constant(episodes)) for episodes in (context, held_out))
    value = fitted(linear_evaluator(config), linear)
    seconds = time.perf_counter() - started
    yield _result(config, seed, LINEAR, value, linear_test, lengths, None, len(linear), seconds)


def _width(
    config: EvaluateConfig, seed: int, name: str, make: Callable[[Kernel], Evaluator], context: Sequence[Episode]
) -> float:
    """The width that the context chooses; ``UNCHOSEN``, with a warning, if it cannot."""
    width = chosen_width(config, make, context)
    if width is not None:
        return width
    warnings.warn(
        f"seed {seed}, {name}: at no width do fits on both halves of the context's episodes exist, contract and stay "
        f"within what rewards allow, to choose one by; it is {UNCHOSEN} medians. Take more or longer episodes.",
        stacklevel=3,
    )
    return UNCHOSEN


def check_returns(config: EvaluateConfig, held_out: Sequence[Episode]) -> None:
    """Raises ValueError if no return of the held-out episodes counts."""
    if not any(episode.terminated or len(episode) >= config.min_tail for episode in held_out):
        raise ValueError(
            f"gamma: no held-out return holds {config.min_tail} rewards or ends in a termination, so that none is a "
            "ground truth; take a smaller --gamma, longer episodes (--max-episode-steps) or a smaller --tail."
        )


def _result(
    config: EvaluateConfig,
    seed: int,
    name: str,
    value: ValueFunction | None,
    test: Context,
    lengths: list[int],
    width: float | None,
    n: int,
    seconds: float,
) -> Result:
    returns, tails = test.returns()
    counted = tails >= config.min_tail
    zeros = torch.zeros_like(returns)
    values = torch.full_like(returns, torch.nan) if value is None else value(test.states)
    sizes = None if value is None or width is None else value.effective_sample_size(test.states)
    row = Row(
        env_id=config.env_id,
        policy=config.policy,
        seed=seed,
        evaluator=name,
        width=width,
        context_transitions=n,
        held_out_transitions=len(test),
        returns_that_count=int(counted.sum()),
        td_loss=math.nan if value is None else float(td_loss(value, test, [value.max_depth])[0]),
        td_loss_of_zero=float(test.rewards.square().mean()),
        **_errors(values, returns, counted.to(returns)),
        return_power=float(msve(zeros, returns, counted.to(returns))),
        return_variance=float(centred_msve(zeros, returns, counted.to(returns))),
        effective_sample_size=None if width is None else math.nan if sizes is None else float(sizes.mean()),
        seconds=round(seconds, 3),
    )
    sample_sizes = None if sizes is None else sizes.numpy(force=True)
    arrays = values.numpy(force=True), returns.numpy(force=True), counted.numpy(force=True)
    return Result(row, *arrays, sample_sizes, lengths)


def _errors(values: Tensor, returns: Tensor, weights: Tensor) -> dict[str, float]:
    if bool(values.isnan().any()):  # of an evaluator that has no solution here
        return dict.fromkeys(("msve", "centred_msve", "bias"), math.nan)
    return {
        "msve": float(msve(values, returns, weights)),
        "centred_msve": float(centred_msve(values, returns, weights)),
        "bias": float(((values - returns) * weights).sum() / weights.sum()),
    }
