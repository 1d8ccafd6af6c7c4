"""The limit of the sweeps, L → ∞, without the sweeps: one linear system, since w ← w + α(r − G w) is affine.

Where G fits into memory it is solved directly; where it does not, by a Krylov method, which asks for products alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from icrl_agents.arrays import differentiated
from icrl_agents.attention import Attention, BoundAttention, SoftmaxAttention, attend
from icrl_agents.context import Context
from icrl_agents.divergence import DivergenceError
from icrl_agents.error_dynamics import NEAR, ErrorDynamics, error_dynamics, spectral_radius
from icrl_agents.evaluators.closed_forms import KernelLSTD
from icrl_agents.evaluators.systems import SMALLEST_RECIPROCAL_CONDITION, expansion, in_double, reciprocal_condition
from icrl_agents.krylov import arnoldi, least_squares
from icrl_agents.magnitudes import near_power_of_two
from icrl_agents.value_function import ValueFunction
from icrl_agents.weighted_context import WeightedContext, weighted

TOLERANCE = 1e-11
"""Largest residual, over the rewards, of a limit that is not solved for directly."""
MEMORY = 100
"""Products after which the Krylov method restarts from what it has found."""
_MOST, _LOOKED, _STALLED = 2_000, 5, 0.95


def fixed_point(rule: Attention, context: Context, step_size: float) -> ValueFunction:
    """The value function that infinitely many sweeps approach, of depth 0: G w = r, v(x) = Σ_k K(x_k, x) w_k.

    Args:
        rule: The attention K.
        context: The context.
        step_size: α > 0, on which the limit does not depend, but whether the sweeps reach it.

    Raises:
        DivergenceError: If the sweeps do not approach it, with their spectral radius.
        ValueError: If the context does not determine it, G being singular, or if its type would round the values.
    """
    wide = in_double(context, rule.kernel)
    distinct = weighted(wide, always=True)
    attention = attend(rule, distinct)
    if differentiated(wide.points) and attention.fits(distinct.points):
        fixed_point(rule, _constant(context), step_size)  # which refuses what has no limit
        return KernelLSTD(rule.kernel, normalise=isinstance(rule, SoftmaxAttention)).fit(context)  # equal states apart
    if attention.fits(distinct.points):
        dynamics = error_dynamics(rule, wide)
        w = torch.zeros_like(distinct.rewards) if dynamics is None else _solved(dynamics, step_size)
    else:
        w = _found(attention, cast(WeightedContext, distinct), step_size)
    return expansion(context, attend(rule, weighted(context, always=True)), w, attention)


def _constant(context: Context) -> Context:
    """The context without the gradients of its states: equal ones are kept once."""
    constant = copy.copy(context)
    constant.points = context.points.detach()
    return constant


def _found(attention: BoundAttention, distinct: WeightedContext, step_size: float) -> Tensor:
    """The w of ``_solved`` without a matrix: step size and rewards are those of the sweeps."""
    K, unpaid = attention.over(distinct.points), copy.copy(distinct)
    unpaid.rewards = torch.zeros_like(distinct.rewards)  # beside which no size of the rewards takes digits away

    def system(w: Tensor) -> Tensor:
        return -step_size * unpaid.td_errors((K @ w[..., None])[..., 0])

    with torch.no_grad():
        w = gmres(system, step_size * distinct.rewards)
    return _differentiable(system, w, step_size * distinct.rewards)


def _differentiable(product: Callable[[Tensor], Tensor], w: Tensor, right: Tensor) -> Tensor:
    """The solution ``w`` of A w = b with its gradient: of b and of what A is made of, at A⁻ᵀ times that of w."""
    residual = right - product(w)  # ≈ 0
    if not differentiated(residual):
        return w
    if not residual.requires_grad:
        raise NotImplementedError(
            "num_sweeps=inf: no derivatives in forward mode where the kernel matrix does not fit into memory; "
            "expected reverse mode, a shorter context or finite depth."
        )
    with torch.enable_grad():
        start = torch.zeros_like(w, requires_grad=True)
        end = product(start)

    def solved(gradient: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            raise NotImplementedError(
                "num_sweeps=inf: there are no gradients of gradients where the kernel matrix does not fit into memory; "
                "expected create_graph=False, a shorter context or finite depth."
            )
        return gmres(lambda v: torch.autograd.grad(end, start, v, retain_graph=True)[0], gradient)

    residual.register_hook(solved)
    return w + (residual - residual.detach())


def _solved(dynamics: ErrorDynamics, step_size: float) -> Tensor:
    """W = G⁻¹ r, ``(*batch, D)``, in float64."""
    systems = dynamics.system.flatten(0, -3) if dynamics.system.ndim > 2 else dynamics.system[None]
    operators = dynamics.operator(step_size).reshape(systems.shape)
    weights = dynamics.weights.reshape(systems.shape)
    for i, (M, G, operator) in enumerate(zip(weights, systems, operators, strict=True)):
        _check_determined(G, M.abs().max())
        radius = spectral_radius(operator.detach())
        if radius >= 1.0:
            raise DivergenceError(
                f"num_sweeps=inf: the sweeps have no limit on this context (spectral radius {radius:.6g}, number {i}); "
                "take a smaller step_size or a narrower kernel. KernelLSTD gives the values at which TD errors are 0."
            )
    rewards = dynamics.context.rewards
    return torch.linalg.solve(systems, rewards.reshape(len(systems), -1)).reshape(rewards.shape)


def _check_determined(G: Tensor, scale: Tensor) -> None:
    reciprocal = float(reciprocal_condition(G.detach(), scale.detach()))
    if not reciprocal >= SMALLEST_RECIPROCAL_CONDITION:
        raise ValueError(
            f"num_sweeps=inf: the limit is not determined, G = M − ΓM′ being singular over the {len(G)} distinct "
            f"states (reciprocal condition number {reciprocal:.0e}), as with γ = 1 and no termination or a kernel too "
            "wide for the distances between states; take a narrower kernel, KernelLSTD with a ridge, or finite depth."
        )


def gmres(product: Callable[[Tensor], Tensor], right: Tensor) -> Tensor:
    """The w with A w = b, by the generalised minimal residual method, restarted, for each context of a batch.

    Of the w in the span of b, A b, A² b, … each step takes the one whose residual is the smallest: what Anderson
    acceleration of w ← w + b − A w does too, but from an orthonormal basis, which keeps its digits.

    Args:
        product: A w, of the shape of ``right``.
        right: b, ``(*batch, D)``, in double precision.

    Raises:
        DivergenceError: If a residual is not small after 2,000 steps, or a restart hardly made it smaller; or if
            A = αG has eigenvalues so far from 1 that sweeps would diverge.
    """
    flat = right.reshape(-1, right.shape[-1])
    largest = flat.detach().abs().amax(-1, keepdim=True)
    unit = torch.where(largest > 0, near_power_of_two(largest), 1.0)  # so that no square leaves float64
    flat = flat / unit

    def applied(w: Tensor) -> Tensor:
        return product(w.reshape(right.shape)).reshape(flat.shape)

    w, residual, size, steps = torch.zeros_like(flat), flat, flat.norm(dim=-1), 0
    unsettled = size > 0
    while bool(unsettled.any()):
        basis, H = _space(applied, residual, TOLERANCE * size)
        if steps == 0:
            _check_sweeps(H[:, :-1])
        w = w + (basis[:, :-1].mT @ least_squares(H, _first(residual, H))[..., None])[..., 0]
        before, residual = residual.norm(dim=-1), flat - applied(w)
        left, steps = residual.norm(dim=-1), steps + H.shape[-1]
        unsettled = left > TOLERANCE * size
        if steps >= _MOST or bool((unsettled & (left > _STALLED * before)).any()):
            break
    if not bool(unsettled.any()):
        return (w * unit).reshape(right.shape)
    worst = residual.norm(dim=-1) / size.clamp(min=torch.finfo(size.dtype).tiny)
    raise DivergenceError(
        f"num_sweeps=inf: no limit found; after {steps} steps TD errors are still {float(worst.max()):.1e} of the "
        f"rewards (context number {int(worst.argmax())}); take a narrower kernel, a smaller γ, or finite depth."
    )


def _space(applied: Callable[[Tensor], Tensor], start: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The Krylov space in which the residual is below ``target (B,)``, or that of ``MEMORY`` products."""
    basis = H = start.new_zeros(len(start), 0, 0)
    for basis, H in arnoldi(applied, start, MEMORY):  # noqa: B007 - the last one is used
        if H.shape[-1] % _LOOKED:
            continue
        right = _first(start, H)
        gap = right - (H @ least_squares(H, right)[..., None])[..., 0]
        if bool((gap.norm(dim=-1) <= target / 2).all()):
            break
    return basis, H


def _first(start: Tensor, H: Tensor) -> Tensor:
    """``start`` in the basis that begins with it, ``(B, k + 1)``."""
    return torch.nn.functional.pad(start.norm(dim=-1)[:, None], (0, H.shape[-1]))


def _check_sweeps(H: Tensor) -> None:
    """Raises DivergenceError where the eigenvalues of A = αG, as those of H tell, are clearly not within 1 of 1."""
    radius = (1.0 - torch.linalg.eigvals(H.cpu())).abs().amax(-1)
    if bool((radius > 1.0 + NEAR).any()):
        raise DivergenceError(
            f"num_sweeps=inf: the sweeps have no limit on this context (spectral radius {float(radius.max()):.6g}, "
            f"number {int(radius.argmax())}); take a smaller step_size or a narrower kernel."
        )
