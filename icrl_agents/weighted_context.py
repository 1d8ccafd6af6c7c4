"""Contexts whose equal states are kept once: n transitions over D distinct states act as D weighted ones, exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from icrl_agents.arrays import differentiated, take_rows
from icrl_agents.context import Context
from icrl_agents.distinct import Groups, fill_rows, group_labels, group_rows
from icrl_agents.magnitudes import widened

SMALLEST = 128
"""Shorter contexts are not searched for equal states: their kernel matrix costs less than the search."""
WORTHWHILE = 0.9
"""The share of distinct points below which a context is compressed."""


class WeightedContext:
    """D distinct states with their number of visits and the means over them, of a context or of each of a batch.

    Transitions that leave one state have the same row and column in every attention over states, so that they send
    one message together: its mean, with their number as its weight.

    Args:
        points: The distinct points, those that transitions leave first, ``(*batch, D′, d)``.
        counts: Number of transitions from each, c, ``(*batch, D)``; 0 in the padding.
        rewards: Mean reward of each, ``(*batch, D)``.
        source: Index of x_k into the points, ``(*batch, n)``.
        target: Index of x′_k into the points, ``(*batch, n)``.
        discounts: γ_k, ``(*batch, n)``; 0 in the padding.
    """

    def __init__(
        self, points: Tensor, counts: Tensor, rewards: Tensor, source: Tensor, target: Tensor, discounts: Tensor
    ) -> None:
        self.points, self.counts, self.rewards, self.mask = points, counts, rewards, counts > 0
        self._source, self._target = source, target
        self._shares = widened(discounts) / counts.clamp(min=1.0).gather(-1, source)  # of which n may be summed
        self._routing = self.routing() if len(self) * points.shape[-2] <= 4 * source.shape[-1] else None

    def __len__(self) -> int:
        """Number of distinct states D, padding included."""
        return self.counts.shape[-1]

    @property
    def states(self) -> Tensor:
        """The states that transitions leave, ``(*batch, D, d)``."""
        return self.points[..., : len(self), :]

    def bootstrap(self, values: Tensor) -> Tensor:
        """Mean of γ_k v(x′_k) over the visits of each state, ``(*batch, D)``.

        Args:
            values: v at the points, and perhaps elsewhere, ``(*batch, D′ + …)``.
        """
        if self._routing is not None:
            return (self._routing @ values[..., : self.points.shape[-2], None])[..., 0]
        bootstrapped = self._shares * values.gather(-1, self._target)
        sums = self._shares.new_zeros(self.counts.shape).scatter_add(-1, self._source, bootstrapped)
        return sums.to(self.rewards)

    def td_errors(self, values: Tensor) -> Tensor:
        """Mean TD error of the visits of each state, r̄ + mean γ_k v(x′_k) − v(x), ``(*batch, D)``; 0 in the padding."""
        return (self.rewards + self.bootstrap(values) - values[..., : len(self)]).masked_fill(~self.mask, 0.0)

    def routing(self) -> Tensor:
        """Γ(s, s′): mean over the visits of s of γ_k 1{x′_k = s′}, ``(*batch, D, D′)``."""
        width = self.points.shape[-2]
        cells = self._shares.new_zeros((*self.counts.shape[:-1], len(self) * width))
        sums = cells.scatter_add(-1, self._source * width + self._target, self._shares)
        return sums.unflatten(-1, (-1, width)).to(self.rewards)

    def routed(self, rows: Tensor) -> Tensor:
        """Γ rows, ``(*batch, D, k)``, of rows at the points, ``(*batch, D′, k)``."""
        if self._routing is not None:
            return self._routing @ rows
        sent = self._shares[..., None] * take_rows(rows, self._target)
        received = sent.new_zeros((*rows.shape[:-2], len(self), rows.shape[-1]))
        return received.scatter_add(-2, self._source[..., None].expand(sent.shape), sent).to(rows)


Transitions = Context | WeightedContext


def weighted(context: Context, *, always: bool = False) -> Transitions:
    """Returns ``context`` with its equal states kept once, or as it is where that would gain nothing.

    A padded context is always rewritten: its padding goes to states of its own. States through which a gradient is
    taken are kept apart, since equal ones have gradients of their own.

    Args:
        context: The context.
        always: Whether to compress it however short it is, and however few of its states are equal.
    """
    if len(context) == 0 or not bool(context.mask.any()):
        return context
    padded = not bool(context.mask.all())
    if not (always or padded or len(context) >= SMALLEST):
        return context
    points = read_points(context)
    groups = _apart(context) if differentiated(points) else group_rows(points)
    if not (always or padded) and groups.first.shape[-1] > WORTHWHILE * points.shape[-2]:
        return context
    return _means(context, points, groups)


def read_points(context: Context) -> Tensor:
    """The context's points ``(*batch, n + e, d)``, its padding replaced by copies of a state of its own."""
    if bool(context.mask.all()) and context.mask.ndim == 1:
        return context.points
    return fill_rows(context.points, _read(context))


def _read(context: Context) -> Tensor:
    """True for the points that some transition leaves or reaches, ``(*batch, n + e)``."""
    finals = context.points.shape[-2] - len(context)
    used = torch.nn.functional.pad(context.mask, (0, finals))
    return used | torch.zeros_like(used).scatter(-1, context.successors, context.discounts > 0)


def _apart(context: Context) -> Groups:
    """Every point a group of its own, the padding with the point that it is a copy of."""
    read = _read(context).reshape(-1, context.points.shape[-2])
    own = torch.arange(read.shape[-1], device=read.device)
    labels = torch.where(read, own, read.to(torch.int8).argmax(-1, keepdim=True))
    group, first, counts = group_labels(labels)
    batch = context.points.shape[:-2]
    return Groups(group.reshape(*batch, -1), first.reshape(*batch, -1), counts.reshape(batch))


def _means(context: Context, points: Tensor, groups: Groups) -> WeightedContext:
    n = len(context)
    source = groups.group[..., :n]
    left = (groups.first < n) & (torch.arange(groups.first.shape[-1], device=source.device) < groups.counts[..., None])
    size = int(left.sum(-1).max())
    earned, valid = widened(context.rewards), widened(context.mask.to(context.dtype))
    counts = valid.new_zeros((*valid.shape[:-1], size)).scatter_add(-1, source, valid)
    rewards = torch.zeros_like(counts).scatter_add(-1, source, earned) / counts.clamp(min=1.0)
    target = groups.group.gather(-1, context.successors)
    counts, rewards = counts.to(context.dtype), rewards.to(context.dtype)
    return WeightedContext(take_rows(points, groups.first), counts, rewards, source, target, context.discounts)
