"""Blocks of a transformer: what it asks of a layer, and which layers go together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from icrl_agents.context import Context
from icrl_agents.pure import check_hooks, is_patched
from icrl_agents.value_function import Basis


@runtime_checkable
class Layer(Protocol):
    """What the transformer asks of a layer; see ``icrl_agents.layers``."""

    def tokens(self, context: Context, queries: Tensor) -> Tensor:
        """The prompt that the layer reads."""
        ...

    def bind(self, context: Context) -> Basis:
        """The basis in which a query's value is expanded, for this context."""
        ...

    def attend(self, bound: Any, tokens: Tensor) -> Tensor:  # noqa: ANN401 - what its own ``bind`` returned
        """What ``forward`` needs and what never changes from layer to layer."""
        ...

    def messages(self, tokens: Tensor, context: Context) -> Tensor:
        """The layer's increment of the coefficients in its basis."""
        ...

    def __call__(self, tokens: Tensor, context: Context, weights: Tensor) -> Tensor:
        """The tokens after the layer."""
        ...

    def read_out(self, tokens: Tensor) -> Tensor:
        """Values of every column."""
        ...


def check_blocks(blocks: Sequence[nn.Module]) -> None:
    """Raises TypeError or ValueError if ``blocks`` are no layers of one transformer."""
    if len(blocks) == 0:
        raise ValueError("blocks: expected at least one layer, got none.")
    for i, block in enumerate(blocks):
        if not isinstance(block, Layer):
            raise TypeError(
                f"blocks: expected layers such as those of icrl_agents.layers, got {type(block).__name__} at index {i}."
            )
    check_mixture(blocks)


def check_mixture(blocks: Sequence[nn.Module]) -> None:
    """Raises ValueError if blocks read different prompts, or features as they were before other blocks wrote there.

    Or if hooks make weights of a block, or a class of one's own overrides its forward pass alone: blocks are asked by
    other methods too.
    """
    for block in blocks:
        own = overridden(block)
        if "forward" in own and not {"messages", "expands"} & own and getattr(block, "expands", True):
            raise ValueError(
                f"blocks: {type(block).__name__} overrides forward alone, and fit takes the increments of messages; "
                "override both, or set expands = False, with which queries run through the layers."
            )
        for part in (block, getattr(block, "attention", None)):
            check_hooks("blocks", part)
    if len(blocks) == 1:
        return
    prompts = sorted({prompt_of(block) for block in blocks})
    if len(prompts) > 1:
        raise ValueError(f"blocks: expected layers that read the same kind of prompt, got {' and '.join(prompts)}.")
    writing = [block for block in blocks if not getattr(block, "expands", True)]
    reading = [block for block in blocks if is_weighted(block)]
    if writing and reading:
        raise ValueError(
            f"blocks: a {type(writing[0]).__name__} may write into the features, whose attention a "
            f"{type(reading[0]).__name__} computes once, before the first layer; expected layers of one kind."
        )


def overridden(layer: object) -> set[str]:
    """What a class of one's own that inherits a layer of this package defines anew."""
    inherits = itertools.takewhile(lambda kind: not kind.__module__.startswith("icrl_agents."), type(layer).__mro__)
    kinds = list(inherits)
    return set() if kinds[-1:] == [object] else {name for kind in kinds for name in vars(kind)}


def is_weighted(layer: object) -> bool:
    """Whether a layer may read equal states once: of a class of one's own that changes what it sends, if it says so."""
    own = overridden(layer)
    return bool(getattr(layer, "weighted", False)) and ("weighted" in own or not {"forward", "messages"} & own)


class PatchedError(ValueError):
    """A layer gives something else than its own forward pass does."""


def check_patched(
    layers: Sequence[Any], weights: Sequence[Tensor], depth: int, before: Tensor, after: Tensor, context: Context
) -> None:
    """Raises PatchedError if not the layer before ``depth`` alone has made ``after`` of the tokens ``before``."""
    i = (depth - 1) % len(layers)
    if depth > 0 and is_patched(layers[i]):
        if torch.equal(after, type(layers[i]).forward(layers[i], before, context, weights[i])):
            return
        raise PatchedError(
            "blocks: a forward hook changes what a layer gives, which an expansion over the context knows nothing of; "
            "ask transformer(context, queries), whose layers run their hooks, or remove it for fit."
        )


def prompt_of(layer: object) -> str:
    """What kind of prompt a layer reads."""
    return getattr(layer, "prompt", "memory")
