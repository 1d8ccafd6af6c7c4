"""What a critic sees of states: standardised, and mapped to features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from icrl_agents.arrays import finite, floating
from icrl_agents.context import Context
from icrl_agents.magnitudes import near_power_of_two, resolution
from icrl_agents.pure import asked, check_held, depends_on_call, held, some_rows

Features = Callable[[Tensor], Tensor]


def standardising(context: Context, features: Features | None = None) -> Features:
    """Returns the map to states of mean 0 and standard deviation 1 over ``context``, then to ``features`` of them.

    A module keeps the weights that it has now.

    Raises:
        ValueError: If features of a state are others beside other states, or each time they are asked for.
    """
    states = context.states if len(context) > 0 else context.states.new_zeros(1, context.dim)
    largest = states.abs().amax(0)
    unit = near_power_of_two(largest)  # so that no square leaves the type's range
    scaled = states / unit
    mean, deviation = scaled.mean(0), scaled.std(0, correction=0)
    constant = (states == states[:1]).all(0) | (deviation <= resolution(states)[0] * largest / unit)
    unit = unit.masked_fill(constant, 1.0)
    scale = torch.where(constant, 0.0, 1.0 / deviation.masked_fill(constant, 1.0))

    standardised = _Standardised(unit, mean, scale)
    if features is None:
        return standardised
    kept = held(features) if isinstance(features, nn.Module) else features
    _check_each_row(kept, standardised(states))
    return replace(standardised, features=kept)


@dataclass(frozen=True, eq=False)
class _Standardised:
    """The features of (x / unit − mean) · scale, by default that itself; of no function inside, so it is pickled."""

    unit: Tensor
    mean: Tensor
    scale: Tensor
    features: Features | None = None

    def __call__(self, states: Tensor) -> Tensor:
        standardised = (states / self.unit - self.mean) * self.scale
        return standardised if self.features is None else self.features(standardised)


@torch.no_grad()
def _check_each_row(features: Features, states: Tensor) -> None:
    some, few = some_rows(states)
    found = [asked("features", features, rows.clone()) for rows in (few, few, some)]  # which may be written into
    if any(not isinstance(rows, Tensor) or len(rows) < len(few) for rows in found):
        return  # for ``mapped`` to refuse
    if depends_on_call(found[0], found[1], found[2][: len(few)]):
        raise ValueError(
            "features: gives the same states other features beside other states, or each time it is asked, as with "
            "batch or spectral normalisation or dropout in training, or with states standardised by the batch; "
            "expected a function of each row. Call its eval()."
        )
    if isinstance(features, nn.Module):
        check_held("features", features, few.clone())


def mapped(context: Context, features: Features) -> Context:
    """Returns ``context`` with each state x replaced by ``features(x)``; raises ValueError if those are no rows."""
    points = features(context.points)
    if not isinstance(points, Tensor) or points.ndim != 2 or len(points) != len(context.points):
        got = tuple(points.shape) if isinstance(points, Tensor) else type(points).__name__
        raise ValueError(f"features: expected a tensor ({len(context.points)}, f), a row for each state, got {got}.")
    own = torch.arange(len(context), device=context.device)
    following = torch.where(context.contiguous, own + 1, context.successors)
    return Context(
        points[: len(context)],
        context.rewards,
        context.discounts,
        points[following],
        contiguous=context.contiguous,
    )


def quadratic_features(states: Tensor) -> Tensor:
    """All products 1, x_i and x_i x_j with i ≤ j of states ``(m, d)``, shape ``(m, 1 + d + d(d+1)/2)``.

    With them, ``LSTD`` fits a quadratic value.

    Raises:
        TypeError: If ``states`` are no floating numbers.
        ValueError: If they are no rows, or a product is not finite.
    """
    states = floating("states", states)
    if states.ndim == 0:
        raise ValueError("states: expected shape (m, d), got a single number.")
    d = states.shape[-1]
    i, j = torch.triu_indices(d, d, device=states.device)
    features = torch.cat([torch.ones_like(states[..., :1]), states, states[..., i] * states[..., j]], dim=-1)
    finite("states", features, " whose products are finite")
    return features


def check_features(features: Any) -> Any:  # noqa: ANN401 - checked here
    """Returns ``features`` if they are a function or None; raises TypeError otherwise."""
    if features is not None and not callable(features):
        raise TypeError(f"features: expected a callable (m, d) -> (m, f) or None, got {features!r}.")
    return features
