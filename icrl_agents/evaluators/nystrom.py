"""Sweeps over contexts too long to compare every transition with every other: landmarks stand in for all of them.

Nyström's approximation κ(x, y) ≈ φ(x)ᵀφ(y), φ(x) = Bᵀ κ(Z, x) with m landmarks Z and B Bᵀ = κ(Z, Z)⁺, makes the sweeps
linear in n: with a = Σ_k φ(x_k) w_k and Φ the (normalised) features of the states,

    v = Φ a,   a ← a + α (b + C a),   b = Σ_k φ(x_k) R_k,   C = Σ_k φ(x_k) (γ_k Φ(x′_k) − Φ(x_k))ᵀ .

Queries then use the exact kernel, v(x) = Σ_k K(x_k, x) w_k, with the w_k that these sweeps have found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import cast

import torch
from torch import Tensor

from icrl_agents.attention import Attention, BoundAttention, KernelAttention, SoftmaxAttention
from icrl_agents.blockwise import LARGEST_MATRIX
from icrl_agents.context import Context
from icrl_agents.distinct import group_rows
from icrl_agents.divergence import Bounded, check_convergence
from icrl_agents.evaluators.landmarks import ROWS, Landmarks, far_finals, finals, inverse_root, visited, with_unreached
from icrl_agents.evaluators.samples import by_risk, some
from icrl_agents.evaluators.systems import in_double
from icrl_agents.kernel_binding import bind_kernel
from icrl_agents.kernel_matrix import check_finite, kernel_matrix, stable_step_size
from icrl_agents.magnitudes import power_of_two, relative_distance
from icrl_agents.notices import warn
from icrl_agents.settings import as_python
from icrl_agents.value_function import ValueFunction
from icrl_envs import arguments

LARGEST_ERROR = 0.2
"""Estimated relative errors above it are a warning."""

NO_ESTIMATE = 0.9
"""From about 1 on they say no more than that: they are relative to values that are wrong."""

_LOST, _MISSED = 0.5, 10.0
"""Errors of states that landmarks may have lost count above this one, or where a sample's is so many times smaller."""


@dataclass(frozen=True)
class Nystrom:
    """Landmarks for contexts so long that every transition cannot be compared with every other.

    The time of a fit is O(n m² + L m²) instead of O(L n²), its memory O(n L + m²). The relative error of the values is
    estimated on a sample of the context's states, of the final observations that it bootstraps from, and of the states
    that carry TD errors far from every landmark, if there that is lost which the first sample misses, and told in
    ``ValueFunction.approximation_error``: that of the last sweep, of which a few may add up; the first one is exact.
    From about 1 on it is no estimate: the values may be off by any factor. Sweeps run in float64.

    Args:
        landmarks: m ≥ 1, distinct states of the context, drawn at random: more for a narrower kernel; all if fewer.
            Up to a tenth more are those that are out of reach of all of these, the farthest first.
        seed: Of the draws.
        sample: Size of each sample on which the error is estimated, ≥ 1, drawn at random; all if fewer.
    """

    landmarks: int = 500
    seed: int = 0
    sample: int = 200

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
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
        given, context = context, in_double(context, rule.kernel)
        landmarks, alpha = self._landmarks(rule, context, generator)
        alpha = step_size * alpha
        a, a_history = torch.zeros_like(landmarks.B[0]), []
        C, b = _moments(landmarks, context)
        for _ in range(int(num_sweeps)):
            a_history.append(a)
            a = a + alpha * (b + C @ a)
        by_sweep = torch.stack([*a_history, a])
        w, lost = _coefficients(landmarks, context, by_sweep, alpha)
        w = w.to(given.dtype)
        attention = _exact(rule).bind(given.states, given.mask)
        exact = num_sweeps <= 1 and not _is_estimated(rule)  # w is α R, whatever the landmarks
        error = 0.0 if exact else self._error(landmarks, attention, context, w[-1], by_sweep, lost, generator)
        if not error <= LARGEST_ERROR:
            more = " or more, which is no estimate any longer," if error > NO_ESTIMATE else ""
            warn(
                f"approximation: estimated relative error {error:.2g}{more} of the values; take more landmarks than "
                f"{self.landmarks}, or a wider kernel.",
                RuntimeWarning,
                stacklevel=4,
            )
        bounded = self._bounded(rule, attention, given, w) if error <= LARGEST_ERROR else None
        check_convergence(given, w, bounded=bounded)
        return ValueFunction([attention], [w], given, approximation_error=error)

    def _landmarks(
        self, rule: Attention, context: Context, generator: torch.Generator
    ) -> tuple[Landmarks, float | Tensor]:
        """The landmarks, and the step size that the attention itself has."""
        states = context.states[context.mask]
        present, scaled = torch.ones_like(states[:, 0], dtype=torch.bool), isinstance(rule, KernelAttention)
        kernel = bind_kernel(rule.kernel, states, present, scaled=scaled)
        distinct = states[group_rows(states).first]
        chosen = torch.randperm(len(distinct), generator=generator, device="cpu")[: self.landmarks].to(states.device)
        Z, sums = with_unreached(kernel, distinct[chosen], states)
        kappa = kernel_matrix(kernel, Z, Z)
        check_finite(kappa)
        B = inverse_root(kappa)
        far = torch.empty(0, dtype=torch.long, device=states.device)
        landmarks = Landmarks(kernel, Z, B, None, far, states.new_empty(0, len(context)), visited(context))
        mass = B @ (B.mT @ sums)
        if isinstance(rule, SoftmaxAttention):
            most = min(max(len(Z), self.landmarks), LARGEST_MATRIX // (8 * len(context)))
            far = far_finals(kernel, Z, context, landmarks.visited, most)
            exact = rule.bind(context.states, context.mask)(context.points[far])
            B = torch.block_diag(B, torch.eye(len(far), device=B.device).to(B))
            return landmarks._replace(B=B, mass=mass, far=far, exact=exact), 1.0
        alpha = rule.step_size
        if _is_estimated(rule):
            sums = [(kernel_matrix(kernel, block, Z) @ mass).amax() for block in states.split(ROWS)]
            alpha = 1.0 / torch.stack(sums).amax()
        elif alpha == "auto":
            alpha = stable_step_size(kernel, context.states, context.mask)
        return landmarks, cast(float | Tensor, alpha)

    def _bounded(self, rule: Attention, attention: BoundAttention, context: Context, w: Tensor) -> Bounded | None:
        """The exact kernel's values at some of the states, under softmax attention, which bounds them."""
        if not isinstance(rule, SoftmaxAttention):
            return None
        count = min(self.sample, len(context))
        some = torch.arange(count, device=context.device) * (len(context) - 1) // max(1, count - 1)

        def at(coefficients: Tensor) -> Tensor:
            return attention.expand(context.points[some], coefficients.mT)

        with torch.no_grad():
            return Bounded(at(w[-1:])[:, 0], at)

    def _error(
        self,
        landmarks: Landmarks,
        attention: BoundAttention,
        context: Context,
        w: Tensor,
        a: Tensor,
        lost: Tensor,
        generator: torch.Generator,
    ) -> float:
        """‖Φ a − K w‖ / ‖K w‖ over a sample of states, or over one of final observations where it is larger there.

        A third sample is drawn by what the landmarks may have lost, so that the few states that carry TD errors far
        from every landmark are in it; it counts where most of their values is lost, or an error that the first sample
        has missed, relative to the values of the first if these are larger. It is 0 where the sweeps were those of the
        exact kernel. Values that have come back to 0 but for rounding, of what they were after fewer sweeps, have no
        relative error.
        """
        w, a = w.detach(), a.detach()
        ends = finals(context, landmarks.visited)
        sets = [some(points, self.sample, generator) for points in (context.mask.nonzero()[:, 0], ends)]
        sets.append(by_risk(lost * (w.double().abs() / power_of_two(w.double())), self.sample, generator))
        own, at_ends, risked = (_values(landmarks, attention, context, points, w, a) for points in sets)
        usual, few = relative_distance(*own), relative_distance(*risked[:2], least=torch.maximum(own[1].abs(), own[2]))
        counts = (few > _LOST) | (few > _MISSED * usual)
        return float(torch.stack([usual, relative_distance(*at_ends), few * counts]).max())


def _values(
    landmarks: Landmarks, attention: BoundAttention, context: Context, points: Tensor, w: Tensor, a: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Φ a_L and K w at some points, ``(b,)``, and what is rounding beside the largest Φ a_t on the way."""
    if len(points) == 0:
        return (none := w.double()[points]), none, none
    exact = attention.expand(context.points[points].to(w), w[:, None])[:, 0].detach().double()
    by_sweep = landmarks.rows(context, points)[1].detach() @ (landmarks.B.detach() @ a.mT)
    return by_sweep[:, -1], exact, torch.finfo(w.dtype).eps ** 0.5 * by_sweep.abs().amax(-1)


def _is_estimated(rule: Attention) -> bool:
    """Whether the step size is one of the landmarks' kernel."""
    automatic = not isinstance(rule, SoftmaxAttention) and rule.step_size == "auto"
    return automatic and getattr(rule.kernel, "positive", False)


def _exact(rule: Attention) -> Attention:
    """The attention without its step size."""
    return rule if isinstance(rule, SoftmaxAttention) else KernelAttention(rule.kernel, 1.0)


def _blocks(context: Context) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """Blocks of transitions: their slice, the indices of the points that they need, where x_k and x′_k are there."""
    for first in range(0, len(context), ROWS):
        block = slice(first, min(first + ROWS, len(context)))
        own = torch.arange(block.start, block.stop, device=context.device)
        needed, place = torch.unique(torch.cat([own, context.successors[block]]), return_inverse=True)
        yield block, needed, place[: len(own)], place[len(own) :]


def _moments(landmarks: Landmarks, context: Context) -> tuple[Tensor, Tensor]:
    """C ``(r, r)`` and b ``(r,)``."""
    m = len(landmarks.B)
    C, b = landmarks.B.new_zeros(m, m), landmarks.B.new_zeros(m)
    for block, points, own, following in _blocks(context):
        kappa, features = landmarks.rows(context, points)
        sent = kappa[own] * context.mask[block, None]
        C += sent.mT @ (context.discounts[block, None] * features[following] - features[own])
        b = b + sent.mT @ context.rewards[block]
    return landmarks.B.mT @ C @ landmarks.B, landmarks.B.mT @ b


def _coefficients(landmarks: Landmarks, context: Context, a: Tensor, alpha: float | Tensor) -> tuple[Tensor, Tensor]:
    """w^ℓ = α Σ_{t<ℓ} (R + (γΦ′ − Φ) a_t) for ℓ = 0 … L, ``(L+1, n)``, of ``a (L+1, r)``; what of each may be lost."""
    sums = torch.nn.functional.pad(a[:-1].cumsum(0), (0, 0, 1, 0))
    depths = torch.arange(len(sums), device=a.device).to(a)[:, None]
    w, lost = a.new_empty((len(sums), len(context))), []
    for block, points, own, following in _blocks(context):
        kappa, features = landmarks.rows(context, points)
        values = (landmarks.B @ sums.mT).mT @ features.mT
        errors = depths * context.rewards[block] + context.discounts[block] * values[:, following] - values[:, own]
        w[:, block] = alpha * errors.masked_fill(~context.mask[block], 0.0)
        lost.append(landmarks.lost(context.points[points], kappa)[own])
    return w, torch.cat(lost)
