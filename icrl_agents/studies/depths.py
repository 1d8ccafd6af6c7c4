"""Transformers that diverge in their last layers, and what they are before those."""

from __future__ import annotations

from icrl_agents.transformer import InContextTransformer


def shallower(transformer: InContextTransformer, depth: int) -> InContextTransformer:
    """The first ``depth`` layers, a multiple of the number of blocks."""
    return InContextTransformer(list(transformer.blocks), depth // len(transformer.blocks))
