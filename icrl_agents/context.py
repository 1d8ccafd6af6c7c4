"""Contexts: the transitions from which an evaluator infers a value function."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from icrl_agents.arrays import (
    FLOATING,
    boolean,
    check_list,
    differentiated,
    finite,
    floating,
    front_rows,
    no_flags,
    rounded_discounts,
    same_shape,
    take_rows,
)
from icrl_agents.distinct import odd_factors
from icrl_agents.episode import Episode, episode_arrays, warn_of_one
from icrl_agents.links import (
    are_rows_of_one,
    equal_links,
    near_links,
    warn_of_flags,
    warn_of_rounding,
    warn_of_two_types,
)
from icrl_agents.machine import check_device
from icrl_agents.magnitudes import widened
from icrl_agents.pure import deep_copied

_AT_ONCE = 65_536
"""Numbers that a checksum reads at once: so few that they stay in a processor's cache."""


class Context:
    """A context of ``n`` transitions (x_k, R_k, γ_k, x′_k), or a batch of such contexts.

    Termination is γ_k = 0: x′_k is then never read, not even if it is NaN. Truncation keeps γ_k = γ and
    bootstraps from the true final observation. Inputs of different floating types are promoted to the
    widest, so nothing is rounded; Python floats and float64 arrays give a float64 context.

    States are kept once: along a trajectory the next state of transition k *is* the state of transition
    k + 1, and only the final observations are stored beside the states, in ``points``.

    Args:
        states: x_k, shape ``(*batch, n, d)``.
        rewards: R_k, shape ``(*batch, n)``.
        discounts: γ_k in [0, 1], shape ``(*batch, n)``.
        next_states: x′_k, shape ``(*batch, n, d)``.
        mask: True for transitions, False for padding, shape ``(*batch, n)``; default all True. What the
            padding holds is never read.
        contiguous: True where transition k + 1 continues the trajectory of transition k, shape
            ``(*batch, n)``; by default wherever ``next_states[k]`` equals ``states[k + 1]`` exactly and γ_k > 0
            (or all γ are 0). Only eligibility traces, Monte-Carlo returns and what tells trajectories apart, such
            as ``AdaptiveTD``, depend on it. Where the two differ by rounding, as of an encoder that is asked for
            both, it may be told to be True; a default of False is warned of.

    Raises:
        TypeError: If an array is neither float32, float64 nor integer-valued rewards or discounts; or if discounts
            are booleans, such as flags of ends.
        ValueError: If shapes disagree, a discount lies outside [0, 1], or something that would be read is
            not finite.

    Attributes:
        points: The states, then the final observations that are bootstrapped from, ``(*batch, n + e, d)``.
        successors: Index into ``points`` of x′_k, ``(*batch, n)``; k itself where γ_k = 0.

    Example:
        >>> context = Context([[0.0], [1.0]], rewards=[1.0, 2.0], discounts=[0.9, 0.0], next_states=[[1.0], [9.0]])
        >>> len(context), context.dtype, tuple(context.points.shape)
        (2, torch.float64, (2, 1))
    """

    points: Tensor
    rewards: Tensor
    discounts: Tensor
    successors: Tensor
    mask: Tensor

    def __init__(
        self,
        states: Any,  # noqa: ANN401 - tensors, NumPy arrays, nested lists
        rewards: Any,  # noqa: ANN401
        discounts: Any,  # noqa: ANN401
        next_states: Any,  # noqa: ANN401
        mask: Any = None,  # noqa: ANN401
        contiguous: Any = None,  # noqa: ANN401
    ) -> None:
        warn_of_one("states", states, (np.ndarray, Tensor), stacklevel=2)
        x = floating("states", states)
        x_next = floating("next_states", next_states)
        rewards = floating("rewards", rewards, integers=True)
        discounts = floating("discounts", no_flags("discounts", discounts), integers=True)
        dtype = x.dtype
        for other in (x_next, rewards, discounts):
            dtype = torch.promote_types(dtype, other.dtype)
        x, x_next, rewards, discounts = (t.to(x.device, dtype) for t in (x, x_next, rewards, discounts))
        if x.ndim < 2 or x.shape[-1] == 0:
            raise ValueError(f"states: expected shape (n, d) or (*batch, n, d) with d ≥ 1, got {tuple(x.shape)}.")
        if 0 in x.shape[:-2]:
            raise ValueError(f"states: expected one context at least in the batch, got shape {tuple(x.shape)}.")
        same_shape("next_states", x_next, x.shape)
        same_shape("rewards", rewards, x.shape[:-1])
        same_shape("discounts", discounts, x.shape[:-1])
        valid = torch.ones_like(rewards, dtype=torch.bool) if mask is None else boolean("mask", mask, rewards)

        shared = not differentiated(x, x_next) or are_rows_of_one(x, x_next)  # else each has a derivative of its own
        rewards, discounts = rewards.masked_fill(~valid, 0.0), discounts.masked_fill(~valid, 0.0)
        x = x.masked_fill(~valid[..., None], 0.0)
        _in_range(discounts)
        read = discounts > 0
        finite("states", x)
        finite("rewards", rewards)
        finite("next_states", x_next.masked_fill(~read[..., None], 0.0), " (of a transition with γ > 0)")

        equal, followed, told = equal_links(x, x_next, valid), torch.zeros_like(valid), False
        followed[..., :-1] = valid[..., :-1] & valid[..., 1:]
        if contiguous is None:
            may_continue = read | ~read.any(-1, keepdim=True)
            linked = equal & may_continue
            warn_of_flags(equal, discounts, valid)
            told = warn_of_rounding(x, x_next, followed & ~equal & may_continue, linked)
        else:
            linked = boolean("contiguous", contiguous, rewards) & valid
            linked[..., -1:] = False
            apart = linked & ~equal
            if bool((apart & ~near_links(x, x_next, apart & followed, columns=False)).any()):
                raise ValueError(
                    "contiguous: True where next_states[k] differs from states[k + 1]; expected them equal."
                )
        self.rewards, self.discounts, self.mask = rewards, discounts, valid
        self._padding = None if bool(valid.all()) else ~valid
        self.contiguous = linked
        self._arrange(x, x_next, linked & equal & shared)
        if not told:
            warn_of_two_types(self.points)

    def _arrange(self, x: Tensor, x_next: Tensor, shared: Tensor) -> None:
        """Keeps each state once, and the next states of ``shared (*batch, n)`` transitions as the states they are."""
        read = self.discounts > 0
        self._shared = shared
        self._terminal = front_rows(x_next, self.mask & ~read & ~shared)
        bootstrapped = read & ~shared
        self.points = torch.cat([x, front_rows(x_next, bootstrapped)], dim=-2)
        n = len(self)
        own = torch.arange(n, device=x.device).expand_as(self.rewards)
        final = n + bootstrapped.cumsum(-1) - 1
        self.successors = torch.where(bootstrapped, final, torch.where(read, own + 1, own))
        self._arranged = _checksum(self.points)

    @classmethod
    def from_episodes(cls, episodes: Sequence[Episode], gamma: float) -> Context:
        """Returns the context of all transitions of ``episodes``, in order; it is float64, as rewards and γ are.

        Args:
            episodes: At least one episode, all with the same observation dimension.
            gamma: Discount γ in [0, 1] of every transition that does not terminate.

        Raises:
            TypeError: If something is not an Episode or its observations are not float32 or float64.
            ValueError: Naming the episode (and the step) if an episode has T instead of T + 1 observations,
                or holds NaN or inf where it would be read; or if ``gamma`` lies outside [0, 1].
        """
        gamma = _discount(gamma)
        check_list("episodes", episodes, Episode, "; an empty context needs Context(...)")
        arrays = [episode_arrays(i, episode) for i, episode in enumerate(episodes)]
        dim = arrays[0][0].shape[-1]
        for i, (observations, _) in enumerate(arrays):
            if observations.shape[-1] != dim:
                raise ValueError(
                    f"episode {i}: expected observations (T+1, {dim}) as in episode 0, got {tuple(observations.shape)}."
                )
        discounts = [torch.full_like(rewards, gamma) for _, rewards in arrays]
        for episode, discount in zip(episodes, discounts, strict=True):
            if episode.terminated:
                discount[-1:] = 0.0
        return cls(
            torch.cat([observations[:-1] for observations, _ in arrays]),
            torch.cat([rewards for _, rewards in arrays]),
            torch.cat(discounts),
            torch.cat([observations[1:] for observations, _ in arrays]),
            contiguous=torch.cat([torch.arange(len(d), device=d.device) < len(d) - 1 for d in discounts]),
        )

    @classmethod
    def from_minari(cls, dataset: Any, gamma: float) -> Context:  # noqa: ANN401 - Minari need not be there
        """Returns the context of all transitions of a Minari dataset (extra ``[minari]``), as ``from_episodes`` does.

        Args:
            dataset: A ``minari.MinariDataset``, or the id of one that is on this machine.
            gamma: Discount γ in [0, 1] of every transition that does not terminate.

        Raises:
            ImportError: If Minari is not installed, with the line that installs it.
            FileNotFoundError: If no dataset of that id is on this machine.
            TypeError: If ``dataset`` is neither, or its observations do not flatten to vectors of numbers.
            ValueError: If its observations are pixels, an episode goes on after it has ended, or as in
                ``from_episodes``.
        """
        from icrl_agents.datasets.minari import minari_episodes

        return cls.from_episodes(minari_episodes(dataset), gamma)

    @classmethod
    def concatenate(cls, contexts: Sequence[Context]) -> Context:
        """Returns one context holding the transitions of all ``contexts`` (no batch dimensions), in order."""
        _check_contexts(contexts)
        parts = [
            [getattr(c, name)[c.mask] for c in contexts]
            for name in ("states", "rewards", "discounts", "next_states", "contiguous", "_shared")
        ]
        s, r, g, s_next, linked, shared = (torch.cat(part) for part in parts)
        return cls(s, r, g, s_next, contiguous=linked)._sharing(s_next, shared)

    @classmethod
    def stack(cls, contexts: Sequence[Context], padding: str = "right") -> Context:
        """Returns a batch ``(B, n_max)`` of contexts, shorter ones padded and masked.

        Args:
            contexts: B contexts without batch dimensions, of any lengths and one dimension d.
            padding: Side of the padding, ``"right"`` or ``"left"``; values do not depend on it.

        Raises:
            ValueError: If there is no context, one has batch dimensions, or ``padding`` is unknown.
        """
        _check_contexts(contexts)
        if padding not in ("right", "left"):
            raise ValueError(f"padding: expected 'right' or 'left', got {padding!r}.")
        length = max(len(c) for c in contexts)

        def padded(name: str) -> Tensor:
            columns = []
            for context in contexts:
                column = getattr(context, name)
                gap = column.new_zeros((length - len(context), *column.shape[1:]))
                columns.append(torch.cat([column, gap] if padding == "right" else [gap, column]))
            return torch.stack(columns)

        s, r, g, s_next = (padded(name) for name in ("states", "rewards", "discounts", "next_states"))
        return cls(s, r, g, s_next, padded("mask"), padded("contiguous"))._sharing(s_next, padded("_shared"))

    def _sharing(self, x_next: Tensor, shared: Tensor) -> Self:
        """Returns the context, its next states sharing states where those that it was made of did."""
        if not torch.equal(shared, self._shared):
            self._arrange(self.states, x_next.to(self.points), shared)
        return self

    def __len__(self) -> int:
        """Number of transitions n, padding included."""
        return self.rewards.shape[-1]

    def __deepcopy__(self, known: dict[int, Any]) -> Self:
        """A copy whose gradients are those of the original."""
        return deep_copied(self, known)

    def __repr__(self) -> str:
        """Shape, type and device in one line."""
        shape = (*self.rewards.shape, self.dim)
        return f"Context(shape={shape}, dtype={self.dtype}, device='{self.device}')"

    def fitted(self) -> Self:
        """Returns what a fit keeps of it: a copy, but for the points, of which it is known if they are written into."""
        kept = copy.copy(self)
        kept.rewards, kept.discounts, kept.mask = self.rewards.clone(), self.discounts.clone(), self.mask.clone()
        return kept

    @property
    def states(self) -> Tensor:
        """States x_k, ``(*batch, n, d)``."""
        return self.points[..., : len(self), :]

    @property
    def next_states(self) -> Tensor:
        """Next states x′_k, ``(*batch, n, d)``, assembled anew at each call.

        Raises:
            ValueError: If states were written into: some of these are the states that follow, and some are others.
        """
        _refuse(_states_written(self))
        own = torch.arange(len(self), device=self.device)
        gathered = take_rows(self.points, torch.where(self._shared, own + 1, self.successors))
        if self._terminal.shape[-2] == 0:
            return gathered
        terminal = self.mask & ~self._shared & (self.successors == own)
        rank = (terminal.cumsum(-1) - 1).clamp(min=0)
        return torch.where(terminal[..., None], take_rows(self._terminal, rank), gathered)

    @property
    def dim(self) -> int:
        """State dimension d."""
        return self.points.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """Floating type of everything in the context."""
        return self.points.dtype

    @property
    def device(self) -> torch.device:
        """Device of everything in the context."""
        return self.points.device

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Returns the context on ``device`` and in ``dtype``, torch.float32 or torch.float64.

        Raises:
            TypeError: If ``dtype`` is another one.
            ValueError: If a state or reward is too large for ``dtype``, all of them are too small, a discount would
                be rounded to 1, or ``device`` is not there.
        """
        if isinstance(device, str) and not device.startswith("meta"):  # which holds shapes and cannot compute
            check_device(device)
        elif device is not None and not isinstance(device, (str, torch.device)):
            raise TypeError(f"device: expected a torch device or its name, such as 'cpu', got {device!r}.")
        if dtype is not None and dtype not in FLOATING:
            raise TypeError(f"dtype: expected torch.float32 or torch.float64, got {dtype}.")
        rounded_discounts(self.discounts, dtype)
        _check_unchanged(self)
        moved = object.__new__(type(self))
        for name, value in vars(self).items():
            kept = not isinstance(value, Tensor) or not value.is_floating_point()
            setattr(moved, name, value.to(device, None if kept else dtype) if isinstance(value, Tensor) else value)
        moved._arranged = _checksum(moved.points)
        for name, before, after in (
            ("states", self.points, moved.points),
            ("rewards", self.rewards, moved.rewards),
        ):
            finite(name, after, f" in {dtype}")
            if bool((after.abs() < torch.finfo(after.dtype).tiny).all()) and bool(before.any()):
                raise ValueError(f"{name}: all of them are too small for {dtype}; scale them up, or keep {self.dtype}.")
        return moved

    def td_errors(self, values: Tensor) -> Tensor:
        """Temporal-difference errors δ_k = R_k + γ_k v(x′_k) − v(x_k), zero in the padding.

        Args:
            values: v at ``points``, shape ``(*batch, n + e)``.

        Returns:
            δ, shape ``(*batch, n)``.

        Raises:
            TypeError: If ``values`` is no tensor of floating-point numbers.
            ValueError: If ``values`` has another shape.
        """
        n = len(self)
        if not isinstance(values, Tensor):
            raise TypeError(f"values: expected a tensor, v at the context's points, got {type(values).__name__}.")
        if not values.is_floating_point():
            raise TypeError(f"values: expected floating-point numbers, got {values.dtype}.")
        shape = self.points.shape[:-1]
        if values.shape[-len(shape) :] != shape:
            raise ValueError(
                f"values: expected v at the context's points, shape (..., {', '.join(map(str, shape))}), "
                f"got {tuple(values.shape)}."
            )
        successors = self.successors if values.ndim == 1 else self.successors.expand(*values.shape[:-1], n)
        bootstrap = torch.gather(values, -1, successors)
        errors = torch.addcmul(self.rewards, self.discounts, bootstrap).sub_(values[..., :n])
        return errors if self._padding is None else errors.masked_fill(self._padding, 0.0)

    def returns(self) -> tuple[Tensor, Tensor]:
        """Monte-Carlo returns G_k = R_k + γ_k G_{k+1} along each trajectory, and how much of them was seen.

        Returns:
            The returns, ``(*batch, n)``, which take nothing beyond a truncation, and the number of rewards
            in each, ``(*batch, n)``: infinite where the trajectory terminates, so that nothing is missing.

        Raises:
            ValueError: If one of them overflows.
        """
        linked = self.contiguous.to(self.rewards)
        returns = _summed_ahead(widened(self.rewards), widened(self.discounts * linked)).to(self.rewards)
        finite("rewards", returns, " whose sums along a trajectory are finite")
        tails = _summed_ahead(torch.ones_like(self.rewards), linked)
        terminal = _summed_ahead((self.discounts == 0).to(self.rewards), linked)
        tails = tails.masked_fill(terminal > 0, float("inf"))
        return returns.masked_fill(~self.mask, 0.0), tails.masked_fill(~self.mask, 0.0)


def _summed_ahead(terms: Tensor, decay: Tensor) -> Tensor:
    """s_k = terms_k + decay_k s_{k+1}, ``(*batch, n)``, by doubling, in log₂ n steps; each doubles rounding."""
    span = 1
    while span < terms.shape[-1] and bool(decay.any()):
        terms = terms + (decay * _ahead(terms, span)).masked_fill(decay == 0, 0.0)  # of what overflows too
        decay = decay * _ahead(decay, span)
        span *= 2
    return terms


def _ahead(numbers: Tensor, steps: int) -> Tensor:
    """Number k becomes number k + ``steps``, 0 where there is none."""
    return torch.nn.functional.pad(numbers[..., steps:], (0, steps))


def _discount(gamma: float) -> float:
    if isinstance(gamma, bool) or not isinstance(gamma, Real) or not 0 <= gamma <= 1:
        raise ValueError(f"gamma: expected a discount in [0, 1], a plain number, got {gamma!r}.")
    return float(gamma)


def check_context(context: Context, *, arranged: bool = True) -> None:
    """Asks of what is to be fitted on whether it is a context, and still the one that was made.

    Args:
        context: Perhaps one.
        arranged: Whether what was written into it matters; a fit that is over keeps what it has taken.

    Raises:
        TypeError: If ``context`` is no Context, saying how to make one, or would be rounded.
        ValueError: If something was written into it that another arrangement of its points would go with, or that no
            context may hold.
    """
    if not isinstance(context, Context):
        raise TypeError(
            f"context: expected a Context, got {type(context).__name__}; Context.from_episodes(episodes, gamma) makes "
            "one of episodes, Context.stack(contexts) a batch of several."
        )
    if context.dtype == torch.float32 and torch.is_autocast_enabled(context.device.type):
        raise TypeError(
            f"context: torch.autocast would round {context.dtype} to {torch.get_autocast_dtype(context.device.type)}; "
            "call this within torch.autocast(..., enabled=False), or take a float64 context."
        )
    if arranged:
        _check_unchanged(context)


def _check_unchanged(context: Context) -> None:
    """Raises ValueError where points, mask or discounts are others than those that the context was arranged by.

    Rewards may be written into, and discounts but for those that were 0; rewards of the padding are 0 again.
    """
    for name, dtype in (("rewards", context.dtype), ("discounts", context.dtype), ("mask", torch.bool)):
        given = getattr(context, name)
        if not isinstance(given, Tensor) or given.dtype != dtype:
            got = given.dtype if isinstance(given, Tensor) else type(given).__name__
            raise TypeError(f"context: expected {name} that are a tensor of {dtype}, got {got}; make another context.")
    shape, own = context.successors.shape, torch.arange(context.successors.shape[-1], device=context.device)
    written = [name for name in ("rewards", "discounts", "mask") if getattr(context, name).shape != shape]
    if not written:
        valid = torch.ones_like(own, dtype=torch.bool) if context._padding is None else ~context._padding
        revived = (context.discounts > 0) & (context.successors == own)
        changed = {"mask": context.mask != valid, "discounts": revived}
        written = [name for name, where in changed.items() if bool(where.any())]
    _refuse(written + _states_written(context))
    _in_range(context.discounts)
    if context._padding is not None:
        context.rewards = context.rewards.masked_fill(context._padding, 0.0)
    finite("rewards", context.rewards)


def _states_written(context: Context) -> list[str]:
    return [] if _checksum(context.points) == context._arranged else ["states"]


def _refuse(written: list[str]) -> None:
    if written:
        raise ValueError(
            f"context: {' and '.join(written)} changed after it was made, which the arrangement of its points does not "
            "follow; make another one of what you want, Context(states, rewards, discounts, next_states, mask)."
        )


def _checksum(points: Tensor) -> int:
    """A number that changes, but for chance, where something is written into ``points``, by whatever way."""
    if points.device.type == "meta":
        return 0
    bits = unpack_dual(points.detach()).primal
    bits = bits.view(torch.int64 if bits.dtype == torch.float64 else torch.int32).flatten()
    odd = odd_factors(_AT_ONCE)[0, : len(bits)].to(bits.device)  # by which none of a number's bits is lost
    total = odd.new_zeros(())
    for part in bits.split(_AT_ONCE):
        mixed = part * odd[: len(part)]
        total = 3 * total + (mixed ^ (mixed >> 32)).sum()  # of signs or exponents that all change alike, too
    return int(total)


def _in_range(discounts: Tensor) -> None:
    outside = ~((discounts >= 0) & (discounts <= 1))
    if bool(outside.any()):
        raise ValueError(f"discounts: expected every γ in [0, 1], got {discounts[outside][0].item()}.")


def _check_contexts(contexts: Sequence[Context]) -> None:
    check_list("contexts", contexts, Context, "; an empty context needs Context(...)")
    for i, context in enumerate(contexts):
        _check_unchanged(context)
        if context.points.ndim != 2:
            raise ValueError(f"contexts: expected contexts without batch dimensions, got {context!r} at index {i}.")
        if context.dim != contexts[0].dim:
            raise ValueError(
                f"contexts: expected one state dimension, got d = {contexts[0].dim} and, at index {i}, {context.dim}."
            )
