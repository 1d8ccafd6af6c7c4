"""An evaluator that mixes a bank of others, differently for each context."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence, Set, Sized
from dataclasses import dataclass, field
from numbers import Integral, Real

import torch
from torch import Tensor

from icrl_agents.adaptive.bank import default_bank
from icrl_agents.adaptive.choice import Candidate, Choice, choose, default_choice
from icrl_agents.adaptive.depths import Fitted, fit_deepest
from icrl_agents.adaptive.folds import folds
from icrl_agents.adaptive.held_out import held_out_errors
from icrl_agents.context import Context, check_context
from icrl_agents.notices import warn
from icrl_agents.settings import as_python
from icrl_agents.value_function import Evaluator, ValueFunction

FEWEST_FOLDS = 3
"""With fewer trajectories than this, the default is taken: the spread over folds would say nothing."""
_NO_RETURNS = (
    "context: no return in it is complete to 5 %, so that AdaptiveTD has chosen by TD errors alone, which favour flat "
    "values where transitions are random; give it longer trajectories, or return_weight=0 where they are deterministic."
)


class AdaptiveValueFunction(ValueFunction):
    """The mixture v(x) = Σ_c w_c v_c(x) of value functions; after depth ℓ, each candidate has had min(ℓ, L_c) sweeps.

    Args:
        context: The context.
        parts: The value function of each evaluator of the bank, as deep as it does not diverge; None where it does.
        owners: Index into ``parts`` of each candidate.
        choice: The candidates and their weights.

    Attributes:
        approximation_error: The largest one of the parts that have weight; None where none is approximated.
        parts: As given.
        choice: As given.
    """

    def __init__(
        self, context: Context, parts: Sequence[ValueFunction | None], owners: Sequence[int], choice: Choice
    ) -> None:
        self.parts, self.choice = tuple(parts), choice
        weighted = [
            (owner, candidate.depth, weight)
            for owner, candidate, weight in zip(owners, choice.candidates, choice.weights.tolist(), strict=True)
            if weight > 0
        ]
        depths = torch.arange(max(depth for _, depth, _ in weighted) + 1, device="cpu")
        bases, coefficients, errors = [], [], []
        for i, part in enumerate(self.parts):
            terms = [(weight, depths.clamp(max=depth)) for owner, depth, weight in weighted if owner == i]
            if part is not None and terms:
                bases += part._bases
                coefficients += [sum_of(history, terms) for history in part._coefficients]
                errors += [] if part.approximation_error is None else [part.approximation_error]
        super().__init__(bases, coefficients, context, approximation_error=max(errors, default=None))


def sum_of(history: Tensor, terms: Sequence[tuple[float, Tensor]]) -> Tensor:
    """Σ_c w_c w^{min(ℓ, L_c)} for ℓ = 0 … L, ``(L+1, k)``, from w^0 … ``(·, k)``."""
    return torch.stack([weight * history[depths.to(history.device)] for weight, depths in terms]).sum(0)


@dataclass(frozen=True)
class AdaptiveTD:
    """Mixes the value functions of a bank, for each context by what it shows of itself; no weight is updated.

    Each candidate, an evaluator at a depth, is fitted on all trajectories of the context but one, and asked about that
    one: its TD errors, and where the return G is all but complete, v − G. Both are linear in the mixture, so the best
    one on the simplex is a small quadratic programme. From the default the mixture then goes towards it only as far
    as an upper confidence bound on the paired difference of the criterion over the trajectories falls, so that few
    or contradictory trajectories leave the default as it is. Candidates that diverge, or whose criterion is more than
    100 times the default's, have no part in it. The choice has no gradient: the mixture's gradients are
    those of its parts, with the weights as they are.

    Args:
        evaluators: The bank; the first one, at the largest of ``depths``, is the default. ``default_bank()`` if None.
        depths: Depths to choose from; an evaluator that is less deep takes part with its own depth.
        caution: z ≥ 0, standard errors by which the default must be beaten; 0 trusts the mean.
        return_weight: λ ≥ 0, weight of the return errors beside the TD errors, both relative to the default's.
            TD errors favour flat values where transitions are random: there take 100, and trajectories whose returns
            are complete. Where none is, TD errors alone choose, which is warned of unless λ is 0.
        max_folds: Largest number of folds ≥ 3; more trajectories are grouped, neighbours together.

    Raises:
        TypeError: If a member of the bank has no ``fit``, or infers no value function.
        ValueError: If an argument is out of range.

    Example:
        >>> from icrl_agents.evaluators import TabularTD
        >>> context = Context([[0.0]], [1.0], [0.9], [[0.0]])
        >>> values = AdaptiveTD([TabularTD(2)]).fit(context)
        >>> float(values([0.0])), values.choice.reason
        (1.9, 'default: 1 trajectory, 3 at least are needed to choose')
    """

    evaluators: Sequence[Evaluator] = field(default_factory=default_bank)
    depths: Sequence[int] = (20, 80)
    caution: float = 2.0
    return_weight: float = 1.0
    max_folds: int = 10

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        ordered = not isinstance(self.evaluators, (Set, Mapping))  # the first one is the default
        if not (ordered and isinstance(self.evaluators, Sized) and isinstance(self.evaluators, Iterable)):
            raise TypeError(f"evaluators: expected a list of evaluators, got {self.evaluators!r}; put one in brackets.")
        if len(self.evaluators) == 0:
            raise ValueError("evaluators: expected at least one, got none.")
        for each in self.evaluators:
            if isinstance(each, type) or not callable(getattr(each, "fit", None)):
                hint = f"; did you mean {each.__name__}(...)?" if isinstance(each, type) else "."
                raise TypeError(f"evaluators: expected objects with a method fit(context), got {each!r}{hint}")
        if not (isinstance(self.depths, Sized) and isinstance(self.depths, Iterable)) or isinstance(self.depths, str):
            raise TypeError(f"depths: expected a list of integers ≥ 0, such as (20, 80), got {self.depths!r}.")
        if len(self.depths) == 0 or not all(_integer(depth, 0) for depth in self.depths):
            raise ValueError(f"depths: expected integers ≥ 0, one at least, got {self.depths!r}.")
        for name in ("caution", "return_weight"):
            _check_real(name, getattr(self, name))
        if not _integer(self.max_folds, FEWEST_FOLDS):
            raise ValueError(f"max_folds: expected an integer ≥ {FEWEST_FOLDS}, got {self.max_folds!r}.")
        object.__setattr__(self, "evaluators", tuple(self.evaluators))  # of lists that others may append to
        object.__setattr__(self, "depths", tuple(self.depths))

    def fit(self, context: Context) -> AdaptiveValueFunction:
        """Returns the mixture for ``context``; what was chosen, and why, is its ``choice``.

        Raises:
            ValueError: If ``context`` is a batch: its contexts choose different mixtures, so fit each of them; or if
                an evaluator is one of average rewards.
            DivergenceError: If the default diverges on it; other candidates that do are left out, each depth by itself.
        """
        check_context(context)
        if context.points.ndim != 2:
            raise ValueError(f"context: expected one context, got a batch, {context!r}; fit each of them.")
        tried = [[max(self.depths)], *[self.depths] * (len(self.evaluators) - 1)]
        fitted = [fit_deepest(each, context, depths) for each, depths in zip(self.evaluators, tried, strict=True)]
        if fitted[0] is None:
            fitted[0] = Fitted(self.evaluators[0].fit(context), [], False)  # which says why it diverges
        parts = [None if each is None else each.values for each in fitted]
        if any(part is not None and part.average_rewards is not None for part in parts):
            raise ValueError(
                "evaluators: expected discounted ones, whose TD errors can be compared, got one of differential values."
            )
        depths = [self._depths(part) for part in parts]
        owners = [i for i, chosen in enumerate(depths) for _ in chosen]
        candidates = tuple(Candidate(self.evaluators[i], depth) for i, chosen in enumerate(depths) for depth in chosen)
        choice = self._choice(context, candidates, depths)
        if choice.step > 0 and self.return_weight > 0 and bool(choice.return_errors.isnan().all()):
            warn(_NO_RETURNS, RuntimeWarning, stacklevel=2)
        used = {owner for owner, weight in zip(owners, choice.weights.tolist(), strict=True) if weight > 0}
        for i, each in enumerate(fitted):  # warnings of what has no weight are of no concern
            for warning in each.caught if each is not None and i in used else []:
                warn(warning, stacklevel=2)
        return AdaptiveValueFunction(context, parts, owners, choice)

    def _depths(self, part: ValueFunction | None) -> list[int]:
        """Depths of one evaluator's candidates, the greatest first; none if it diverged."""
        return [] if part is None else sorted({min(depth, part.depth) for depth in self.depths}, reverse=True)

    def _choice(self, context: Context, candidates: tuple[Candidate, ...], depths: Sequence[Sequence[int]]) -> Choice:
        left_out = folds(context, self.max_folds)
        if len(left_out) < FEWEST_FOLDS:
            plural = "y" if len(left_out) == 1 else "ies"
            found = f"{len(left_out)} trajector{plural}, {FEWEST_FOLDS} at least are needed to choose"
            return default_choice(candidates, found)
        bank = [(each, chosen) for each, chosen in zip(self.evaluators, depths, strict=True) if chosen]
        with torch.no_grad():
            errors = held_out_errors([each for each, _ in bank], [chosen for _, chosen in bank], context, left_out)
        return choose(candidates, errors, self.caution, self.return_weight)


def _check_real(name: str, value: object) -> None:
    with contextlib.suppress(OverflowError):  # of an integer beyond the largest float
        if isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < float("inf"):
            return
    raise ValueError(f"{name}: expected a finite number ≥ 0, got {value!r}.")


def _integer(value: object, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
