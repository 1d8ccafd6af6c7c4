"""Kernels bound to a context: kept as they are now, and tried on a few of its states."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from icrl_agents.kernel_matrix import OWN, check_kernel, has_score, kernel_matrix
from icrl_agents.kernels import Kernel
from icrl_agents.pure import check_held, check_hooks, depends_on_call, held, is_patched, some_rows

_SCORE = 1e-2
"""Differences between a score and log κ above rounding."""


def bind_kernel(kernel: Kernel, keys: Tensor, mask: Tensor, *, scaled: bool = False) -> Kernel:
    """The kernel for one context: of a kernel whose scale is the context's, one with a fixed scale.

    A module keeps the weights that it has now, and so does what binds itself: the next context finds it as it is now.
    Where the size of κ counts, ``scaled``, its rows may not be scaled by what they are asked about, which a normaliser
    would divide out.

    Raises:
        TypeError: If a kernel of one's own has something else for its ``bind``, or ``score`` where that is asked.
        ValueError: If it is no function of two states, writes into them, or has another score; or if its score is
            asked for, and hooks would have to make its weights before.
    """
    if not scaled and has_score(kernel):
        check_hooks("kernel", kernel)
    bind = getattr(kernel, "bind", None)
    bound = kernel if bind is None else _bound(bind, keys, mask)
    if type(kernel) in OWN and (scaled or not is_patched(kernel)):
        return bound
    bound = held(bound) if isinstance(bound, nn.Module) or bind is not None else bound
    _check_pairwise(bound, keys.detach(), scaled)
    return bound


def _bound(bind: Any, keys: Tensor, mask: Tensor) -> Kernel:  # noqa: ANN401 - what a kernel of one's own has there
    try:
        return check_kernel(bind(keys, mask))
    except TypeError as error:
        wrong = "kernel: its bind is no method (keys, mask) that returns a kernel"
        raise TypeError(f"{wrong} ({error}); call it something else.") from error


@torch.inference_mode(False)
@torch.no_grad()
def _check_pairwise(kernel: Kernel, keys: Tensor, scaled: bool) -> None:
    """Raises ValueError if κ of a few states is another one beside others, or when it is asked for again."""
    if keys.numel() == 0:
        return
    some, few = some_rows(keys)
    untouched = some._version
    try:
        alone, again = kernel_matrix(kernel, few, few), kernel_matrix(kernel, few, few)
        whole = kernel_matrix(kernel, some, some)
    except RuntimeError as error:
        if some.shape[-2] < keys.shape[-2]:
            _check_fewer(kernel, keys, some, error)
        raise
    among = whole[..., : few.shape[-2], : few.shape[-2]]
    if some._version != untouched:
        wrong = "kernel: writes into the states that it is given, as clamp_ and ReLU(inplace=True) do"
        raise ValueError(f"{wrong}; expected a function that leaves them as they are.")
    first, rest = some[..., :1, :], some[..., 1:, :] if scaled and some.shape[-2] > 1 else some
    if depends_on_call(alone, again, among) or depends_on_call(
        single := kernel_matrix(kernel, first, rest), single, whole[..., :1, -rest.shape[-2] :]
    ):
        raise ValueError(
            "kernel: gives the same states other numbers beside other states, or each time it is asked, as with batch "
            "or spectral normalisation or dropout in training, or a width that is found anew in every call; expected a "
            "function of two states. Call its eval(), or give it a method bind(keys, mask) that returns the kernel of "
            "one context."
        )
    if isinstance(kernel, nn.Module):
        check_held("kernel", kernel, few, few)
    if has_score(kernel):
        _check_score(kernel, some, whole, asked_for=not scaled)


def _check_score(kernel: Any, some: Tensor, kappa: Tensor, *, asked_for: bool) -> None:  # noqa: ANN401 - with a score
    """Raises an error if the score is another one than log κ of ``some`` states, or none that can be ``asked_for``."""
    wrong = "kernel: its score is not the logarithm of what it gives"
    try:
        scores = kernel_matrix(kernel.score, some, some)
    except (TypeError, ValueError, RuntimeError) as error:
        if not asked_for:
            return
        raise TypeError(f"{wrong}, (x, y) -> (m, n), which softmax takes ({error}); call it something else.") from error
    if _differ(scores, kappa):
        raise ValueError(
            f"{wrong}, as where a hook changes that or a class that inherits one overrides forward alone; softmax "
            "attention takes the score. Override both, or let a module or function call the other kernel."
        )


def _check_fewer(kernel: Kernel, keys: Tensor, some: Tensor, error: RuntimeError) -> None:
    """Raises ValueError if a kernel that has failed on ``some`` states takes one beside all keys."""
    try:
        kernel_matrix(kernel, keys[..., :1, :], keys)
    except (RuntimeError, ValueError, TypeError):
        return
    raise ValueError(
        f"kernel: takes all {keys.shape[-2]} states of the context, but not {some.shape[-2]} of them ({error}), as "
        "where only the nearest count; expected a function of two states, whatever others there are. Give it a method "
        "bind(keys, mask) that returns the kernel of one context, such as one of the distances found there."
    ) from error


def _differ(scores: Tensor, kappa: Tensor) -> bool:
    """Whether scores, up to a constant, are another logarithm than that of κ, where κ is neither 0 nor overflows."""
    gaps = (scores - kappa.log())[(kappa > torch.finfo(kappa.dtype).tiny) & torch.isfinite(kappa)]
    return gaps.numel() > 0 and not float(gaps.max() - gaps.min()) <= _SCORE
