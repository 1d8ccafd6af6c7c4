"""The default bank, and its kernel whose shape, not only width, comes from the context."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from icrl_agents.context import Context, check_context
from icrl_agents.evaluators import WeightedSoftmaxTD
from icrl_agents.evaluators.sweeps import check_num_sweeps
from icrl_agents.kernels import Laplace, ProductLaplace
from icrl_agents.magnitudes import power_of_two
from icrl_agents.value_function import Evaluator, ValueFunction
from icrl_envs import arguments

LEAST_RELEVANCE = 0.1
"""Added to each dimension's relevance, so that none is left out of the distance; the relevances' mean square is 1."""
RIDGE = 0.01
"""Of the regression that finds the relevances, beside the features' variance of 1."""
_CONSTANT = 1e-6
"""A dimension whose standard deviation is smaller than this share of its largest number does not vary."""


def default_bank(num_sweeps: int = 80) -> tuple[Evaluator, ...]:
    """Returns the bank that ``AdaptiveTD`` takes by default, its own default first.

    Three widths of the product Laplace kernel, in the units of the states, of which 0.1 is the default; and two of a
    Laplace kernel of relevance, in which each dimension counts as much as the context's returns depend on it.

    Args:
        num_sweeps: L of each.
    """
    product = [WeightedSoftmaxTD(ProductLaplace(scale), num_sweeps) for scale in (0.1, 0.05, 0.2)]
    return (*product, *(RelevanceTD(scale, num_sweeps) for scale in (0.1, 0.3)))


@dataclass(frozen=True)
class RelevanceTD:
    """Weighted softmax TD whose Laplace kernel has one length scale per dimension, found from the context.

    ℓ_i = ℓ √d σ_i / (ρ_i + 0.1), with σ_i the standard deviation of dimension i and ρ_i the size of its coefficient in
    a ridge regression of the Monte-Carlo returns on the standardised states, scaled to mean square 1: distances are
    long along the dimensions that the returns depend on, and short along the others. The scales have no gradient. A
    dimension whose σ_i is below 1e-6 of its largest number is taken for a constant: subtract an offset of that size.

    Args:
        length_scale: ℓ > 0, in standard deviations.
        num_sweeps: L ≥ 0.
    """

    length_scale: float
    num_sweeps: int

    def __post_init__(self) -> None:
        """Checks the arguments."""
        arguments.real("length_scale", self.length_scale, 0.0, low_open=True)
        check_num_sweeps(self.num_sweeps)

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function after each of 0 … L sweeps over ``context``.

        Raises:
            ValueError: If ``context`` is a batch.
        """
        check_context(context)
        if context.points.ndim != 2:
            raise ValueError(f"context: expected one context, got a batch, {context!r}; fit each of them.")
        scales = self.length_scale * relevant_scales(context).detach()
        return WeightedSoftmaxTD(Laplace(scales), self.num_sweeps).fit(context)


def relevant_scales(context: Context) -> Tensor:
    """√d σ_i / (ρ_i + 0.1) of each dimension, ``(d,)``; a dimension that does not vary has σ_i = 1 and ρ_i = 0."""
    states = context.states[context.mask].double()
    returns = context.returns()[0][context.mask].double()
    unit = power_of_two(states)
    states, returns = states / unit, returns / power_of_two(returns)
    if len(states) < 2:
        return states.new_full((context.dim,), math.sqrt(context.dim) / LEAST_RELEVANCE)
    deviation = states.std(0)
    varies = deviation > _CONSTANT * states.abs().amax(0)
    deviation = torch.where(varies, deviation, 1.0 / unit)
    features = ((states - states.mean(0)) / deviation).masked_fill(~varies, 0.0)
    products = features.mT @ features / len(states)
    products = products + RIDGE * torch.eye(context.dim, dtype=products.dtype, device=products.device)
    coefficients = torch.linalg.solve(products, features.mT @ (returns - returns.mean()) / len(states)).abs()
    size = torch.linalg.vector_norm(coefficients)
    relevance = coefficients * (math.sqrt(context.dim) / size if size > 0 else 0.0)
    return unit * math.sqrt(context.dim) * deviation / (relevance + LEAST_RELEVANCE)
