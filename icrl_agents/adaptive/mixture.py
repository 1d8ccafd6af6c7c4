"""Weights of a mixture: the best ones on the simplex, and how far to trust them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from icrl_agents.adaptive.held_out import HeldOutErrors
from icrl_agents.magnitudes import power_of_two

RIDGE = 0.02
"""Added to the diagonal of the criterion, beside its mean of about 1: equal candidates share their weight."""
_STEPS = 20
_TOLERANCE = 1e-12


def criterion(errors: Sequence[HeldOutErrors], default: int, return_weight: float) -> Tensor:
    """The quadratic form of each fold, ``(F, C, C)``: J_f(w) = wᵀ Q_f w is the criterion of the mixture w there.

    J_f(w) = mean_k (Σ_c w_c δ_kc)² / s + λ mean_k (Σ_c w_c e_kc)² / s′ , Σ_c w_c = 1 ,

    with δ the TD errors and e the return errors, both linear in the mixture, and s, s′ the default's means over all
    folds. A term whose scale is 0, or without a complete return, is left out.

    Args:
        errors: Of each fold, without NaN.
        default: Index of the default candidate.
        return_weight: λ ≥ 0.
    """
    td = _forms([each.td_errors for each in errors], default)
    returns = _forms([each.return_errors for each in errors], default)
    return _scaled(td, default) + return_weight * _scaled(returns, default)


def _forms(errors: Sequence[Tensor], default: int) -> Tensor:
    """Mean products of each fold, ``(F, C, C)``, in a unit in which no square of the default's leaves float64."""
    unit = power_of_two(torch.cat([each[:, default] for each in errors]))
    return torch.stack([(each / unit).mT @ (each / unit) / max(1, len(each)) for each in errors])


def _scaled(forms: Tensor, default: int) -> Tensor:
    scale = forms[:, default, default].mean()
    return forms / scale if scale > 0 else torch.zeros_like(forms)


def simplex_weights(form: Tensor) -> Tensor:
    """argmin_w wᵀ Q w over w ≥ 0, Σ_c w_c = 1; ``(C,)`` from Q ``(C, C)``.

    It is u / Σ_c u_c with u ≥ 0 the minimum of uᵀ Q u / 2 − Σ_c u_c, which is found exactly, support by support, as in
    non-negative least squares.

    Args:
        form: Positive semi-definite; a ridge of 2 % of its mean diagonal is added, so that the minimum is unique.
    """
    count = len(form)
    scale = form.diagonal().mean()
    if not bool(scale > 0):
        return torch.full_like(form[0], 1.0 / count)
    form = form / scale + RIDGE * torch.eye(count, dtype=form.dtype, device=form.device)
    found, support = torch.zeros_like(form[0]), torch.zeros(count, dtype=torch.bool, device=form.device)
    while True:
        slope = (1.0 - form @ found).masked_fill(support, 0.0)
        entering = int(slope.argmax())
        if not float(slope[entering]) > _TOLERANCE:
            return found / found.sum()
        support[entering] = True
        while True:
            target = torch.zeros_like(found)
            target[support] = torch.linalg.solve(form[support][:, support], torch.ones_like(found[support]))
            leaving = support & (target <= 0)
            if not bool(leaving.any()):
                break
            share = (found[leaving] / (found[leaving] - target[leaving])).amin()
            found = found + share * (target - found)
            support &= found > _TOLERANCE
            found = found * support
        found = target


def cautious_step(forms: Tensor, default: int, weights: Tensor, caution: float) -> float:
    """How far to go from the default towards ``weights``: the t in {0, 0.05 … 1} with the least upper bound.

    The bound is mean_f D_f(t) + z sd_f D_f(t) / √F, with D_f(t) = J_f((1 − t) default + t weights) − J_f(default).

    The differences are paired within folds, so what makes a trajectory hard for every kernel cancels. At t = 0 the
    bound is 0: the default is left only where the gain is clear of its standard error z times over.

    Args:
        forms: Q_f, ``(F, C, C)``, F ≥ 2.
        default: Index of the default candidate.
        weights: On the simplex, ``(C,)``.
        caution: z ≥ 0.
    """
    base = torch.zeros_like(weights)
    base[default] = 1.0
    steps = torch.linspace(0, 1, _STEPS + 1, dtype=weights.dtype, device=weights.device)
    mixtures = base + steps[:, None] * (weights - base)
    losses = torch.einsum("sc,fcd,sd->sf", mixtures, forms, mixtures)
    gains = losses - losses[:1]
    bound = gains.mean(1) + caution * gains.std(1) / len(forms) ** 0.5
    return float(steps[int(bound.argmin())])
