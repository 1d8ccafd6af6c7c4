"""Sweeps over contexts too long to compare every transition with every other: landmarks stand in for all of them.

Nyström's approximation κ(x, y) ≈ φ(x)ᵀφ(y), φ(x) = Bᵀ κ(Z, x) with m landmarks Z and B Bᵀ = κ(Z, Z)⁺, makes the sweeps
linear in n: with a = Σ_k φ(x_k) w_k and Φ the (normalised) features of the states,

    v = Φ a,   a ← a + α (b + C a),   b = Σ_k φ(x_k) R_k,   C = Σ_k φ(x_k) (γ_k Φ(x′_k) − Φ(x_k))ᵀ .

Queries then use the exact kernel, v(x) = Σ_k K(x_k, x) w_k, with the w_k that these sweeps have found.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import NamedTuple

import torch
from torch import Tensor

from icrl_agents.arrays import power_of_two
from icrl_agents.attention import Attention, BoundAttention, KernelAttention, SoftmaxAttention
from icrl_agents.context import Context
from icrl_agents.distinct import group_rows
from icrl_agents.divergence import check_convergence
from icrl_agents.kernel_matrix import bind_kernel, check_finite, kernel_matrix, stable_step_size
from icrl_agents.kernels import Kernel
from icrl_agents.value_function import ValueFunction
from icrl_envs import arguments

LARGEST_ERROR = 0.2
"""Estimated relative errors above it are a warning."""
_ROWS = 4_096


class _Landmarks(NamedTuple):
    """Landmarks and what turns κ(Z, x) into features: values at x are κ(x, Z) B a / (κ(x, Z) mass)."""

    kernel: Kernel
    Z: Tensor
    B: Tensor
    mass: Tensor | None

    def rows(self, points: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """κ(x, Z) ``(b, m)``, and the same divided by the normaliser; ``keys (b,)`` says which points are keys.

        No normaliser is smaller than κ of a key among its terms: of a landmark, and of the point itself if it is a key.
        """
        kappa = kernel_matrix(self.kernel, points, self.Z)
        check_finite(kappa)
        if self.mass is None:
            return kappa, kappa
        own = self.kernel(points[:, None], points[:, None])[:, 0, 0].masked_fill(~keys, 0.0)
        near, limits = kappa.amax(-1), torch.finfo(kappa.dtype)
        normaliser = torch.maximum(kappa @ self.mass, torch.maximum(near, own))
        features = kappa / normaliser.masked_fill(normaliser == 0, 1.0)[:, None]
        far = (near < limits.tiny / limits.eps) & ~keys
        if bool(far.any()) and hasattr(self.kernel, "score"):
            features[far] = self._far(points[far], self.mass)
        return kappa, features

    def _far(self, points: Tensor, mass: Tensor) -> Tensor:
        """The features of points so far from every landmark that their κ underflow: of κ relative to the largest."""
        scores = kernel_matrix(self.kernel.score, points, self.Z)  # type: ignore[attr]
        top = scores.amax(-1, keepdim=True)
        kappa = torch.exp(scores - top.masked_fill(torch.isneginf(top), 0.0))
        normaliser = torch.maximum(kappa @ mass, kappa.amax(-1))
        return kappa / normaliser.masked_fill(normaliser == 0, 1.0)[:, None]


@dataclass(frozen=True)
class Nystrom:
    """Landmarks for contexts so long that every transition cannot be compared with every other.

    The time of a fit is O(n m² + L m²) instead of O(L n²), its memory O(n L + m²). The relative error of the values is
    estimated on a sample of the context's states, and of the final observations that it bootstraps from, and told in
    ``ValueFunction.approximation_error``.

    Args:
        landmarks: m ≥ 1, distinct states of the context, drawn at random: more for a narrower kernel; all if fewer.
        seed: Of the draws.
        sample: Number of states, and of final observations, on which the error is estimated, ≥ 1, drawn at random;
            all if fewer.
    """

    landmarks: int = 500
    seed: int = 0
    sample: int = 200

    def __post_init__(self) -> None:
        """Checks the arguments."""
        for name in ("landmarks", "sample"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
                raise ValueError(f"{name}: expected an integer ≥ 1, got {number!r}.")
        arguments.integer("seed", self.seed, 0, 2**63 - 1)

    def iterate(self, rule: Attention, context: Context, num_sweeps: float, step_size: float) -> ValueFunction:
        """The value function after 0 … L sweeps with the approximate kernel.

        Raises:
            ValueError: If ``context`` is a batch, or the kernel is not positive semi-definite.
        """
        if context.mask.ndim > 1:
            raise ValueError(f"context: expected one without batch dimensions, got {context!r}; fit each of them.")
        if not bool(context.mask.any()):
            w = context.rewards.new_zeros((int(num_sweeps) + 1, len(context)))
            return ValueFunction([rule.bind(context.states, context.mask)], [w], context, approximation_error=0.0)
        generator = torch.Generator().manual_seed(self.seed)
        landmarks, alpha, attention = self._landmarks(rule, context, generator)
        alpha = step_size * alpha
        a, a_history = torch.zeros_like(landmarks.B[0]), []
        C, b = _moments(landmarks, context)
        for _ in range(int(num_sweeps)):
            a_history.append(a)
            a = a + alpha * (b + C @ a)
        w = _coefficients(landmarks, context, torch.stack([*a_history, a]), alpha)
        check_convergence(context, w)
        error = self._error(landmarks, attention, context, w[-1], a, generator)
        if not error <= LARGEST_ERROR:
            warnings.warn(
                f"approximation: estimated relative error {error:.2g} of the values; take more landmarks than "
                f"{self.landmarks}, or a wider kernel.",
                RuntimeWarning,
                stacklevel=4,
            )
        return ValueFunction([attention], [w], context, approximation_error=error)

    def _landmarks(
        self, rule: Attention, context: Context, generator: torch.Generator
    ) -> tuple[_Landmarks, float, BoundAttention]:
        """The landmarks, the step size that the attention itself has, and the exact attention without it."""
        states = context.states[context.mask]
        kernel = bind_kernel(rule.kernel, states, torch.ones_like(states[:, 0], dtype=torch.bool))
        distinct = states[group_rows(states).first]
        chosen = torch.randperm(len(distinct), generator=generator)[: self.landmarks].to(states.device)
        Z = distinct[chosen]
        kappa = kernel_matrix(kernel, Z, Z)
        check_finite(kappa)
        B = _inverse_root(kappa.double(), torch.finfo(states.dtype).eps).to(states)
        landmarks = _Landmarks(kernel, Z, B, None)
        mass = B @ (B.mT @ sum(kernel(block, Z).sum(0) for block in states.split(_ROWS)))
        if isinstance(rule, SoftmaxAttention):
            return landmarks._replace(mass=mass), 1.0, rule.bind(context.states, context.mask)
        alpha = rule.step_size
        if alpha == "auto" and getattr(kernel, "positive", False):
            alpha = 1.0 / max(float((kernel(block, Z) @ mass).amax()) for block in states.split(_ROWS))
        elif alpha == "auto":
            alpha = float(stable_step_size(kernel, context.states, context.mask))
        return landmarks, float(alpha), KernelAttention(rule.kernel, 1.0).bind(context.states, context.mask)

    def _error(
        self,
        landmarks: _Landmarks,
        attention: BoundAttention,
        context: Context,
        w: Tensor,
        a: Tensor,
        generator: torch.Generator,
    ) -> float:
        """‖Φ a − K w‖ / ‖K w‖ over a sample of states, or over one of final observations where it is larger there.

        It is 0 where the sweeps were those of the exact kernel.
        """
        finals = context.points[context.successors[context.successors >= len(context)].unique()]
        found = [self._gap(landmarks, attention, context.states[context.mask], True, w, a, generator)]
        if len(finals) > 0:
            found.append(self._gap(landmarks, attention, finals, False, w, a, generator))
        return float(torch.tensor(found).amax())

    def _gap(
        self,
        landmarks: _Landmarks,
        attention: BoundAttention,
        points: Tensor,
        keys: bool,
        w: Tensor,
        a: Tensor,
        generator: torch.Generator,
    ) -> float:
        chosen = torch.arange(len(points))
        if self.sample < len(points):
            chosen = torch.randint(len(points), (self.sample,), generator=generator)
        chosen = chosen.to(points.device)
        exact = attention.expand(points[chosen], w[:, None])[:, 0]
        rows = landmarks.rows(points[chosen], torch.full_like(chosen, keys, dtype=torch.bool))[1]
        unit = power_of_two(exact)  # so that no square leaves the type's range
        size = (exact / unit).norm().clamp(min=torch.finfo(exact.dtype).tiny)
        return float(((rows @ (landmarks.B @ a) - exact) / unit).norm() / size)


def _inverse_root(kappa: Tensor, epsilon: float) -> Tensor:
    """B with B Bᵀ = κ⁺, ``(m, r)``, directions below rounding left out."""
    if not torch.allclose(kappa, kappa.mT, rtol=1e-6, atol=1e-6 * float(kappa.abs().max())):
        raise ValueError("kernel: Nystrom needs a symmetric kernel, got κ(x, y) ≠ κ(y, x).")
    eigenvalues, U = torch.linalg.eigh((kappa + kappa.mT) / 2)
    if float(eigenvalues[0]) < -1e-6 * float(eigenvalues[-1]):
        raise ValueError("kernel: Nystrom needs a positive semi-definite kernel, got one with a negative eigenvalue.")
    kept = eigenvalues > 10 * len(kappa) * epsilon * eigenvalues[-1]
    return U[:, kept] * eigenvalues[kept].rsqrt()


def _blocks(context: Context) -> Iterator[tuple[slice, tuple[Tensor, Tensor], Tensor, Tensor]]:
    """Blocks of transitions: their slice, the points that they need and which are keys, and where x_k and x′_k are."""
    for first in range(0, len(context), _ROWS):
        block = slice(first, min(first + _ROWS, len(context)))
        own = torch.arange(block.start, block.stop, device=context.device)
        needed, place = torch.unique(torch.cat([own, context.successors[block]]), return_inverse=True)
        yield block, (context.points[needed], needed < len(context)), place[: len(own)], place[len(own) :]


def _moments(landmarks: _Landmarks, context: Context) -> tuple[Tensor, Tensor]:
    """C ``(r, r)`` and b ``(r,)``, summed in float64."""
    m = len(landmarks.Z)
    C, b = torch.zeros(m, m, dtype=torch.float64, device=context.device), 0.0
    for block, points, own, following in _blocks(context):
        kappa, features = landmarks.rows(*points)
        sent = kappa[own] * context.mask[block, None]
        C += sent.mT @ (context.discounts[block, None] * features[following] - features[own])
        b = b + sent.mT @ context.rewards[block]
    B = landmarks.B.double()
    return (B.mT @ C @ B).to(context.dtype), (B.mT @ torch.as_tensor(b).double()).to(context.dtype)


def _coefficients(landmarks: _Landmarks, context: Context, a: Tensor, alpha: float) -> Tensor:
    """w^ℓ = α Σ_{t<ℓ} (R + (γΦ′ − Φ) a_t) for ℓ = 0 … L, ``(L+1, n)``, of ``a (L+1, r)``."""
    sums = torch.nn.functional.pad(a[:-1].cumsum(0), (0, 0, 1, 0))
    depths = torch.arange(len(sums), device=a.device).to(a)[:, None]
    w = a.new_empty((len(sums), len(context)))
    for block, points, own, following in _blocks(context):
        values = (landmarks.B @ sums.mT).mT @ landmarks.rows(*points)[1].mT
        errors = depths * context.rewards[block] + context.discounts[block] * values[:, following] - values[:, own]
        w[:, block] = alpha * errors.masked_fill(~context.mask[block], 0.0)
    return w
