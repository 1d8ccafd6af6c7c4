"""The limit of the sweeps, L → ∞, without the sweeps: one linear system, since w ← w + α(r − G w) is affine.

Where G fits into memory it is solved directly; where it does not, by Anderson acceleration of the same iteration.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from icrl_agents.attention import Attention, attend
from icrl_agents.context import Context
from icrl_agents.divergence import DivergenceError
from icrl_agents.error_dynamics import ErrorDynamics, error_dynamics, spectral_radius
from icrl_agents.evaluators.closed_forms import SMALLEST_RECIPROCAL_CONDITION, reciprocal_condition
from icrl_agents.value_function import ValueFunction
from icrl_agents.weighted_context import weighted

MEMORY = 10
"""Increments that Anderson acceleration combines."""
_MOST = 1_000


def fixed_point(rule: Attention, context: Context, step_size: float) -> ValueFunction:
    """The value function that infinitely many sweeps approach, of depth 0: G w = r, v(x) = Σ_k K(x_k, x) w_k.

    Args:
        rule: The attention K.
        context: The context.
        step_size: α > 0, on which the limit does not depend, but whether the sweeps reach it.

    Raises:
        DivergenceError: If the sweeps do not approach it, with their spectral radius.
        ValueError: If the context does not determine it, G being singular.
    """
    distinct = weighted(context, always=True)
    attention = attend(rule, distinct)
    if attention.fits(distinct.points):
        dynamics = error_dynamics(rule, context)
        w = torch.zeros_like(distinct.rewards) if dynamics is None else _solved(dynamics, step_size)
    else:
        K = attention.over(distinct.points)
        w = anderson(lambda w: step_size * distinct.td_errors((K @ w[..., None])[..., 0]), distinct.rewards)
    return ValueFunction([attention], [w[..., None, :]], context)


def _solved(dynamics: ErrorDynamics, step_size: float) -> Tensor:
    """W = G⁻¹ r, ``(*batch, D)``, in float64."""
    systems = dynamics.system.double().flatten(0, -3) if dynamics.system.ndim > 2 else dynamics.system.double()[None]
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
    return torch.linalg.solve(systems, rewards.double().reshape(len(systems), -1)).reshape(rewards.shape).to(rewards)


def _check_determined(G: Tensor, scale: Tensor) -> None:
    reciprocal = float(reciprocal_condition(G.detach(), scale.detach()))
    if not reciprocal >= SMALLEST_RECIPROCAL_CONDITION:
        raise ValueError(
            f"num_sweeps=inf: the limit is not determined, G = M − ΓM′ being singular over the {len(G)} distinct "
            f"states (reciprocal condition number {reciprocal:.0e}), as with γ = 1 and no termination or a kernel too "
            "wide for the distances between states; take a narrower kernel, KernelLSTD with a ridge, or finite depth."
        )


def anderson(increment: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """The w at which ``increment(w)`` is 0, found by Anderson acceleration of w ← w + increment(w), from w = 0.

    Each step takes the combination of the last ``MEMORY`` ones whose increment would be the smallest if it were
    affine, as here it is. It converges where the plain iteration does, and sometimes where that does not. Contexts of
    a batch have steps of their own, and stop when they have converged.

    Args:
        increment: αδ(w), of the shape of ``start``.
        start: Sets shape and type, ``(*batch, D)``.

    Raises:
        DivergenceError: If the increment is not small after 1,000 steps.
    """

    def moved(w: Tensor) -> Tensor:
        return increment(w.reshape(start.shape)).reshape(w.shape)

    w = torch.zeros_like(start).reshape(-1, start.shape[-1])
    f = moved(w)
    first = f.abs().amax(-1, keepdim=True)
    target = torch.finfo(start.dtype).eps ** 0.7 * first
    steps: list[Tensor] = []
    changes: list[Tensor] = []
    for _ in range(_MOST):
        found = f.abs().amax(-1, keepdim=True) <= target
        if bool(found.all()):
            return w.reshape(start.shape)
        move = f
        if steps:
            S, F = torch.stack(steps, -1), torch.stack(changes, -1)
            move = f - ((S + F) @ torch.linalg.lstsq(F, f[..., None]).solution)[..., 0]
        move, before = move.masked_fill(found, 0.0), f
        w = w + move
        f = torch.where(found, f, moved(w))
        steps, changes = [*steps, move][-MEMORY:], [*changes, f - before][-MEMORY:]
    raise DivergenceError(
        f"num_sweeps=inf: no limit found; after {_MOST} accelerated sweeps TD errors are still "
        f"{float((f.abs() / first.clamp(min=torch.finfo(f.dtype).tiny)).max()):.1e} of the rewards; take a narrower "
        "kernel."
    )
