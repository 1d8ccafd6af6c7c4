"""Attention over a context: which transitions a state listens to, and how much.

An attention rule is bound to a context once and then asked for as many queries as wanted. The keys are the
context's transitions; a query is never a key.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from icrl_agents.blockwise import LONGEST_SUM, BlockwiseMatrix, fits, matrix, row_blocks
from icrl_agents.checked import Checked, CheckedModule
from icrl_agents.distinct import fill_rows
from icrl_agents.kernel_binding import bind_kernel
from icrl_agents.kernel_matrix import (
    OWN,
    check_finite,
    check_kernel,
    check_reached,
    column_sums,
    has_score,
    kernel_matrix,
    largest_step,
    score_matrix,
    stable_step_size,
    warn_of_unreached,
)
from icrl_agents.kernels import Kernel
from icrl_agents.weighted_context import Transitions, WeightedContext

StepSize = float | Literal["auto"]


@dataclass(frozen=True, eq=False)
class BoundAttention:
    """Attention of any query to the transitions of one context.

    Args:
        rule: ``(queries (*batch, m, d), keys (*batch, n, d), mask (*batch, n)) -> (*batch, m, n)`` weights.
        keys: States of the context, ``(*batch, n, d)``.
        mask: True for transitions, ``(*batch, n)``.
        gain: Factor of the weights, ``()`` or ``(*batch, 1, 1)``; None for 1.
        counts: Number of transitions that each key stands for, ``(*batch, n)``; None for one each.
    """

    rule: Callable[[Tensor, Tensor, Tensor], Tensor]
    keys: Tensor
    mask: Tensor
    gain: Tensor | None = None
    counts: Tensor | None = None

    def __call__(self, queries: Tensor) -> Tensor:
        """Weights of ``queries (*batch, m, d)`` on the keys, ``(*batch, m, n)``, zero in the padding.

        Raises:
            ValueError: If the kernel gives NaN or inf, or not one number per query and key.
        """
        weights = self.rule(queries, self.keys.to(queries), self.mask)
        if self.gain is not None:
            weights = self.gain.to(queries) * weights
            check_finite(weights)
        return weights

    def over(self, queries: Tensor) -> Tensor | BlockwiseMatrix:
        """The same weights, to be multiplied with ``@``: made block by block each time where they would not fit."""
        return matrix(self, queries, self.columns)

    def fits(self, queries: Tensor) -> bool:
        """Whether the weights of ``queries`` are held by ``over``."""
        return fits(queries, self.columns)

    def expand(self, queries: Tensor, coefficients: Tensor) -> Tensor:
        """Σ_k K(x_k, x) w_k, ``(*batch, m, c)``, for ``coefficients (*batch, n, c)``, block by block."""
        return BlockwiseMatrix(self, queries, self.columns) @ coefficients

    @property
    def normalised(self) -> bool:
        """Whether the weights of a query sum to 1."""
        return isinstance(self.rule, partial) and self.rule.func in (_softmax, _normalised)

    @property
    def columns(self) -> int:
        """n, times the number of contexts in a batch."""
        return self.keys.shape[-2] * self.keys.shape[:-2].numel()

    def effective_sample_size(self, queries: Tensor) -> Tensor:
        """(Σ_k |K_k|)² / Σ_k K_k² over the transitions, ``(*batch, m)``; 0 where no key is reached."""
        weights = self(queries).abs()
        peak = weights.amax(-1, keepdim=True) if weights.shape[-1] else weights.sum(-1, keepdim=True)
        weights = weights / peak.masked_fill(peak == 0, 1.0)
        squares = weights.square()
        if self.counts is not None:
            squares = squares / self.counts.clamp(min=1.0).to(squares)[..., None, :]
        total = squares.sum(-1)
        return weights.sum(-1).square() / total.masked_fill(total == 0, 1.0)


class SoftmaxAttention(nn.Module):
    """Normalised attention K(x_k, x) = κ(x, x_k) / Σ_i κ(x, x_i) = softmax_k g(x, x_k) (arXiv 2605.07333).

    A query that no key reaches (κ = 0 throughout) has zero weights, not NaN, which is warned of under a kernel of one's
    own: without a ``score`` small numbers may have become 0. Keys that stand for c transitions each have c times the
    weight, c_k κ(x, x_k) / Σ_i c_i κ(x, x_i).

    Args:
        kernel: κ, with ``score`` = log κ if it has one; any non-negative callable otherwise.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = check_kernel(kernel)

    def bind(self, keys: Tensor, mask: Tensor, counts: Tensor | None = None) -> BoundAttention:
        """Returns the attention to ``keys (*batch, n, d)`` where ``mask (*batch, n)`` is True."""
        keys = fill_rows(keys, mask).clone()  # that nothing written into the context later moves a value
        kernel = bind_kernel(self.kernel, keys, mask)
        rule = partial(_softmax if has_score(kernel) else _normalised, kernel, counts)
        return BoundAttention(rule, keys, mask, counts=counts)


def check_step_size(step_size: Any, *, auto: bool = True) -> StepSize:  # noqa: ANN401
    """Returns ``step_size`` if it is positive and finite (or ``"auto"`` where allowed); raises ValueError otherwise."""
    if auto and isinstance(step_size, str) and step_size == "auto":
        return "auto"
    with contextlib.suppress(OverflowError):  # of an integer beyond the largest float
        if isinstance(step_size, Real) and not isinstance(step_size, bool) and 0 < float(step_size) < float("inf"):
            return float(step_size)
    alternative = " or 'auto'" if auto else ""
    raise ValueError(f"step_size: expected a positive number{alternative}, got {step_size!r}.")


class KernelAttention(CheckedModule):
    """Unnormalised attention κ(x, x_k), optionally scaled to the largest step that is stable (arXiv 2605.09727).

    Keys that stand for c transitions each have c times the weight.

    Args:
        kernel: κ, any callable ``(x (m, d), y (n, d)) -> (m, n)``.
        step_size: ``"auto"`` divides by max_j Σ_i |κ(x_i, x_j)| over the context; a number multiplies.
    """

    step_size = Checked(lambda _, value: check_step_size(value))

    def __init__(self, kernel: Kernel, step_size: StepSize = "auto") -> None:
        super().__init__()
        self.kernel = check_kernel(kernel)
        self.step_size = step_size

    def bind(self, keys: Tensor, mask: Tensor, counts: Tensor | None = None) -> BoundAttention:
        """Returns the attention to ``keys (*batch, n, d)`` where ``mask (*batch, n)`` is True."""
        keys = fill_rows(keys, mask).clone()  # that nothing written into the context later moves a value
        kernel = bind_kernel(self.kernel, keys, mask, scaled=True)
        if self.step_size == "auto":
            gain = stable_step_size(kernel, keys, mask, counts)[..., None, None]
        else:
            gain = None if self.step_size == 1.0 else keys.new_tensor(self.step_size)
        return BoundAttention(partial(_unnormalised, kernel, counts), keys, mask, gain, counts)


Attention = SoftmaxAttention | KernelAttention


def attend(attention: Attention, context: Transitions) -> BoundAttention:
    """Binds ``attention`` to a context, or to one whose equal states are kept once."""
    if isinstance(context, WeightedContext):
        return attention.bind(context.states, context.mask, context.counts)
    return attention.bind(context.states, context.mask)


def attend_points(
    attention: Attention, context: Transitions
) -> tuple[BoundAttention, Tensor | BlockwiseMatrix, Tensor]:
    """Binds ``attention`` without its step size, and weighs the context's points.

    Returns:
        The bound attention; the weights, ``(*batch, p, n)``; the step size α, ``()`` or ``(*batch, 1)``, for which an
        automatic one sums the columns of the weights, where they fit into memory.
    """
    step = context.rewards.new_ones(())
    if isinstance(attention, SoftmaxAttention) or len(context) == 0:
        bound = attend(attention, context)
        return bound, bound.over(context.points), step
    bound = attend(KernelAttention(attention.kernel, step_size=1.0), context)
    weights = bound.over(context.points)
    if not isinstance(attention.step_size, str):
        step = attention.step_size * step
    elif isinstance(weights, Tensor):
        visits = context.mask.to(weights) if bound.counts is None else bound.counts
        held, positive = weights[..., : len(context), :], getattr(attention.kernel, "positive", False)
        rows = [held] if positive else (block.abs() for block in row_blocks(held, bound.columns))
        sums = column_sums(rows, visits)
        step = largest_step(sums / visits.clamp(min=1.0), context.mask)[..., None]
    else:
        step = cast(Tensor, attend(attention, context).gain)[..., 0]
    return bound, weights, step


def _softmax(kernel: Any, counts: Tensor | None, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:  # noqa: ANN401
    scores = _masked(score_matrix(kernel, queries, keys), mask, float("-inf"))
    weights = torch.softmax(scores, -1)
    if weights.shape[-1] > LONGEST_SUM:  # of which its own sum has lost digits
        weights = weights / weights.sum(-1, keepdim=True)
    if bool(torch.isnan(weights.detach()[..., :1]).any()):
        unreached = check_reached(kernel, scores, mask)
        weights = torch.softmax(scores.masked_fill(unreached, 0.0), -1).masked_fill(unreached, 0.0)
        check_finite(weights)
    weights = weights.to(queries)
    return weights if counts is None else _shares(weights * counts.to(weights)[..., None, :])


def _normalised(kernel: Kernel, counts: Tensor | None, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    kappa = _unnormalised(kernel, counts, queries, keys, mask)
    if bool((kappa < 0).any()):
        raise ValueError("kernel: softmax attention needs κ ≥ 0, got a negative value; use KernelTD with this kernel.")
    if type(kernel) not in OWN:
        warn_of_unreached(kappa.detach(), queries.detach(), mask)
    return _shares(kappa)


def _unnormalised(kernel: Kernel, counts: Tensor | None, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    kappa = _masked(kernel_matrix(kernel, queries, keys), mask, 0.0)
    kappa = kappa if counts is None else kappa * counts.to(kappa)[..., None, :]
    check_finite(kappa)
    return kappa


def _masked(matrix: Tensor, mask: Tensor, value: float) -> Tensor:
    return matrix if bool(mask.all()) else matrix.masked_fill(~mask[..., None, :], value)


def _shares(weights: Tensor) -> Tensor:
    """Rows divided by their sums; rows of zeros stay."""
    total = weights.sum(-1, keepdim=True)
    if not bool(torch.isfinite(total.detach()).all()):
        peak = weights.amax(-1, keepdim=True)
        return _shares(weights / peak.masked_fill(peak == 0, 1.0))
    return weights / total.masked_fill(total == 0, 1.0)
