"""Errors of a bank's candidates on trajectories that they have not seen."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from icrl_agents.adaptive.depths import fit_deepest
from icrl_agents.adaptive.folds import subset
from icrl_agents.context import Context
from icrl_agents.notices import hearing
from icrl_agents.value_function import DivergenceError, Evaluator

LARGEST_MISSING_SHARE = 0.05
"""Returns of which more than this share is still to come at the trajectory's end are not compared with values."""


@dataclass(frozen=True)
class HeldOutErrors:
    """What C candidates do on one fold, fitted on the others; NaN where one diverged.

    Args:
        td_errors: δ of each transition, ``(n, C)``.
        return_errors: v − G where the return G is all but complete, ``(m, C)``.
    """

    td_errors: Tensor
    return_errors: Tensor

    @property
    def td_losses(self) -> Tensor:
        """Mean δ² of each candidate, ``(C,)``."""
        return self.td_errors.square().mean(0)

    @property
    def mean_square_return_errors(self) -> Tensor:
        """Mean (v − G)² of each candidate, ``(C,)``; NaN where no return is complete."""
        return self.return_errors.square().mean(0)

    @property
    def finite(self) -> Tensor:
        """Which candidates have finite errors throughout, ``(C,)``; the others diverged."""
        return torch.isfinite(self.td_errors).all(0) & torch.isfinite(self.return_errors).all(0)

    def of(self, candidates: Tensor) -> HeldOutErrors:
        """The errors of some candidates, given by their indices or by a mask."""
        chosen = candidates.to(self.td_errors.device)
        return HeldOutErrors(self.td_errors[:, chosen], self.return_errors[:, chosen])


def held_out_errors(
    evaluators: Sequence[Evaluator], depths: Sequence[Sequence[int]], context: Context, folds: Sequence[Tensor]
) -> list[HeldOutErrors]:
    """Returns the errors on each fold of what is fitted on all others.

    Args:
        evaluators: The bank.
        depths: Of each evaluator, those to compare; C in all.
        context: One context.
        folds: Indices of whole trajectories, two folds at least.
    """
    returns, complete = complete_returns(context)
    found = []
    for i, fold in enumerate(folds):
        seen = subset(context, torch.cat([*folds[:i], *folds[i + 1 :]]))
        unseen = subset(context, fold)
        values = torch.cat([_values(e, d, seen, unseen.points) for e, d in zip(evaluators, depths, strict=True)], -1)
        return_errors = (values[: len(unseen)] - returns[fold, None])[complete[fold]]
        found.append(HeldOutErrors(unseen.td_errors(values.mT).mT.double(), return_errors.double()))
    return found


def complete_returns(context: Context) -> tuple[Tensor, Tensor]:
    """Monte-Carlo returns ``(n,)``, and where all but 5 % of the weight Σ_j γ^j (1 − γ) of a return has been seen.

    The share μ_k = γ_k μ_{k+1} that is still to come at the end of a trajectory is 1 − the return of rewards 1 − γ.
    """
    weights = Context(
        context.states, 1 - context.discounts, context.discounts, context.next_states, contiguous=context.contiguous
    )
    missing = 1 - weights.returns()[0]
    return context.returns()[0], missing <= LARGEST_MISSING_SHARE


def _values(evaluator: Evaluator, depths: Sequence[int], seen: Context, states: Tensor) -> Tensor:
    """Values ``(m, len(depths))`` of ``states``, inferred from ``seen``; NaN at depths that diverge."""
    found = states.new_full((len(states), len(depths)), torch.nan)
    try:
        fitted = fit_deepest(evaluator, seen, depths)  # its warnings are of a part: divergence, too few landmarks
    except ValueError as error:
        raise ValueError(f"evaluators: {evaluator!r} cannot be fitted on a part of the context: {error}") from error
    if fitted is None:
        return found
    if not fitted.cut:  # one of fewer sweeps on a part of the context, by itself
        depths = [min(depth, fitted.values.depth) for depth in depths]
    known = [i for i, depth in enumerate(depths) if depth <= fitted.values.max_depth]
    with hearing():  # of values of a part
        for columns in (known, *([i] for i in known)):  # all at once, or each by itself where one overflows
            with contextlib.suppress(DivergenceError):
                found[:, columns] = fitted.values.by_depth(states, [depths[i] for i in columns])
                if columns is known:
                    break
    return found
