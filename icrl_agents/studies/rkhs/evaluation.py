"""What evaluators recover of one process, fitted again and again on parts of one trajectory."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from icrl_agents import constructions, kernels
from icrl_agents.collection import collect_episodes
from icrl_agents.context import Context
from icrl_agents.diagnostics import centred_msve, msve
from icrl_agents.episode import Episode
from icrl_agents.evaluators import LSTD, KernelLSTD
from icrl_agents.studies.evaluate.features import with_constant
from icrl_agents.studies.rkhs.config import KERNELS, RKHSConfig
from icrl_agents.value_function import DivergenceError, DivergenceWarning, Evaluator, ValueFunction
from icrl_envs import RKHSProcess
from icrl_envs.adapter import ProcessEnv

SOFTMAX, KERNEL, CLOSED, LINEAR = "softmax", "kernel", "kernel LSTD", "LSTD"
TRANSFORMERS = (SOFTMAX, KERNEL)
_KERNELS = {"rbf": kernels.RBF, "exponential": kernels.Exponential}
TEST_STREAM = 1
LEAST_POWER = 0.01
"""Mean square of the value in the test states below which a warning says so; it is 1 in all states together."""


class Cell(NamedTuple):
    """One process: the kernel whose RKHS holds its value, the dimension of its state, and its seed."""

    kernel: str
    dim: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """One evaluator on one process, at one context length, scale and depth.

    ``process_kernel`` is the value's, ``kernel`` the evaluator's, at ``ratio`` times its scale in the configuration
    (LSTD has none). The value's mean square is 1 in the stationary law, and so errors are relative as they are:
    ``error`` is the mean square in states of that law, ``centred_error`` the same after the best constant shift,
    ``seen_error`` the mean square in the context's own states. An evaluator that diverged, or has no solution, has
    infinite errors. ``depth`` is None for closed forms.
    """

    process_kernel: str
    dim: int
    seed: int
    evaluator: str
    kernel: str
    ratio: float | None
    length: int
    depth: int | None
    error: float
    centred_error: float
    seen_error: float


class Fit(NamedTuple):
    """A kernel at a multiple of its scale, on the first steps of the trajectory, with the depths to report.

    Linear features have no scale and no depth.
    """

    kernel: str
    ratio: float | None
    length: int
    depths: tuple[int, ...]


def process_of(config: RKHSConfig, cell: Cell) -> RKHSProcess:
    """The process of a cell; its seed names the value."""
    scale = config.scale(cell.kernel)
    return RKHSProcess(dim=cell.dim, kernel=cell.kernel, length_scale=scale, gamma=config.gamma, task_seed=cell.seed)


def trajectory(config: RKHSConfig, cell: Cell) -> Episode:
    """One trajectory of a cell's process, as long as the longest context."""
    steps = max(*config.lengths, config.mismatch_length)
    return collect_episodes(ProcessEnv(process_of(config, cell)), num_steps=steps, seed=cell.seed)[0]


def fits(config: RKHSConfig, kernel: str) -> Iterator[Fit]:
    """Yields each fit once: the value's own kernel at every length, then both kernels at every other scale."""
    for length in config.lengths:
        yield Fit(kernel, 1.0, length, tuple(config.reported_depths))
    for other in KERNELS:
        for ratio in config.ratios:
            if (other, ratio) != (kernel, 1.0) or config.mismatch_length not in config.lengths:
                yield Fit(other, ratio, config.mismatch_length, (config.depth,))


def evaluators(config: RKHSConfig, fit: Fit) -> dict[str, Evaluator]:
    """The two transformers and their closed form, by name."""
    ratio = 1.0 if fit.ratio is None else fit.ratio
    kernel = _KERNELS[fit.kernel](ratio * config.scale(fit.kernel))
    depth = max(fit.depths)
    return {
        SOFTMAX: constructions.weighted_softmax_td(kernel, depth, form="temporal_shift"),
        KERNEL: constructions.kernel_td(kernel, depth, form="temporal_shift"),
        CLOSED: KernelLSTD(kernel, config.ridge),
    }


def evaluate(config: RKHSConfig, cell: Cell) -> Iterator[Row]:
    """Yields the rows of one cell."""
    process, episode = process_of(config, cell), trajectory(config, cell)
    rng = np.random.default_rng([cell.seed, TEST_STREAM])
    states = rng.normal(0.0, process.stationary_scale, (config.test_states, cell.dim))
    if (power := float(np.square(process.values(states)).mean())) < LEAST_POWER:
        warnings.warn(
            f"{cell.kernel} value in {cell.dim}-D, seed {cell.seed}: its mean square in the test states is {power:.1g} "
            "and not 1, so hidden in rare states that errors say nothing; take a larger scale or fewer dimensions.",
            stacklevel=2,
        )
    for fit in fits(config, cell.kernel):
        asked = _asked(config, process, first_steps(episode, fit.length), states)
        for name in TRANSFORMERS:
            for depth, values in zip(fit.depths, _by_depth(config, fit, name, asked.context), strict=True):
                yield _row(cell, fit, name, depth, values, asked)
        closed = fitted(evaluators(config, fit)[CLOSED], asked.context)
        yield _row(cell, fit, CLOSED, None, closed, asked)
    for length in config.lengths:
        start = with_constant([first_steps(episode, length)])[0]
        asked = _asked(config, process, start, np.pad(states, ((0, 0), (0, 1)), constant_values=1.0))
        yield _row(cell, Fit(LINEAR, None, length, ()), LINEAR, None, fitted(LSTD(config.ridge), asked.context), asked)


def first_steps(episode: Episode, count: int) -> Episode:
    """The first transitions of an episode."""
    return Episode(episode.observations[: count + 1], episode.rewards[:count])


@contextlib.contextmanager
def whatever_contracts() -> Iterator[None]:
    """Without warnings of what does not: how far off it is, is what the study measures."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        yield


def fitted(evaluator: Evaluator, context: Context) -> ValueFunction | None:
    """The value function, or None if the evaluator diverges or has no solution; what does not contract goes on."""
    with whatever_contracts():
        try:
            return evaluator.fit(context)
        except (DivergenceError, ValueError):
            return None


def _by_depth(config: RKHSConfig, fit: Fit, name: str, context: Context) -> list[ValueFunction | None]:
    """The values of a transformer at each depth; where the deepest one diverges, from one that is no deeper."""
    whole = fitted(evaluators(config, fit)[name], context)
    if whole is not None or len(fit.depths) == 1:
        return [None if whole is None else whole.at_depth(depth) for depth in fit.depths]
    return [each for depth in fit.depths for each in _by_depth(config, fit._replace(depths=(depth,)), name, context)]


class _Asked(NamedTuple):
    """A context, and the states asked about: ``tests`` of the stationary law, then its own."""

    context: Context
    states: np.ndarray
    exact: torch.Tensor
    tests: int


def _asked(config: RKHSConfig, process: RKHSProcess, episode: Episode, states: np.ndarray) -> _Asked:
    """States may have a constant behind them, of which the exact value knows nothing."""
    together = np.concatenate([states, episode.observations[:-1]])
    exact = torch.as_tensor(process.values(together[:, : process.dim]))
    return _Asked(Context.from_episodes([episode], config.gamma).to(config.device), together, exact, len(states))


def _row(cell: Cell, fit: Fit, name: str, depth: int | None, values: ValueFunction | None, asked: _Asked) -> Row:
    error, centred_error, seen_error = _errors(values, asked)
    return Row(
        process_kernel=cell.kernel,
        dim=cell.dim,
        seed=cell.seed,
        evaluator=name,
        kernel=fit.kernel,
        ratio=fit.ratio,
        length=fit.length,
        depth=depth,
        error=error,
        centred_error=centred_error,
        seen_error=seen_error,
    )


def _errors(values: ValueFunction | None, asked: _Asked) -> tuple[float, float, float]:
    """Mean squared and centred error in the states of the stationary law, and mean squared error in the context's."""
    if values is None:
        return math.inf, math.inf, math.inf
    with whatever_contracts():
        found, m = values(asked.states).cpu(), asked.tests
    errors = (of(found[:m], asked.exact[:m]) for of in (msve, centred_msve))
    error, centred_error, seen_error = (*map(float, errors), float(msve(found[m:], asked.exact[m:])))
    return error, centred_error, seen_error
