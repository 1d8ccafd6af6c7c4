"""Iterations that do not converge: noticed from what a fit has computed anyway, and only then measured.

Where attention is diagonal enough, weighted softmax TD approaches |v| ≤ r_max/(1 − γ), as every policy has it (arXiv
2605.07333, convergence); sweeps on the way there were seen 5 % beyond it. Other iterations have no such bound; of
them, the growth of their TD errors is watched. Nor is there one at γ = 1: where no transition that ends is reached,
values grow by as much in every sweep, for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from icrl_agents.context import Context
from icrl_agents.notices import warn

FACTOR = 10.0
"""Values beyond this many times r_max/(1 − γ) are an error; less is a warning, where the
spectral radius is not below 1 or they are beyond twice the bound: a contracting kernel may extrapolate a little."""
GROWTH = 1e6
"""TD errors that have grown this much are an error; by more than 2 and by its spectral radius, or by more than 100
where no bound says how far values may go, a warning."""
GROWN, _MUCH, EXCEEDED, _FAR, _NOTICEABLE, _SHORTEST = 2.0, 100.0, 1.001, 2.0, 1.05, 10
_SETTLED, _ENDLESS = 1e-3, 1e-5
"""At γ = 1, values have settled where a sweep changes them by no more than this share of what the first one did; a
spectral radius this near to 1 is 1."""
_REMEDY = "take a smaller step_size, a narrower kernel, centred or scaled states, or fewer {unit}s"


class DivergenceError(ArithmeticError):
    """Values left the finite or the possible numbers: the iteration does not contract on this context."""


class DivergenceWarning(RuntimeWarning):
    """The iteration does not contract on this context, or it has values that no policy has."""


class Measured(NamedTuple):
    """Spectral radius of an iteration and, of softmax attention, the kernel diagonality; None of others."""

    spectral_radius: float
    diagonality: float | None = None


Measure = Callable[[int], Measured]
Ends = Callable[[int], bool | None]


class Bounded(NamedTuple):
    """Values that r_max/(1 − γ) bounds, at the points of a context.

    Args:
        last: The last ones that the fit has computed, ``(*batch, p)``.
        at: The values of coefficients ``(*batch, l, k)``, ``(*batch, p, l)``.
    """

    last: Tensor
    at: Callable[[Tensor], Tensor]


def check_convergence(
    context: Context,
    coefficients: Tensor,
    *,
    unit: str = "sweep",
    bounded: Bounded | None = None,
    measure: Measure | None = None,
    endless: Ends | None = None,
    discounted: bool = True,
) -> None:
    """Warns or raises where a fit has not converged; otherwise it costs a few passes over vectors.

    Args:
        context: The context.
        coefficients: w^ℓ for depths ℓ = 0 … L, ``(*batch, L+1, k)``.
        unit: What the depth counts, ``"sweep"`` or ``"layer"``.
        bounded: The values, where they are bounded.
        measure: What to tell of one context, by its index in the flattened batch; by default the rate of the last
            half of the iteration, of at least 10.
        endless: Whether from some states of one context no end is ever reached; None where that is not known.
        discounted: False of iterations that ignore γ.

    Raises:
        DivergenceError: If coefficients are not finite, values exceed the bound by ``FACTOR``, or TD errors have grown
            by ``GROWTH``, naming the first such depth.
    """
    w = coefficients.detach()
    check_finite(w, unit)
    if w.shape[-2] < 2 or w.shape[-1] == 0:
        return
    with torch.no_grad():
        growth = (_peak(w[..., -1, :] - w[..., -2, :]) / _positive(_first_step(w, discounted))).flatten()
        bound = value_bound(context).flatten()
        excess = torch.zeros_like(growth) if bounded is None else _peak(bounded.last).flatten() / _positive(bound)
        suspect = ((growth > GROWN) | (excess > EXCEEDED)).nonzero().flatten()
        if len(suspect) > 0:
            values = _peak(bounded.at(w).mT).reshape(len(growth), -1) if bounded else None
            flat, gammas = w.reshape(-1, *w.shape[-2:]), context.discounts.amax(-1).flatten().tolist()
            worst_first = suspect[(growth / GROWN + excess / EXCEEDED)[suspect].argsort(descending=True)]
            suspects = [
                _Suspect(
                    _steps(flat[i], discounted),
                    None if values is None else values[i],
                    float(bound[i]),
                    gammas[i],
                    unit,
                    i,
                    measure,
                )
                for i in worst_first.tolist()
            ]
            for each in suspects:  # an error of one of them comes before a warning of another
                _refuse(each)
            if any(map(_warned, suspects)):
                return
        if discounted and w.shape[-2] > _SHORTEST and bool(torch.isinf(bound).any()):
            _check_ends(context, w, unit, bounded, measure, endless)


def check_finite(coefficients: Tensor, unit: str = "sweep") -> None:
    """Raises DivergenceError, naming the first depth, if a coefficient ``(*batch, L+1, k)`` is not finite."""
    finite = torch.isfinite(coefficients.detach()).all(-1)
    if not bool(finite.all()):
        first = int((~finite.reshape(-1, finite.shape[-1]).all(0)).nonzero()[0])
        raise DivergenceError(
            f"values are not finite from {unit} {first} on: the iteration diverges on this context; "
            f"{_REMEDY.format(unit=unit)}."
        )


def value_bound(context: Context) -> Tensor:
    """r_max/(1 − γ), ``(*batch,)``, with the largest |R_k| and γ_k of each context; infinite where γ is 1."""
    if len(context) == 0:
        return context.rewards.new_zeros(context.rewards.shape[:-1])
    rewards, gamma = context.rewards.detach().abs().amax(-1), context.discounts.amax(-1)
    return torch.where(gamma < 1.0, rewards / (1.0 - gamma), float("inf"))


class _Suspect(NamedTuple):
    """One context that may not converge: its largest steps ``(L,)`` and values ``(L+1,)``, and what bounds these."""

    steps: Tensor
    values: Tensor | None
    bound: float
    gamma: float
    unit: str
    number: int
    measure: Measure | None


def _refuse(suspect: _Suspect) -> None:
    """Raises DivergenceError where values or their growth are out of bounds, naming the first depth."""
    steps, values, bound, gamma, unit, number, measure = suspect
    if values is not None and bool((values > FACTOR * bound).any()):
        first = int((values > FACTOR * bound).nonzero()[0])
        found = f"values leave {FACTOR:g} times r_max/(1 − γ) = {bound:.4g} from {unit} {first} on"
        raise DivergenceError(_message(found, _measured(steps, number, measure), gamma, unit))
    if float(steps[-1] / _positive(steps[0])) > GROWTH:
        first = 1 + int((steps > GROWTH * steps[0]).nonzero()[0])
        found = f"TD errors have grown more than {GROWTH:.0e}-fold from {unit} {first} on"
        raise DivergenceError(_message(found, _measured(steps, number, measure), gamma, unit))


def _warned(suspect: _Suspect) -> bool:
    """Whether there was something to warn of."""
    steps, values, bound, gamma, unit, number, measure = suspect
    depth, growth = len(steps), float(steps[-1] / _positive(steps[0]))
    beyond = values is not None and bool((values > EXCEEDED * bound).any())
    grown = values is None and growth > _MUCH
    if not beyond and not grown and measure is None and depth < _SHORTEST:
        return False
    measured = _measured(steps, number, measure)
    far = values is not None and bool((values > _FAR * bound).any())
    stalls = beyond and measured.spectral_radius > 1.0 - 1e-9
    if not far and not stalls and not grown and measured.spectral_radius < _NOTICEABLE ** (1.0 / depth):
        return False
    found = f"TD errors have grown {growth:.3g}-fold in {depth} {unit}s"
    if values is not None and beyond:
        found = f"values reach {float(values.max()):.4g} in {depth} {unit}s, beyond r_max/(1 − γ) = {bound:.4g}"
    warn(_message(found, measured, gamma, unit), DivergenceWarning, stacklevel=5)
    return True


def _measured(steps: Tensor, index: int, measure: Measure | None) -> Measured:
    if measure is not None:
        return measure(index)
    half = len(steps) // 2
    rate = (steps[-1] / _positive(steps[half - 1])) ** (1.0 / max(1, len(steps) - half))
    return Measured(float(rate))


def _message(found: str, measured: Measured, gamma: float, unit: str) -> str:
    radius, diagonality = measured
    numbers = f"spectral radius {radius:.6g}"
    if diagonality is not None:
        numbers += f", kernel diagonality {diagonality:.3g}; more than (1 + γ)/2 = {(1 + gamma) / 2:.4g} would suffice"
    verdict = (
        "does not contract" if radius > 1.0 - 1e-9 else "contracts, but not yet to values that a policy could have,"
    )
    return f"{found}: the iteration {verdict} on this context ({numbers}); {_REMEDY.format(unit=unit)}."


def _check_ends(
    context: Context, w: Tensor, unit: str, bounded: Bounded | None, measure: Measure | None, endless: Ends | None
) -> None:
    """Warns of a context with γ = 1 and without ends: its coefficients ``(*batch, L+1, k)`` never settle."""
    moved = w.diff(dim=-2) if bounded is None else bounded.at(w.diff(dim=-2)[..., [0, -1], :]).mT
    peaks = _peak(moved).reshape(-1, moved.shape[-2])
    unsettled = torch.isinf(value_bound(context)).flatten() & (peaks[:, -1] > _SETTLED * peaks[:, 0])
    ends = ((context.discounts < 1.0) & context.mask).any(-1).flatten()
    steps = _peak(w.diff(dim=-2)).reshape(len(peaks), -1)
    for index in unsettled.nonzero().flatten().tolist():
        found = None if endless is None else endless(index)
        if found is None:
            found = not bool(ends[index]) and _measured(steps[index], index, measure)[0] > 1.0 - _ENDLESS
        if found:
            text = (
                f"values have not settled after {w.shape[-2] - 1} {unit}s: at γ = 1, states of this context from which "
                f"no transition that ends is reached have no finite value, and L {unit}s give sums over L steps; take "
                "γ < 1, episodes that terminate, or AverageRewardTD."
            )
            warn(text, DivergenceWarning, stacklevel=5)
            return


def _first_step(w: Tensor, discounted: bool) -> Tensor:
    """Largest change of coefficients ``(*batch, L+1, k)`` that growth is counted from, ``(*batch,)``.

    Where rewards are counted from their average, which is 0 at first, it is that of one of the first two steps.
    """
    return _peak(w[..., : 2 if discounted else 3, :].diff(dim=-2)).amax(-1)


def _steps(w: Tensor, discounted: bool) -> Tensor:
    """Largest change of coefficients ``(L+1, k)`` in each step, ``(L,)``; in the first one as growth is counted."""
    return torch.cat([_first_step(w, discounted)[None], _peak(w.diff(dim=0))[1:]])


def _peak(rows: Tensor) -> Tensor:
    return rows.abs().amax(-1)


def _positive(numbers: Tensor) -> Tensor:
    return numbers.clamp(min=torch.finfo(numbers.dtype).tiny)
