"""Attention over a context: which transitions a state listens to, and how much.

An attention rule is bound to a context once and then asked for as many queries as wanted. The keys are the
context's transitions; a query is never a key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor, nn

from icrl_agents.kernels import Kernel

StepSize = float | Literal["auto"]


@dataclass(frozen=True, eq=False)
class BoundAttention:
    """Attention of any query to the transitions of one context.

    Args:
        rule: ``(queries (*batch, m, d), keys (*batch, n, d)) -> (*batch, m, n)`` weights before masking.
        keys: States of the context, ``(*batch, n, d)``.
        mask: True for transitions, ``(*batch, n)``.
        gain: Factor of the weights, ``()`` or ``(*batch, 1, 1)``.
    """

    rule: Callable[[Tensor, Tensor, Tensor], Tensor]
    keys: Tensor
    mask: Tensor
    gain: Tensor

    def __call__(self, queries: Tensor) -> Tensor:
        """Weights of ``queries (*batch, m, d)`` on the keys, ``(*batch, m, n)``, zero in the padding.

        Raises:
            ValueError: If the kernel gives NaN or inf, or not one number per query and key.
        """
        weights = self.gain.to(queries) * self.rule(queries, self.keys.to(queries), self.mask)
        if not bool(torch.isfinite(weights).all()):
            raise ValueError(
                "kernel: gives NaN or overflows on these states; expected finite numbers. Scale the states down, or "
                "take a kernel that is bounded, such as RBF, or softmax attention, which normalises."
            )
        return weights


class SoftmaxAttention(nn.Module):
    """Normalised attention K(x_k, x) = κ(x, x_k) / Σ_i κ(x, x_i) = softmax_k g(x, x_k) (arXiv 2605.07333).

    A query that no key reaches (κ = 0 throughout) has zero weights, not NaN.

    Args:
        kernel: κ, with ``score`` = log κ if it has one; any non-negative callable otherwise.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = check_kernel(kernel)

    def bind(self, keys: Tensor, mask: Tensor) -> BoundAttention:
        """Returns the attention to ``keys (*batch, n, d)`` where ``mask (*batch, n)`` is True."""
        kernel = _bound(self.kernel, keys, mask)
        score = getattr(kernel, "score", None)
        rule = partial(_normalised, kernel) if score is None else partial(_softmax, score)
        return BoundAttention(rule, keys, mask, keys.new_ones(()))


class KernelAttention(nn.Module):
    """Unnormalised attention κ(x, x_k), optionally scaled to the largest step that is stable (arXiv 2605.09727).

    Args:
        kernel: κ, any callable ``(x (m, d), y (n, d)) -> (m, n)``.
        step_size: ``"auto"`` divides by max_j Σ_i |κ(x_i, x_j)| over the context; a number multiplies.
    """

    def __init__(self, kernel: Kernel, step_size: StepSize = "auto") -> None:
        super().__init__()
        self.kernel = check_kernel(kernel)
        self.step_size = check_step_size(step_size)

    def bind(self, keys: Tensor, mask: Tensor) -> BoundAttention:
        """Returns the attention to ``keys (*batch, n, d)`` where ``mask (*batch, n)`` is True."""
        kernel = _bound(self.kernel, keys, mask)
        if self.step_size == "auto":
            gain = stable_step_size(kernel, keys, mask)[..., None, None]
        else:
            gain = keys.new_tensor(self.step_size)
        return BoundAttention(partial(_unnormalised, kernel), keys, mask, gain)


def stable_step_size(kernel: Kernel, keys: Tensor, mask: Tensor) -> Tensor:
    """Step size α = 1 / max_j Σ_i |κ(x_i, x_j)| of a context, ``(*batch,)``; 1 where every κ is 0.

    Args:
        kernel: κ.
        keys: States ``(*batch, n, d)``.
        mask: True for transitions, ``(*batch, n)``.
    """
    if keys.shape[-2] == 0:
        return keys.new_ones(keys.shape[:-2])
    both = mask[..., None, :] & mask[..., :, None]
    row_sums = _evaluated(kernel, keys, keys).abs().masked_fill(~both, 0.0).sum(-2)
    largest = row_sums.amax(-1)
    return torch.where(largest > 0, 1.0 / largest.clamp(min=torch.finfo(keys.dtype).tiny), 1.0)


def check_kernel(kernel: Kernel) -> Kernel:
    """Returns ``kernel`` if it can be called; raises TypeError otherwise."""
    if not callable(kernel) or isinstance(kernel, type):
        raise TypeError(
            f"kernel: expected a kernel such as RBF(0.5) or a callable (x (m, d), y (n, d)) -> (m, n), got {kernel!r}."
        )
    return kernel


def check_step_size(step_size: Any, *, auto: bool = True) -> StepSize:  # noqa: ANN401
    """Returns ``step_size`` if it is positive and finite (or ``"auto"`` where allowed); raises ValueError otherwise."""
    if auto and isinstance(step_size, str) and step_size == "auto":
        return "auto"
    if isinstance(step_size, Real) and not isinstance(step_size, bool) and 0 < float(step_size) < float("inf"):
        return float(step_size)
    alternative = " or 'auto'" if auto else ""
    raise ValueError(f"step_size: expected a positive number{alternative}, got {step_size!r}.")


def _bound(kernel: Kernel, keys: Tensor, mask: Tensor) -> Kernel:
    bind = getattr(kernel, "bind", None)
    return kernel if bind is None else bind(keys, mask)


def _evaluated(kernel: Kernel, queries: Tensor, keys: Tensor) -> Tensor:
    kappa = kernel(queries, keys)
    expected = (queries.shape[-2], keys.shape[-2])
    if not isinstance(kappa, Tensor) or kappa.shape[-2:] != expected:
        got = tuple(kappa.shape) if isinstance(kappa, Tensor) else type(kappa).__name__
        raise ValueError(f"kernel: expected a tensor (*batch, m, n) = (..., {expected[0]}, {expected[1]}), got {got}.")
    return kappa.to(queries)


def _softmax(score: Kernel, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    scores = _evaluated(score, queries, keys).masked_fill(~mask[..., None, :], float("-inf"))
    unreached = torch.isneginf(scores).all(-1, keepdim=True)
    return torch.softmax(scores.masked_fill(unreached, 0.0), -1).masked_fill(unreached, 0.0)


def _normalised(kernel: Kernel, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    kappa = _unnormalised(kernel, queries, keys, mask)
    if bool((kappa < 0).any()):
        raise ValueError("kernel: softmax attention needs κ ≥ 0, got a negative value; use KernelTD with this kernel.")
    total = kappa.sum(-1, keepdim=True)
    return kappa / total.masked_fill(total == 0, 1.0)


def _unnormalised(kernel: Kernel, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    return _evaluated(kernel, queries, keys).masked_fill(~mask[..., None, :], 0.0)
