"""The critic of an actor-critic: any evaluator, fitted anew on every batch."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from icrl_agents.arrays import check_kind
from icrl_agents.checked import Checked
from icrl_agents.context import Context, check_context
from icrl_agents.control.advantages import are_rounding, generalised_advantages
from icrl_agents.control.features import Features, check_features, mapped, standardising
from icrl_agents.divergence import DivergenceError, DivergenceWarning
from icrl_agents.eligibility import check_lambda
from icrl_agents.machine import check_device
from icrl_agents.notices import hearing, warn
from icrl_agents.value_function import Evaluator, ValueFunction, check_discounted
from icrl_envs import arguments


@dataclass(frozen=True, eq=False)
class Assessment:
    """What a critic makes of a batch of n transitions.

    Args:
        values: v(x_k), shape ``(n,)``.
        advantages: A_k, shape ``(n,)``.
    """

    values: Tensor
    advantages: Tensor

    @property
    def returns(self) -> Tensor:
        """The λ-returns A_k + v(x_k), shape ``(n,)``."""
        return self.advantages + self.values


class Critic:
    """Values and advantages from an evaluator that is fitted on the last batches, without a weight update.

    States are standardised, dimension by dimension, by the mean and standard deviation of the context, so that one
    length scale serves environments of any units; a constant dimension becomes 0.

    On a batch of fresh transitions at γ near 1, sweeps often do not quite contract. The critic is their value after a
    few of them, so that this is counted instead of warned of; values that no policy could have remain an error. At
    γ = 1 nothing bounds them, and the first such warning is passed on.

    Args:
        evaluator: Anything with ``fit(context)``: an algorithm, a closed form, a transformer.
        gae_lambda: λ in [0, 1] of the advantages.
        window: Number of batches that the context holds: 1 for the last one alone. Older ones come from older
            policies, so that the value lags behind, but it rests on more transitions. Where γ changes, as by a
            schedule, those of the γ before are left out.
        features: From standardised states ``(m, d)`` to features ``(m, f)``, row by row; default the states. A module
            is kept with the weights that it has at the fit.
        device: Torch device of the evaluator: cpu, cuda, cuda:1, …; by default that of each batch. What comes out is
            where the batch is, on any device.

    Raises:
        TypeError: If ``evaluator`` has no ``fit`` or ``features`` cannot be called.
        ValueError: If a number is out of range, or the device is not there.

    Attributes:
        divergences: On how many batches the evaluator warned that its sweeps do not contract; one of one's own does by
            ``icrl_agents.notices.warn`` with ``DivergenceWarning``, whatever other threads do.
        source: What says which environment the batches are of, for its user to compare; saved along, and not read.

    Example:
        >>> from icrl_agents.evaluators import TabularTD
        >>> critic = Critic(TabularTD(num_sweeps=1), gae_lambda=0.0)
        >>> critic.assess(Context([[0.0], [1.0]], [1.0, 3.0], [0.9, 0.0], [[1.0], [2.0]])).values
        tensor([1., 3.], dtype=torch.float64)
    """

    evaluator = Checked(lambda _, given: check_evaluator(given))
    gae_lambda = Checked(lambda _, given: check_lambda(given))
    window = Checked(lambda name, given: arguments.integer(name, given, 1))
    features: Checked[Features | None] = Checked(lambda _, given: check_features(given))
    device = Checked(lambda _, given: _check_device(given))

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        gae_lambda: float = 0.95,
        window: int = 1,
        features: Features | None = None,
        device: str | None = None,
    ) -> None:
        self.evaluator, self.gae_lambda, self.window = evaluator, gae_lambda, window
        self.features, self.device = features, device
        self._batches: deque[Context] = self._window([])
        self._gamma: float | None = None
        self._fitted: tuple[Features, ValueFunction] | None = None
        self.divergences = 0
        self.source: dict[str, list[str]] = {}

    def assess(self, batch: Context) -> Assessment:
        """Fits the evaluator on ``batch`` and the batches before it in the window; returns what it makes of it.

        After an error the critic is as it was before. Padding is left out, and its values and advantages are 0. So are
        all advantages where TD errors are no more than rounding, as of an evaluator that solves its context; that is
        warned of, since an actor would follow chance. Where they may be rounding of float32 alone, the evaluator is
        fitted in double precision too, and advantages are from there.

        Raises:
            DivergenceError: If the evaluator diverges.
            ValueError: If ``batch`` has batch dimensions, or ``features`` gives another number of rows, or a row that
                depends on the others or on the call; or if the evaluator's values are differential.
        """
        check_context(batch)
        if batch.rewards.ndim != 1:
            raise ValueError(f"batch: expected one without batch dimensions, got shape {tuple(batch.rewards.shape)}.")
        own = Context.concatenate([batch])  # without padding, and a copy of what may be written into
        gamma = _gamma_of([own], self._gamma)
        batches = self._window([*(self._batches if self._is_known(gamma, own) else ()), own])
        fitted, diverged = self._refitted(batches)
        values = self._values(fitted, batch.points)
        advantages = generalised_advantages(batch, values, self.gae_lambda)
        if are_rounding(batch.td_errors(values), values, batch.rewards):
            advantages = self._beyond_rounding(batches, batch)
        if advantages is None:
            advantages = torch.zeros_like(batch.rewards)
            warn(
                "evaluator: TD errors of this batch are 0 but for rounding, so that there is no advantage in it, and "
                "all of them are 0: as where each state is seen once, and values are the limit of all sweeps or single "
                "returns, or where rewards differ by no more than their offset rounds. Take fewer sweeps, a wider "
                "kernel or a ridge; subtract the offset.",
                RuntimeWarning,
                stacklevel=2,
            )
        self._batches, self._fitted, self._gamma = batches, fitted, gamma
        self.divergences += diverged
        return Assessment(values[: len(batch)].masked_fill(~batch.mask, 0.0), advantages)

    def _beyond_rounding(self, batches: Iterable[Context], batch: Context) -> Tensor | None:
        """Advantages of float32 that may be rounding, as double precision has them; None if they are rounding there."""
        if batch.dtype == torch.float64:
            return None
        try:
            wide = batch.to(dtype=torch.float64)
            with hearing():  # it was all told in the first fit
                fitted, _ = self._refitted(self._window(each.to(dtype=torch.float64) for each in batches))
                values = self._values(fitted, wide.points)
        except (RuntimeError, TypeError, ValueError, DivergenceError):  # features, a kernel or a device of float32
            return None
        rounding = are_rounding(wide.td_errors(values), values, wide.rewards)
        return None if rounding else generalised_advantages(wide, values, self.gae_lambda).to(batch.dtype)

    def _is_known(self, gamma: float | None, batch: Context) -> bool:
        """Whether γ is that of the window, but for how another floating type rounds it."""
        if gamma is None or self._gamma is None or gamma == self._gamma:
            return True
        return batch.dtype != self._batches[-1].dtype and math.isclose(gamma, self._gamma, rel_tol=1e-7)

    def forget(self) -> None:
        """Empties the window, for batches of another environment: values are 0 again until the next one."""
        self._batches, self._fitted, self._gamma = self._window([]), None, None

    def _window(self, batches: Iterable[Context]) -> deque[Context]:
        """The last of some batches, on the critic's device."""
        here = (batch if self.device is None else batch.to(self.device) for batch in batches)
        return deque(here, maxlen=self.window)

    def _refitted(self, batches: deque[Context]) -> tuple[tuple[Features, ValueFunction], bool]:
        """What ``_values`` takes, and whether the evaluator warned that its sweeps do not contract."""
        context = batches[0] if len(batches) == 1 else Context.concatenate(batches)
        features = standardising(context, self.features)
        with hearing() as caught:
            value = self.evaluator.fit(mapped(context, features))
        check_discounted("evaluator", value)
        diverged = False
        for warning in caught:
            diverges = isinstance(warning, DivergenceWarning)
            first, diverged = diverges and not diverged and self.divergences == 0, diverged or diverges
            if not diverges or (first and float(context.discounts.max()) == 1.0):
                warn(warning, stacklevel=3)
        return (features, value), diverged

    def state_dict(self) -> dict[str, Any]:
        """The batches of the window, all that a fit needs, divergences and source: tensors, numbers and strings."""
        names = ("states", "rewards", "discounts", "next_states", "contiguous")
        batches = [{name: getattr(batch, name) for name in names} for batch in self._batches]
        return {"batches": batches, "divergences": self.divergences, "source": self.source}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Takes over what ``state_dict`` gave, and fits the evaluator on it again, so that values are the same.

        Args:
            state: Of a critic with the same evaluator and features.
            strict: Of no effect; every part is needed.

        Raises:
            DivergenceError: If the evaluator diverges.
        """
        given = [Context(**batch) for batch in state["batches"]]
        batches = self._window(given)
        self._fitted = self._refitted(batches)[0] if batches else None
        self._batches, self._gamma = batches, _gamma_of(given, None)
        self.divergences, self.source = int(state["divergences"]), dict(state.get("source", {}))

    def __call__(self, states: Tensor) -> Tensor:
        """Values of ``states (m, d)`` by the last fit, ``(m,)``; 0 before the first.

        Raises:
            ValueError: If they have another dimension than the states of the fit.
        """
        if self._fitted is None:
            return states.new_zeros(states.shape[:-1])
        if states.shape[-1] != self._batches[-1].dim:
            raise ValueError(f"states: expected shape (m, {self._batches[-1].dim}), got {tuple(states.shape)}.")
        return self._values(self._fitted, states)

    def _values(self, fitted: tuple[Features, ValueFunction], states: Tensor) -> Tensor:
        features, value = fitted
        there = states if self.device is None else states.to(self.device)
        values = value(features(there))
        check_kind("evaluator: values", values, Tensor)
        return values.to(states.device)


def _gamma_of(batches: Iterable[Context], before: float | None) -> float | None:
    """The γ > 0 of the last batch that has one alone; ``before`` where none has."""
    for batch in batches:
        found = batch.discounts[batch.discounts > 0].unique()
        before = float(found) if len(found) == 1 else before
    return before


def _check_device(device: Any) -> str | None:  # noqa: ANN401 - checked here
    if device is not None:
        check_device(device)
    return device


def check_evaluator(evaluator: Evaluator) -> Evaluator:
    """Returns ``evaluator`` if it has ``fit``; raises TypeError otherwise."""
    if isinstance(evaluator, type) or not callable(getattr(evaluator, "fit", None)):
        raise TypeError(
            "evaluator: expected an object with fit(context), such as evaluators.LSTD() or "
            f"constructions.weighted_softmax_td(...), got {evaluator!r}."
        )
    return evaluator
