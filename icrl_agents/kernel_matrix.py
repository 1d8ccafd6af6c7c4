"""Kernels on the states of a context: evaluated, watched, and the largest stable step of their sweeps."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from icrl_agents.blockwise import row_blocks
from icrl_agents.kernel_gradients import watch_gradients
from icrl_agents.kernels import RBF, DotProduct, Exponential, Identity, Kernel, Laplace, Linear, ProductLaplace, ReLU
from icrl_agents.magnitudes import for_products, widened
from icrl_agents.notices import warn
from icrl_agents.pure import asked

OWN = (RBF, DotProduct, Exponential, Identity, Laplace, Linear, ProductLaplace, ReLU)
"""Kernels that are known to be functions of two states."""

FAR = 1e3
"""Scores this far below 0 lose so many digits of float32 that softmax takes them in float64."""


def check_kernel(kernel: Kernel) -> Kernel:
    """Returns ``kernel`` if it can be called; raises TypeError otherwise."""
    if not callable(kernel) or isinstance(kernel, type):
        raise TypeError(
            f"kernel: expected a kernel such as RBF(0.5) or a callable (x (m, d), y (n, d)) -> (m, n), got {kernel!r}."
        )
    return kernel


def has_score(kernel: Kernel) -> bool:
    """Whether a kernel offers log κ itself."""
    return getattr(kernel, "score", None) is not None


def kernel_matrix(kernel: Kernel, queries: Tensor, keys: Tensor) -> Tensor:
    """κ(queries, keys), ``(*batch, m, n)``, in the type of the queries.

    Raises:
        TypeError: If the kernel's weights are of another floating type, or what it gives is of a narrower one.
        ValueError: If the kernel gives anything but one number per query and key.
    """
    kappa = asked("kernel", kernel, queries, keys)
    batch = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2])
    expected = (*batch, queries.shape[-2], keys.shape[-2])
    if not isinstance(kappa, Tensor) or kappa.shape != expected:
        got = tuple(kappa.shape) if isinstance(kappa, Tensor) else type(kappa).__name__
        raise ValueError(f"kernel: expected a tensor (*batch, m, n) = {expected}, got {got}.")
    if kappa.is_complex():
        raise ValueError(f"kernel: expected real numbers, got {kappa.dtype}.")
    if kappa.is_floating_point() and torch.finfo(kappa.dtype).eps > torch.finfo(queries.dtype).eps:
        raise TypeError(
            f"kernel: gives {kappa.dtype} for states of {queries.dtype}, which rounds its values, and what is solved "
            "with them much more; expected the type of the states: take .double() of what it holds instead of .float() "
            "of the states, or the context with .to(dtype=torch.float32)."
        )
    if type(getattr(kernel, "__self__", kernel)) not in OWN:
        watch_gradients(kernel, kappa, queries, keys)
    return kappa.to(queries)


def score_matrix(kernel: Any, queries: Tensor, keys: Tensor) -> Tensor:  # noqa: ANN401 - a kernel with a score
    """Scores log κ(queries, keys), ``(*batch, m, n)``; in float64 where a query is far from every key, or where large.

    A score near s is rounded by |s| units in the last place, and softmax, relative to itself, by as much.
    """
    if type(kernel) in (DotProduct, Exponential):
        factor = kernel.matrix if type(kernel) is DotProduct else 1.0 / kernel.temperature
        return kernel_matrix(kernel.score, *for_products(queries, keys, factor))
    scores = kernel_matrix(kernel.score, queries, keys)
    if scores.dtype == torch.float32 and isinstance(kernel, (RBF, Laplace, ProductLaplace)) and scores.numel():
        found = scores.detach()
        far = found[..., 0] < -FAR  # of the first key, and so perhaps of all
        if bool(far.any()) and bool((found[far].amax(-1) < -FAR).any()):
            return kernel_matrix(kernel.score, widened(queries), widened(keys))
    return scores


def check_reached(kernel: Any, scores: Tensor, mask: Tensor) -> Tensor:  # noqa: ANN401 - a kernel with a score
    """Where no key is reached, ``(*batch, m, 1)``; raises ValueError if that can only be since scores overflow."""
    unreached = torch.isneginf(scores).all(-1, keepdim=True)
    if getattr(kernel, "positive", False) and bool((unreached & mask.any(-1)[..., None, None]).any()):
        raise ValueError(
            f"kernel: every score of some state overflows {scores.dtype}, so far are the states apart; "
            "scale them down, or the kernel's length scale up."
        )
    return unreached


def warn_of_unreached(kappa: Tensor, queries: Tensor, mask: Tensor) -> None:
    """Warns of queries that a kernel of one's own gives to no key, or so faintly that it has lost its digits."""
    unreached = (kappa.sum(-1) < torch.finfo(kappa.dtype).tiny) & mask.any(-1, keepdim=True)
    if not bool(mask.all()):
        unreached = unreached & queries.any(-1)  # the padding of a batch is asked for as well, which is 0
    if bool(unreached.any()):
        warn(
            f"kernel: is 0, or all but 0, between {int(unreached.sum())} states and every state of the context: their "
            "values are 0, or have lost their digits. If it is but small there, give it a method score(x, y) with its "
            "logarithm, as kernels.RBF has.",
            RuntimeWarning,
            stacklevel=3,
        )


def check_finite(weights: Tensor) -> None:
    """Raises ValueError if a weight is not finite.

    A sum is finite where all its terms are, and takes one pass; where it overflows, look at each.
    """
    if not math.isfinite(weights.detach().sum().item()) and not bool(torch.isfinite(weights).all()):
        raise ValueError(
            "kernel: gives NaN or overflows on these states; expected finite numbers. Scale the states down, or "
            "take a kernel that is bounded, such as RBF, or softmax attention, which normalises."
        )


def stable_step_size(kernel: Kernel, keys: Tensor, mask: Tensor, counts: Tensor | None = None) -> Tensor:
    """Step size α = 1 / max_j Σ_i c_i |κ(x_i, x_j)| of a context, ``(*batch,)``; 1 where every κ is 0.

    Args:
        kernel: κ.
        keys: States ``(*batch, n, d)``.
        mask: True for transitions, ``(*batch, n)``.
        counts: Number of transitions c that each key stands for, ``(*batch, n)``; default one each.
    """
    if keys.shape[-2] == 0:
        return keys.new_ones(keys.shape[:-2])
    visits = mask.to(keys) if counts is None else counts
    blocks = row_blocks(keys, keys.shape[-2] * mask.shape[:-1].numel())
    return largest_step(column_sums((kernel_matrix(kernel, block, keys).abs() for block in blocks), visits), mask)


def column_sums(rows: Iterable[Tensor], visits: Tensor) -> Tensor:
    """Σ_i c_i |κ_ij|, ``(*batch, n)``, of |κ| in blocks of rows and c = ``visits (*batch, n)``."""
    sums, done = torch.zeros_like(visits), 0
    for block in rows:
        through = visits[..., None, done : done + block.shape[-2]]
        sums = sums + (through @ block)[..., 0, :]
        done += block.shape[-2]
    return sums


def largest_step(sums: Tensor, mask: Tensor) -> Tensor:
    """1 / max_j of the sums ``(*batch, n)`` over the transitions, ``(*batch,)``; 1 where all are 0."""
    largest = sums.masked_fill(~mask, 0.0).amax(-1)
    check_finite(largest)
    return torch.where(largest > 0, 1.0 / largest.clamp(min=torch.finfo(sums.dtype).tiny), 1.0)
