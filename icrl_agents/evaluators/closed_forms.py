"""Closed forms: the fixed points of the sweeps, and the Monte-Carlo average.

Systems are solved in float64, whatever the context's type, and never inverted. Depth is 0.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from numbers import Integral

import torch
from torch import Tensor

from icrl_agents.arrays import finite
from icrl_agents.attention import KernelAttention, SoftmaxAttention, attend
from icrl_agents.context import Context, check_context
from icrl_agents.eligibility import discounted_features, features
from icrl_agents.evaluators.systems import check_ridge, each_context, expansion, in_double, solved
from icrl_agents.kernel_matrix import check_kernel
from icrl_agents.kernels import Identity, Kernel
from icrl_agents.magnitudes import near_power_of_two
from icrl_agents.value_function import ValueFunction
from icrl_agents.weighted_context import WeightedContext, weighted


@dataclass(frozen=True)
class LSTD:
    """Least-squares TD: v(x) = wᵀx with (Σ_k x_k (x_k − γ_k x′_k)ᵀ + ridge·I) w = Σ_k x_k R_k.

    At ridge = 0 it is the limit of ``LinearTD``. Where the context's states do not span all d dimensions, w is
    taken in their span, as the sweeps do: directions that no state has shown have weight 0. So with one-hot
    features an unvisited state has v = 0, and many copies of one state are no difficulty. There is no intercept:
    where the features do not span a constant, append one.

    Args:
        ridge: Added to the diagonal, ≥ 0; on the scale of a sum over the transitions.

    Example:
        >>> context = Context([[1.0, 0.0]], [1.0], [0.9], [[1.0, 0.0]])
        >>> LSTD().fit(context)([[1.0, 0.0], [0.0, 1.0]]).round(decimals=6)
        tensor([10.,  0.], dtype=torch.float64)
    """

    ridge: float = 0.0

    def __post_init__(self) -> None:
        """Checks the arguments."""
        check_ridge(self.ridge)

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function of ``context``.

        Where the states do not span all dimensions and there is no ridge, its gradient is that along changes of the
        states that keep it so: any other makes a jump.

        Raises:
            ValueError: If the values are not determined, saying what is singular, or if the context's type would
                round them.
        """
        check_context(context)
        x, x_next = context.states, discounted_features(context)
        epsilon = torch.finfo(context.dtype).eps

        def solve(valid: Tensor, x: Tensor, x_next: Tensor, rewards: Tensor) -> Tensor:
            return self._weights(x[valid], x_next[valid], rewards[valid], epsilon)

        return expansion(context, features, each_context(solve, context, x, x_next, context.rewards), features)

    def _weights(self, x: Tensor, x_next: Tensor, rewards: Tensor, epsilon: float) -> Tensor:
        """Solves in the singular basis X = W S Uᵀ, each feature in a unit near its largest number.

        There the condition does not depend on the features' scales: of B = U S⁻¹, X B has orthonormal columns. With
        w = B u the system is (I + ridge·BᵀB − (X B)ᵀ X′ B) u = (X B)ᵀ R; a ridge then divides by its part of it.
        Directions no larger than rounding of the states count as none: with a ridge, which determines all others, that
        of float64.
        """
        unit = _units(x)  # so that no square leaves float64, nor a feature the rank
        x, x_next, ridges = x / unit, x_next / unit, float(self.ridge) ** 0.5 / unit
        finite("context: next states", x_next, " in the units of the states; scale them down")
        _, s, Ut = torch.linalg.svd(x.detach(), full_matrices=False)
        double = torch.finfo(x.dtype).eps
        rounding = (double if self.ridge else epsilon) * x.numel() ** 0.5
        smallest = max(rounding, x.shape[1] * double * float(s.sum() and s[0]))
        rank = int((s > smallest).sum())
        s, U = s[:rank], Ut[:rank].mT
        basis = U / s
        if rank < x.shape[1]:  # weights within what the states span, in units of their own
            relative = (unit / unit.max())[:, None]
            spanned = relative * torch.linalg.qr(relative * U)[0]
            basis = spanned @ torch.linalg.inv(s[:, None] * U.mT @ spanned)
        if self.ridge:
            _, t, Qt = torch.linalg.svd(ridges[:, None] * basis, full_matrices=False)
            basis = basis @ (Qt.mT / torch.hypot(torch.ones_like(t), t))
        if x.requires_grad:
            basis = _differentiable(x, basis, unit, smallest, float(self.ridge) ** 0.5)
        sent, gram = x @ basis, torch.eye(rank).to(s)
        if x.requires_grad:
            gram = sent.mT @ sent + (ridges[:, None] * basis).mT @ (ridges[:, None] * basis)
        operator = gram - sent.mT @ (x_next @ basis)

        def singular(found: int) -> str:
            return (
                f"LSTD: Σ x (x − γx′)ᵀ + ridge·I is singular, of rank {found} in the {rank} dimensions that the "
                f"{len(torch.unique(x, dim=0))} distinct states of the context span (d = {x.shape[-1]})"
            )

        u = solved(operator, sent.mT @ rewards, 1.0, singular, self.ridge)
        return basis @ u / unit


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
        _, group, sizes = torch.unique(states[valid], dim=0, return_inverse=True, return_counts=True)
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
            warnings.warn(
                f"min_tail: no return of a context holds {self.min_tail} rewards, so its values are 0; the longest one "
                f"that was cut holds {int(longest)}.",
                RuntimeWarning,
                stacklevel=2,
            )
        attention = SoftmaxAttention(self.kernel).bind(context.states, counted)
        return ValueFunction([attention], [returns[..., None, :]], context)


def _differentiable(x: Tensor, basis: Tensor, unit: Tensor, smallest: float, root: float) -> Tensor:
    """The basis for gradients: held, since that of equal singular values has none, but of all that may change.

    With a ridge, root², that is every direction; without one, what the states span, which moves with them.
    """
    rank, dim = basis.shape[1], len(basis)
    if rank == dim:
        return basis
    if root > 0.0:
        weights = basis / unit[:, None]
        rest = torch.linalg.svd((weights / weights.norm(dim=0)).mT, full_matrices=True)[2][rank:].mT
        return torch.cat([basis, unit[:, None] * rest / root], dim=1)
    relative = (unit / unit.max())[:, None]
    scaled = x * relative[:, 0]
    return relative * (torch.linalg.pinv(scaled, atol=smallest) @ (scaled @ (basis / relative)))


def _units(x: Tensor) -> Tensor:
    """A power of two near the largest |x| of each column, ``(d,)``; 1 where there is none."""
    largest = x.detach().abs().amax(0) if len(x) else x.new_zeros(x.shape[1])
    return torch.where(largest > 0, near_power_of_two(largest), 1.0)
