"""What was chosen for a context, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from icrl_agents.adaptive.held_out import HeldOutErrors
from icrl_agents.adaptive.mixture import cautious_step, criterion, simplex_weights
from icrl_agents.value_function import Evaluator

WORST = 100.0
"""Candidates whose criterion is more than this many times the default's have no part in a mixture, nor in its ridge."""


@dataclass(frozen=True)
class Candidate:
    """One evaluator of the bank at one depth."""

    evaluator: Evaluator
    depth: int


@dataclass(frozen=True)
class Choice:
    """The mixture that was chosen for a context.

    Args:
        candidates: C candidates; the first one is the default.
        weights: Of the mixture, ``(C,)``.
        step: How far from the default, 0, to the best mixture on the simplex, 1.
        td_losses: Mean δ² of each candidate on each fold, fitted on the others, ``(F, C)``; NaN if it diverged, inf
            where squares leave float64.
        return_errors: The same of (v − G)², G the Monte-Carlo return; NaN also without a complete return.
        reason: Why, in words.
    """

    candidates: tuple[Candidate, ...]
    weights: Tensor
    step: float
    td_losses: Tensor
    return_errors: Tensor
    reason: str

    def __str__(self) -> str:
        """The reason, then a line for each candidate that has weight."""
        lines = [self.reason]
        for i, (candidate, weight) in enumerate(zip(self.candidates, self.weights.tolist(), strict=True)):
            if weight > 0:
                loss = f", held-out TD loss {self.td_losses[:, i].mean():.3g}" if len(self.td_losses) else ""
                lines.append(f"{weight:.2f}  {candidate.evaluator} at depth {candidate.depth}{loss}")
        return "\n".join(lines)


def choose(
    candidates: tuple[Candidate, ...], errors: Sequence[HeldOutErrors], caution: float, return_weight: float
) -> Choice:
    """Returns the choice among ``candidates``, of which the first is the default, from their errors on each fold.

    Args:
        candidates: C candidates.
        errors: Of each fold, at least 2.
        caution: z of ``cautious_step``.
        return_weight: λ of ``criterion``.
    """
    td_losses = torch.stack([each.td_losses for each in errors]).cpu()
    return_errors = torch.stack([each.mean_square_return_errors for each in errors]).cpu()
    kept = torch.stack([each.finite for each in errors]).all(0).cpu()
    if not bool(kept[0]):
        return default_choice(candidates, "it diverged on a part of the context", td_losses, return_errors)
    forms = criterion([each.of(kept) for each in errors], 0, return_weight)
    losses = forms.mean(0).diagonal()
    near = losses <= WORST * losses[0]
    kept[kept.clone()], forms = near.cpu(), forms[:, near][:, :, near]
    best = simplex_weights(forms.mean(0))
    step = cautious_step(forms, 0, best, caution)
    weights = torch.zeros(len(candidates), dtype=torch.float64, device="cpu")
    weights[kept] = step * best.cpu()
    weights[0] += 1 - step
    if step == 0:
        reason = f"no mixture beat it by {caution:g} standard errors over {len(errors)} folds"
        return default_choice(candidates, reason, td_losses, return_errors)
    reason = f"mixture: {step:.2f} of the way from the default to the best one of {len(errors)} folds"
    return Choice(candidates, weights, step, td_losses, return_errors, reason)


def default_choice(
    candidates: tuple[Candidate, ...],
    reason: str,
    td_losses: Tensor | None = None,
    return_errors: Tensor | None = None,
) -> Choice:
    """Returns the choice of the first candidate alone, and why."""
    weights = torch.zeros(len(candidates), dtype=torch.float64, device="cpu")
    weights[0] = 1.0
    none = torch.zeros(0, len(candidates), dtype=torch.float64, device="cpu")
    losses = (none if td_losses is None else td_losses, none if return_errors is None else return_errors)
    return Choice(candidates, weights, 0.0, *losses, f"default: {reason}")
