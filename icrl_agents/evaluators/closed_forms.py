"""Closed forms in the space of a kernel: the fixed points of the sweeps, and the Monte-Carlo average.

Systems are solved in float64, whatever the context's type, and never inverted. Depth is 0.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from numbers import Integral

import torch
from torch import Tensor

from icrl_agents.arrays import differentiated
from icrl_agents.attention import KernelAttention, SoftmaxAttention, attend
from icrl_agents.context import Context, check_context
from icrl_agents.evaluators.systems import check_ridge, each_context, expansion, in_double, solved
from icrl_agents.kernel_matrix import check_kernel
from icrl_agents.kernels import Identity, Kernel
from icrl_agents.notices import warn
from icrl_agents.settings import as_python
from icrl_agents.value_function import ValueFunction
from icrl_agents.weighted_context import WeightedContext, weighted


@dataclass(frozen=True)
class KernelLSTD:
    """Kernel LSTD: v(x) = Σ_k w_k κ(x_k, x) with (K − γK′ + ridge·I) w = R, K_ij = κ(x_i, x_j), K′_ij = κ(x′_i, x_j).

    At ridge = 0 it is the limit of ``KernelTD`` or, with ``normalise=True``, of ``WeightedSoftmaxTD``, whose weights
    take the place of κ. Transitions that share a state share an equation, namely the sum of theirs: so repeated
    states make nothing singular, and at ridge = 0 every distinct state's mean TD error is 0. In continuous spaces,
    where every state is distinct, that interpolates the noise: use a ridge.

    Args:
        kernel: κ; see ``icrl_agents.kernels``.
        ridge: Added to the diagonal, ≥ 0.
        normalise: Whether the weights of a query sum to 1.
    """

    kernel: Kernel
    ridge: float = 0.0
    normalise: bool = False

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        check_kernel(self.kernel)
        check_ridge(self.ridge)
        if not isinstance(self.normalise, bool):
            raise TypeError(f"normalise: expected True or False, got {self.normalise!r}.")

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function of ``context``.

        Raises:
            ValueError: If the values are not determined, saying what is singular, or if the context's type would
                round them.
        """
        check_context(context)
        rule = SoftmaxAttention(self.kernel) if self.normalise else KernelAttention(self.kernel, 1.0)
        distinct = weighted(in_double(context, self.kernel), always=True)
        attention = attend(rule, distinct)
        if not isinstance(distinct, WeightedContext):
            return ValueFunction([attention], [context.rewards[..., None, :]], context)  # zeros, if there are any
        weights = attention(distinct.points) / distinct.counts.clamp(min=1.0)[..., None, :]  # of one visit
        own = weights[..., : len(distinct), :]
        parts = own, own - distinct.routed(weights), distinct.states, distinct.rewards, distinct.counts
        w = each_context(self._weights, distinct, *parts)
        return expansion(context, attend(rule, weighted(context, always=True)), w, attention)

    def _weights(
        self, valid: Tensor, own: Tensor, operator: Tensor, states: Tensor, rewards: Tensor, visits: Tensor
    ) -> Tensor:
        if not bool(valid.any()):
            return torch.zeros_like(rewards)
        states = states[valid]
        if self.ridge and differentiated(states):  # with a ridge each visit has a derivative of its own
            group, sizes = torch.arange(len(states), device=states.device), torch.ones_like(rewards[valid])
        else:
            _, group, sizes = torch.unique(states, dim=0, return_inverse=True, return_counts=True)
        counts = torch.zeros_like(rewards[: len(sizes)]).index_add_(0, group, visits[valid])

        def mean(rows: Tensor) -> Tensor:
            """Mean of the rows of each distinct state."""
            total = rows.new_zeros((len(sizes), *rows.shape[1:])).index_add_(0, group, rows)
            return (total.mT / sizes).mT

        # Columns of one state are equal, so their mean is each of them; w is spread evenly over them.
        system = mean(mean(operator[valid][:, valid]).mT).mT + torch.diag(float(self.ridge) / counts)

        def singular(found: int) -> str:
            return f"KernelLSTD: K − γK′ + ridge·I is singular, of rank {found} over the {len(counts)} distinct states"

        scale = own[valid][:, valid].abs().max()
        total = solved(system, mean(rewards[valid, None])[:, 0], scale, singular, self.ridge)
        w = rewards.new_zeros(len(valid))
        w[valid] = (total / counts)[group]
        return w


@dataclass(frozen=True)
class MonteCarlo:
    """Every-visit Monte-Carlo: v(x) = Σ_k K(x_k, x) G_k, G_k = R_k + γ_k G_{k+1} along the trajectory.

    K is the normalised kernel; with ``Identity()`` v(x) is the mean return from x, and 0 where x was never visited.
    The return of a truncated trajectory takes nothing beyond its end, so it is too small near it: ``min_tail``
    leaves such transitions out.

    Args:
        kernel: κ ≥ 0.
        min_tail: Rewards that a return must hold to count, unless its trajectory terminates. Where none does, values
            are 0, which is warned of.
    """

    kernel: Kernel = field(default_factory=Identity)
    min_tail: int = 0

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        check_kernel(self.kernel)
        if isinstance(self.min_tail, bool) or not isinstance(self.min_tail, Integral) or self.min_tail < 0:
            raise ValueError(f"min_tail: expected an integer ≥ 0, got {self.min_tail!r}.")

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function of ``context``."""
        check_context(context)
        returns, tails = context.returns()
        counted = context.mask & (tails >= min(self.min_tail, len(context) + 1))
        left_out = context.mask.any(-1) & ~counted.any(-1)
        if bool(left_out.any()):
            longest = tails.masked_fill(~context.mask, 0.0)[left_out].max()
            warn(
                f"min_tail: no return of a context holds {self.min_tail} rewards, so its values are 0; the longest one "
                f"that was cut holds {int(longest)}.",
                RuntimeWarning,
                stacklevel=2,
            )
        ends = copy.copy(context)  # each transition earns its return and ends, so that equal states are kept once
        ends.rewards, ends.mask = returns.masked_fill(~counted, 0.0), counted
        ends.discounts = torch.zeros_like(returns)
        distinct = weighted(ends)
        return ValueFunction(
            [attend(SoftmaxAttention(self.kernel), distinct)], [distinct.rewards[..., None, :]], context
        )
