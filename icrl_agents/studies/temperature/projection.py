"""How well values lie in the RKHS of a kernel: kernel ridge regression, judged on trajectories left out."""

from __future__ import annotations

import torch
from torch import Tensor

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Candidates for the ridge η, relative to κ(x, x)."""


def projection(kernel: Tensor, targets: Tensor, groups: Tensor, queries: Tensor) -> Tensor:
    """Values at queries of f = argmin_{f ∈ RKHS} Σ_i (y_i − ȳ − f(x_i))² + η ‖f‖², plus ȳ.

    f(x) = κ(x, X) (K + η I)⁻¹ (y − ȳ). η is the candidate with the least mean square error when each group is left out
    in turn, which in closed form is [(K + η I)⁻¹]_gg⁻¹ α_g with α = (K + η I)⁻¹ (y − ȳ).

    Args:
        kernel: K = κ(X, X), ``(n, n)``.
        targets: y, ``(n,)``.
        groups: Which of ``0 … G−1`` each state belongs to, ``(n,)``.
        queries: κ(x, X), ``(m, n)``.

    Returns:
        ``(m,)``; NaN where no candidate can be solved for.
    """
    scale = kernel.diagonal().mean()
    centred = targets - targets.mean()
    least, weights = float("inf"), torch.full_like(targets, torch.nan)
    for ridge in RIDGES:
        inverse, _ = torch.linalg.inv_ex(kernel + ridge * scale * torch.eye(len(kernel)).to(kernel))
        alpha = inverse @ centred
        error = float(torch.stack([_left_out(inverse, alpha, groups == g) for g in groups.unique()]).sum())
        if error < least:
            least, weights = error, alpha
    return targets.mean() + queries @ weights


def _left_out(inverse: Tensor, alpha: Tensor, group: Tensor) -> Tensor:
    """Sum of the squared errors on one group, fitted on the others."""
    errors, _ = torch.linalg.solve_ex(inverse[group][:, group], alpha[group])
    return errors.square().sum()
