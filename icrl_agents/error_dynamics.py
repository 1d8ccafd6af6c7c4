"""What the sweeps do to the TD errors of a context: δ ← (I − αG) δ, and how fast that contracts.

With D distinct states, δ their mean TD errors, M the attention of states to states, M′ that of all points, and Γ the
mean discounted routing to next states: v = M w, w ← w + α(r − G w), G = M − ΓM′ (arXiv 2605.07333, convergence).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from icrl_agents.attention import Attention, BoundAttention, SoftmaxAttention, attend
from icrl_agents.blockwise import BlockwiseMatrix
from icrl_agents.context import Context
from icrl_agents.divergence import EXCEEDED, GROWN, Bounded, Measured, check_convergence, check_finite, value_bound
from icrl_agents.krylov import arnoldi
from icrl_agents.magnitudes import power_of_two
from icrl_agents.weighted_context import WeightedContext, read_points, weighted

LARGEST_SPECTRUM = 256
"""States up to which all eigenvalues are computed; beyond, the largest one is looked for."""
NEAR = 0.02
"""Radii that a Krylov space has not settled are off by a quarter of this at most where that was measured."""
_LARGEST_DENSE, _KRYLOV, _CHECKED, _SETTLED, _FAR_AHEAD = 4_000, 240, 40, 1e-8, 1e6
_NOTHING = 1e-100


class ErrorDynamics(NamedTuple):
    """The affine iteration w ← w + α(r − G w) over the distinct states of a context.

    Args:
        context: The context, its equal states kept once.
        attention: Bound to it.
        weights: M, ``(*batch, D, D)``.
        passed: ΓM′, ``(*batch, D, D)``.
        system: G, ``(*batch, D, D)``; the identity in the padding.
    """

    context: WeightedContext
    attention: BoundAttention
    weights: Tensor
    passed: Tensor
    system: Tensor

    def diagonality(self) -> Tensor:
        """M = min_s M(s, s), ``(*batch,)``."""
        diagonal = self.weights.diagonal(dim1=-2, dim2=-1)
        return diagonal.masked_fill(~self.context.mask, float("inf")).amin(-1)

    def operator(self, step_size: float) -> Tensor:
        """I − αG, ``(*batch, D, D)``; 0 in the padding."""
        identity = torch.eye(self.system.shape[-1], device=self.system.device).to(self.system)
        return (identity - step_size * self.system).masked_fill(~self.context.mask[..., None], 0.0)

    def endless(self, rule: Attention, index: int) -> bool:
        """Whether some states of context ``index`` keep more than half of their bootstrapped value for 10⁶ steps.

        A state hands its value on to its next states, and through their attention to states again, ΓM′; or, without
        attention, to those of its next states that are states of the context themselves: a loop of these has no end.
        Attention without a normaliser is given one, so that only ends take something away, and next states that keys
        reach less than any state. Steps are counted geometrically, with that mean, which makes it one linear system.
        """
        passed, linked = self.passed, self.context.routing()[..., : len(self.context)]
        if not isinstance(rule, SoftmaxAttention):
            sizes = self.attention(self.context.points).abs()
            total = sizes.sum(-1, keepdim=True)
            own = total[..., : len(self.context), :].masked_fill(~self.context.mask[..., None], float("inf"))
            least = own.amin(-2, keepdim=True)
            passed = self.context.routed(sizes / torch.maximum(total, least).clamp(min=torch.finfo(total.dtype).tiny))
        mask = self.context.mask.reshape(-1, len(self.context))[index]
        return any(_kept(each.reshape(-1, *each.shape[-2:])[index], mask) for each in (passed, linked))


def _kept(passed: Tensor, mask: Tensor) -> bool:
    """Whether some state keeps more than half of what ``passed (D, D)`` hands on for 10⁶ steps."""
    ends = torch.full_like(passed[:, 0], 1.0 / _FAR_AHEAD).double()
    identity = torch.eye(len(passed), device=ends.device).to(ends)
    kept = torch.linalg.solve(identity - (1.0 - 1.0 / _FAR_AHEAD) * passed.double(), ends)
    return bool((kept.masked_fill(~mask, 0.0) > 0.5).any())


def check_sweeps(
    rule: Attention,
    context: Context,
    coefficients: Tensor,
    K: Tensor | BlockwiseMatrix,
    values: Tensor,
    step_size: float = 1.0,
    unit: str = "sweep",
) -> None:
    """Warns or raises where sweeps (or the layers that are such sweeps) have not converged on ``context``.

    Args:
        rule: The attention.
        context: The context.
        coefficients: w^ℓ for depths ℓ = 0 … L, ``(*batch, L+1, D)``.
        K: The weights of the points on the keys, ``(*batch, p, D)``.
        values: The last values at the points that were computed, ``(*batch, p)``.
        step_size: α.
        unit: What the depth counts.

    Raises:
        DivergenceError: As ``check_convergence``.
    """
    fits, dynamics_of = isinstance(K, Tensor), cache(error_dynamics)
    check_convergence(
        context,
        coefficients,
        unit=unit,
        bounded=Bounded(values.detach(), lambda w: K @ w.mT) if isinstance(rule, SoftmaxAttention) else None,
        measure=partial(measured, rule, context, step_size, dynamics_of) if fits else None,
        endless=partial(_endless, rule, context, dynamics_of) if fits else None,
    )


def check_layers(
    layers: Sequence[object], context: Context, coefficients: Sequence[Tensor], weights: Sequence[Any], values: Tensor
) -> None:
    """Judges a looped layer as the sweep that it is; of other stacks, only whether their values are finite."""
    layer: Any = layers[0]
    if len(layers) > 1 or getattr(layer, "step_size", 1.0) is None:  # None of a layer that was trained to be no sweep
        for each in coefficients:
            check_finite(each, "layer")
    elif isinstance(getattr(layer, "attention", None), Attention):
        check_sweeps(layer.attention, context, coefficients[0], weights[0], values, layer.step_size, "layer")
    elif hasattr(layer, "rule"):
        _check_standard(layer, context, coefficients[0].detach())
    else:
        discounted = getattr(layer, "prompt", "discounted") == "discounted"
        of = cache(layer.operators) if getattr(layer, "is_sweep", False) else None
        measure = None if of is None else lambda index: Measured(spectral_radius(of(context)[index]))
        check_convergence(context, coefficients[0], unit="layer", measure=measure, discounted=discounted)


def is_suspect(
    context: Context, values: Tensor, errors: Tensor | None = None, rewards: Tensor | None = None, bounded: bool = True
) -> bool:
    """Whether the last values or TD errors are such as ``check_layers`` looks into.

    Args:
        context: The context.
        values: The last values, ``(*batch, p)``.
        errors: The last TD errors, ``(*batch, n)`` or of distinct states; None where they are not known.
        rewards: The first TD errors, by default those of the transitions.
        bounded: False of values that may well be beyond r_max/(1 − γ), where errors tell.
    """
    if len(context) == 0:
        return False
    bound = value_bound(context)
    beyond = (values.detach().abs() > EXCEEDED * bound[..., None]).any(-1) & (bounded or errors is None)
    first = (context.rewards if rewards is None else rewards).detach().abs().amax(-1, keepdim=True)
    grown = errors is not None and bool((errors.abs() > GROWN * first).any())
    return grown or bool((beyond | torch.isinf(bound)).any())


@torch.no_grad()
def _check_standard(layer: Any, context: Context, coefficients: Tensor) -> None:  # noqa: ANN401 - a MultiheadLayer
    """Judges standard attention as the softmax attention that it equals."""
    K = layer.bind(context).over(read_points(context))
    values = (K @ coefficients[..., -1:, :].mT)[..., 0]
    check_sweeps(layer.rule(context), context, coefficients, K, values, layer.step_size, "layer")


def measured(
    rule: Attention,
    context: Context,
    step_size: float,
    dynamics_of: Callable[[Attention, Context], ErrorDynamics | None],
    index: int,
) -> Measured:
    """Spectral radius of I − αG and, under softmax attention, diagonality, of context ``index`` of a flat batch."""
    dynamics = dynamics_of(rule, context)
    if dynamics is None:
        return Measured(0.0)
    operators = dynamics.operator(step_size)
    radius = spectral_radius(operators.reshape(-1, *operators.shape[-2:])[index])
    diagonality = float(dynamics.diagonality().flatten()[index]) if isinstance(rule, SoftmaxAttention) else None
    return Measured(radius, diagonality)


def _endless(
    rule: Attention, context: Context, dynamics_of: Callable[[Attention, Context], ErrorDynamics | None], index: int
) -> bool | None:
    """``ErrorDynamics.endless``; None of contexts so large that it would take long."""
    dynamics = dynamics_of(rule, context)
    return None if dynamics is None or len(dynamics.context) > _LARGEST_DENSE else dynamics.endless(rule, index)


def error_dynamics(rule: Attention, context: Context) -> ErrorDynamics | None:
    """The dynamics of ``rule`` on a context with at least one transition; None on an empty one."""
    distinct = weighted(context, always=True)
    if not isinstance(distinct, WeightedContext):
        return None
    attention = attend(rule, distinct)
    weights = attention(distinct.points)
    own = weights[..., : len(distinct), :]
    both = distinct.mask[..., None, :] & distinct.mask[..., :, None]
    passed = distinct.routed(weights)
    system = torch.where(both, own - passed, torch.eye(len(distinct), device=own.device).to(own))
    return ErrorDynamics(distinct, attention, own, passed, system)


def largest_eigenvalue(operator: Tensor) -> Tensor:
    """The largest |eigenvalue| of one ``operator (D, D)``, ``()``; 0 of none.

    Entries far below the rounding of the largest one count as 0: some of 1e-153 keep LAPACK from converging.
    """
    if len(operator) == 0:
        return operator.new_zeros(())
    sizes = operator.detach().abs()
    return torch.linalg.eigvals(operator.masked_fill(sizes < _NOTHING * sizes.max(), 0.0)).abs().amax()


def spectral_radius(operator: Tensor) -> float:
    """The largest |eigenvalue| of one ``operator (D, D)``.

    Of a large one it is that on a Krylov space, if it has settled there or is not near 1, where it decides; beyond
    4,000 states in any case.
    """
    if len(operator) <= LARGEST_SPECTRUM:
        return float(largest_eigenvalue(operator.double()))
    unit = float(power_of_two(operator))  # so that no square leaves float64
    found, settled = _on_krylov_space(operator.double() / unit)
    found *= unit
    if settled or abs(found - 1.0) > NEAR or len(operator) > _LARGEST_DENSE:
        return found
    return float(largest_eigenvalue(operator.double()))


def _on_krylov_space(operator: Tensor) -> tuple[float, bool]:
    """The largest |eigenvalue| on the Krylov space of a fixed random vector, and whether it has settled."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(1, len(operator), generator=generator, dtype=operator.dtype, device="cpu")
    found = math.inf
    for basis, H in arnoldi(lambda v: v @ operator.mT, start.to(operator.device), _KRYLOV):
        k = basis.shape[1] - 1
        left = float(H[0, -1, -1])
        if left > 0 and k % _CHECKED:
            continue
        values, vectors = torch.linalg.eig(H[0, :-1].cpu())
        first = int(values.abs().argmax())
        found = float(values[first].abs())
        if left * float(vectors[-1, first].abs() / vectors[:, first].norm()) <= _SETTLED * found:
            return found, True
    return found, False
