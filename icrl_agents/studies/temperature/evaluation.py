"""What every kernel of the bank scores on a cell."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icrl_agents import kernels
from icrl_agents.context import Context
from icrl_agents.divergence import DivergenceError, DivergenceWarning
from icrl_agents.evaluators import KernelTD, WeightedSoftmaxTD
from icrl_agents.ground_truth import GroundTruth, true_centred_msve, true_msve
from icrl_agents.studies.temperature.config import TemperatureConfig
from icrl_agents.studies.temperature.projection import projection
from icrl_agents.studies.transfer.trajectories import Request, Trajectories

RIDGE = "ridge"
"""The method that projects returns onto the RKHS."""
STRIDE = 2
"""Ridge regression takes every other state: neighbours in time are almost equal."""
KERNELS: dict[str, Callable[[float], torch.nn.Module]] = {
    "product_laplace": kernels.ProductLaplace,
    "laplace": kernels.Laplace,
    "rbf": kernels.RBF,
    "exponential": lambda length_scale: kernels.Exponential(length_scale**2),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method with one kernel at one depth on the held-out trajectories of one domain, noise level and seed.

    ``method`` is softmax, kernel or ridge (regression on returns, without a depth). ``correction`` is the constant
    c = mean(δ) / (1 − γ) of the context, ``corrected_…`` the losses of v + c. ``offset`` is mean(v − G) over the
    held-out states that count; ``initial_td_loss`` is that of v = 0, ``return_power`` and ``return_variance`` are mean
    square and variance of G. ``true_…`` are against ground truth, with what its noise puts in taken away and the
    standard error that it leaves; NaN where none was asked for. What diverged or overflowed is infinite.
    """

    domain: str
    noise: str
    sigma: float
    seed: int
    method: str
    kernel: str
    length_scale: float
    depth: int | None
    initial_td_loss: float
    td_loss: float
    corrected_td_loss: float
    correction: float
    offset: float
    msve: float
    corrected_msve: float
    centred_msve: float
    return_power: float
    return_variance: float
    true_msve: float = math.nan
    true_msve_error: float = math.nan
    true_corrected_msve: float = math.nan
    true_centred_msve: float = math.nan
    true_centred_error: float = math.nan
    true_power: float = math.nan
    true_variance: float = math.nan


def evaluate(
    config: TemperatureConfig, request: Request, noise: str, trajectories: Trajectories, truth: GroundTruth | None
) -> Iterator[Row]:
    """Yields the rows of one cell and seed."""
    scale = _scale(config, trajectories)
    context, held_out = (
        Context.from_episodes([replace(e, observations=e.observations / scale) for e in episodes], config.gamma)
        for episodes in (trajectories.context, trajectories.held_out)
    )
    measure = _Measures(config, context.to(config.device), held_out.to(config.device), truth, scale)
    cell: dict[str, Any] = {"domain": request.domain, "noise": noise, "sigma": request.noise, "seed": request.seed}
    for name in config.kernels:
        for length_scale in config.length_scales:
            kernel: dict[str, Any] = {"kernel": name, "length_scale": length_scale}
            for method in config.methods:
                for depth, losses in measure.sweeps(method, KERNELS[name](length_scale)):
                    yield Row(**cell, method=method, **kernel, depth=depth, **losses)
            losses = measure.projected(KERNELS[name](length_scale))
            yield Row(**cell, method=RIDGE, **kernel, depth=None, **losses)


def _scale(config: TemperatureConfig, trajectories: Trajectories) -> np.ndarray:
    """What the observations are divided by, ``(d,)``; what does not vary in the context stays as it is."""
    states = np.concatenate([episode.observations for episode in trajectories.context])
    if config.features == "raw":
        return np.ones(states.shape[-1])
    spread = states.std(0)
    return np.where(spread > 1e-9 * (1.0 + np.abs(states).max(0)), spread, 1.0) * math.sqrt(states.shape[-1])


def _regressed(context: Context, tail: int) -> tuple[Tensor, Tensor, Tensor]:
    """States with complete returns, the returns, and the trajectories that they are of."""
    returns, tails = context.returns()
    chosen = (tails >= tail).nonzero()[::STRIDE, 0]
    trajectories = (~context.contiguous).cumsum(0) - (~context.contiguous).long()
    return context.states[chosen], returns[chosen], trajectories[chosen]


class _Measures:
    """The measures of one cell, asked for one value function after the other."""

    def __init__(
        self,
        config: TemperatureConfig,
        context: Context,
        held_out: Context,
        truth: GroundTruth | None,
        scale: np.ndarray,
    ) -> None:
        self.depths, self.context, self.held_out, self.truth = config.depths, context, held_out, truth
        self.regressed = _regressed(context, config.tail)
        returns, tails = held_out.returns()
        self.counted = tails >= config.tail
        self.returns = returns[self.counted]
        shown = None if truth is None else torch.as_tensor(truth.observations / scale)
        self.queries = held_out.points if shown is None else torch.cat([held_out.points, shown.to(held_out.points)])
        self.scales = {
            "initial_td_loss": float(held_out.rewards.square().mean()),
            "return_power": float(self.returns.square().mean()),
            "return_variance": float(self.returns.var(correction=0)),
        }
        if truth is not None:
            nothing = np.zeros_like(truth.values)
            self.scales["true_power"] = true_msve(nothing, truth).error
            self.scales["true_variance"] = true_centred_msve(nothing, truth).error

    def sweeps(self, method: str, kernel: torch.nn.Module) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields depth and losses of softmax or kernel TD."""
        plain, corrected = self._swept(method, kernel, self.depths)
        for i, depth in enumerate(self.depths):
            yield depth, self._losses(plain[:, i], corrected[:, i])

    def _swept(self, method: str, kernel: torch.nn.Module, depths: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Values at each depth, as they are and offset-corrected; infinite from where they diverge or overflow."""
        evaluator = (WeightedSoftmaxTD if method == "softmax" else KernelTD)(kernel, depths[-1])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DivergenceWarning)  # what has not converged is measured all the same
                fitted = evaluator.fit(self.context)
                plain = fitted.by_depth(self.queries, depths)
                return plain, plain + (fitted.offset_corrected().by_depth(self.queries[:1], depths) - plain[:1])
        except (DivergenceError, ValueError) as error:  # the exponential kernel overflows where it is too narrow
            if len(depths) > 1 and isinstance(error, DivergenceError):
                each = [self._swept(method, kernel, [depth]) for depth in depths]
                return torch.cat([plain for plain, _ in each], -1), torch.cat([corrected for _, corrected in each], -1)
            lost = torch.full((len(self.queries), len(depths)), math.inf).to(self.queries)
            return lost, lost

    def projected(self, kernel: torch.nn.Module) -> dict[str, Any]:
        """Losses of the kernel ridge regression of the context's complete returns."""
        keys, targets, groups = self.regressed
        weights = kernel(torch.cat([keys, self.queries]), keys)
        values = torch.full_like(self.queries[:, 0], math.inf)
        if bool(torch.isfinite(weights).all()):
            values = projection(weights[: len(keys)], targets, groups, weights[len(keys) :])
        return self._losses(values, values)

    def _losses(self, values: Tensor, corrected: Tensor) -> dict[str, Any]:
        finite, points = bool(torch.isfinite(values).all()), len(self.held_out.points)
        if not finite:
            values = corrected = torch.zeros_like(values)
        losses = self._measured(values[:points], corrected[:points]) | self._true(values[points:], corrected[points:])
        return self.scales | (losses if finite else dict.fromkeys(losses, math.inf))

    def _measured(self, values: Tensor, corrected: Tensor) -> dict[str, Any]:
        gaps, moved = (v[: len(self.held_out)][self.counted] - self.returns for v in (values, corrected))
        return {
            "td_loss": float(self.held_out.td_errors(values).square().mean()),
            "corrected_td_loss": float(self.held_out.td_errors(corrected).square().mean()),
            "correction": float((corrected - values)[0]),
            "offset": float(gaps.mean()),
            "msve": float(gaps.square().mean()),
            "corrected_msve": float(moved.square().mean()),
            "centred_msve": float(gaps.var(correction=0)),
        }

    def _true(self, values: Tensor, corrected: Tensor) -> dict[str, Any]:
        if self.truth is None:
            return {}
        found = values.cpu().numpy()
        plain, centred = true_msve(found, self.truth), true_centred_msve(found, self.truth)
        return {
            "true_msve": plain.error,
            "true_msve_error": plain.standard_error,
            "true_corrected_msve": true_msve(corrected.cpu().numpy(), self.truth).error,
            "true_centred_msve": centred.error,
            "true_centred_error": centred.standard_error,
        }
