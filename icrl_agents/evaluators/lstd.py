"""Least-squares temporal differences: the fixed point of linear TD.

Its system is solved in float64, whatever the context's type, and never inverted. Depth is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from icrl_agents.arrays import differentiated, finite
from icrl_agents.context import Context, check_context
from icrl_agents.eligibility import discounted_features, features
from icrl_agents.evaluators.systems import check_ridge, each_context, expansion, solved
from icrl_agents.magnitudes import is_rounded, near_power_of_two
from icrl_agents.notices import warn
from icrl_agents.settings import as_python
from icrl_agents.value_function import ValueFunction


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
        as_python(self)
        check_ridge(self.ridge)

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function of ``context``.

        Where the states do not span all dimensions and there is no ridge, its gradient is that along changes of the
        states that keep it so: any other makes a jump. In which directions single precision may have made all of what
        the states vary is left out and told of (``RuntimeWarning``), unless there is a ridge; in a float64 context of
        states that float32 holds, such as an encoder's, it is told of alone.

        Raises:
            ValueError: If the values are not determined, saying what is singular, or if the context's type would
                round them.
        """
        check_context(context)
        x, x_next = context.states, discounted_features(context.to(dtype=torch.float64))
        epsilon, faint = torch.finfo(context.dtype).eps, []

        def solve(valid: Tensor, x: Tensor, x_next: Tensor, rewards: Tensor) -> Tensor:
            told = torch.finfo(torch.float32).eps if is_rounded(x[valid]) else epsilon
            return self._weights(x[valid], x_next[valid], rewards[valid], epsilon, told, faint)

        w = each_context(solve, context, x, x_next, context.rewards)
        if any(faint):
            directions = f"{max(faint)} of the directions that the states span, in which they vary by no more than"
            text = (
                f"LSTD: leaves out {directions} torch.float32 rounds them; take context.to(dtype=torch.float64) or a "
                "ridge, with which they count."
            )
            if context.dtype != torch.float32:
                text = (
                    f"LSTD: values rest on {directions} torch.float32 rounded them before the context was made; take "
                    "features that were computed in torch.float64, or a ridge."
                )
            warn(text, RuntimeWarning, stacklevel=2)
        return expansion(context, features, w, features)

    def _weights(
        self, x: Tensor, x_next: Tensor, rewards: Tensor, epsilon: float, told: float, faint: list[int]
    ) -> Tensor:
        """Solves in the singular basis X = W S Uᵀ, each feature in a unit near its largest number.

        There the condition does not depend on the features' scales: of B = U S⁻¹, X B has orthonormal columns. With
        w = B u the system is (I + ridge·BᵀB − (X B)ᵀ X′ B) u = (X B)ᵀ R; a ridge then divides by its part of it.
        Directions no larger than rounding of the states count as none: with a ridge, which determines all others, that
        of float64. How many do for no more than rounding to ``told``, is appended to ``faint``. Products X B are sums
        of terms as large as X and B, and the system a difference of these.
        """
        unit = _units(x)  # so that no square leaves float64, nor a feature the rank
        x, x_next, ridges = x / unit, x_next / unit, float(self.ridge) ** 0.5 / unit
        finite("context: next states", x_next, " in the units of the states; scale them down")
        _, s, Ut = torch.linalg.svd(x.detach(), full_matrices=False)
        double = torch.finfo(x.dtype).eps
        largest = float(s.sum() and s[0])
        least = max(double * x.numel() ** 0.5, x.shape[1] * double * largest)
        smallest = least if self.ridge else max(least, epsilon * x.numel() ** 0.5)
        rank = int((s > smallest).sum())
        if not self.ridge:
            faint.append(int(((s > least) & (s <= told * x.numel() ** 0.5)).sum()))
        s, U = s[:rank], Ut[:rank].mT
        basis = U / s
        if rank < x.shape[1]:  # weights within what the states span, in units of their own
            relative = (unit / unit.max())[:, None]
            spanned = relative * torch.linalg.qr(relative * U)[0]
            basis = spanned @ torch.linalg.inv(s[:, None] * U.mT @ spanned)
        if self.ridge:
            _, t, Qt = torch.linalg.svd(ridges[:, None] * basis, full_matrices=False)
            basis = basis @ (Qt.mT / torch.hypot(torch.ones_like(t), t))
        terms = (
            largest * basis.norm(dim=0).amax() * max(1.0, float(x_next.detach().norm() / x.detach().norm()))
            if rank
            else 1.0
        )
        if differentiated(x):
            basis = _differentiable(x, basis, unit, smallest, float(self.ridge) ** 0.5)
        sent, gram = x @ basis, torch.eye(rank, device=s.device).to(s)
        if differentiated(x):
            gram = sent.mT @ sent + (ridges[:, None] * basis).mT @ (ridges[:, None] * basis)
        operator = gram - sent.mT @ (x_next @ basis)

        def singular(found: int) -> str:
            return (
                f"LSTD: Σ x (x − γx′)ᵀ + ridge·I is singular, of rank {found} in the {rank} dimensions that the "
                f"{len(torch.unique(x, dim=0))} distinct states of the context span (d = {x.shape[-1]})"
            )

        u = solved(operator, sent.mT @ rewards, terms, singular, self.ridge)
        return basis @ u / unit


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
