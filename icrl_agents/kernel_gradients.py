"""Gradients of a kernel of one's own where two states are one and the same, as each of a context is to itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from icrl_agents.notices import warn
from icrl_agents.pure import asked

_TRIED, _LOOKED_AT = 4, 256
"""How many states that are equal a kernel is tried on, and among how many they are looked for."""


def watch_gradients(kernel: Callable[..., Tensor], kappa: Tensor, queries: Tensor, keys: Tensor) -> None:
    """Has gradients that go through κ, ``kappa (*batch, m, n)``, tell where those of equal states are not finite.

    The root in ‖x − y‖ has none at 0: a Matérn kernel that takes it of a sum of squares gives NaN for all that it was
    computed from, though κ itself is right. Asked when gradients come, and of what they go to alone.
    """
    if kappa.requires_grad and not kappa.is_leaf:
        kappa.register_hook(partial(_tell, kernel, queries.detach(), keys.detach(), queries.requires_grad))


def _tell(
    kernel: Callable[..., Tensor], queries: Tensor, keys: Tensor, of_states: bool, gradient: Tensor | None
) -> None:
    """Warns where the gradients of κ at states that are queries and keys are not finite, though ``gradient`` is."""
    x, y = (each.flatten(0, -2)[:_LOOKED_AT] for each in (queries, keys))
    both = x[(x[:, None] == y).all(-1).any(-1)][:_TRIED]
    if gradient is None or len(both) == 0 or not bool(torch.isfinite(gradient).all()):  # None where there is none
        return
    try:
        both.requires_grad_(of_states)
    except RuntimeError:  # within a transform of torch.func, where gradients go to states alone, unless asked again
        found = [torch.func.grad(lambda x: asked("kernel", kernel, x, x).sum())(both.detach())] if of_states else []
        _warn_of(found)
        return
    with torch.enable_grad():
        kappa = asked("kernel", kernel, both, both)
        into = [*_leaves(kappa), *([both] if of_states else [])]
        found = torch.autograd.grad(kappa.sum(), into, retain_graph=True, allow_unused=True) if into else []
    _warn_of(found)


def _warn_of(found: Sequence[Tensor | None]) -> None:
    if any(each is not None and not bool(torch.isfinite(each).all()) for each in found):
        warn(
            "kernel: its gradients are not finite where two states are equal, as each state of a context is to itself; "
            "a root has none at 0: take torch.cdist, or (squares + tiny).sqrt() with a tiny number.",
            RuntimeWarning,
            stacklevel=2,
        )


def _leaves(result: Tensor) -> list[Tensor]:
    """The tensors that require gradients which ``result`` was computed from."""
    left, seen, found = [result.grad_fn], set(), []
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.append(variable)
        left.extend(each for each, _ in node.next_functions)
    return found
