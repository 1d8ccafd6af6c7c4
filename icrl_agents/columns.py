"""Value functions of layers that have no kernel expansion: queries run through all layers, as columns of the prompt."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from icrl_agents.arrays import fold
from icrl_agents.context import Context
from icrl_agents.divergence import check_finite
from icrl_agents.pure import depends_on_call, held
from icrl_agents.value_function import Basis

_UNCHANGING = ("icrl_agents.", *(f"torch.nn.modules.{kind}" for kind in ("container", "linear", "activation")))
"""Modules that compute the same in training mode as otherwise."""


class _Columns(nn.Module):
    """The values of queries ``(*more, *batch, m, d)`` after each layer, ``(*more, *batch, m, L + 1)``."""

    def __init__(self, transformer: Any) -> None:  # noqa: ANN401 - an InContextTransformer, which is above
        super().__init__()
        self.transformer = transformer

    def forward(self, context: Context, queries: Tensor) -> Tensor:
        folded, unfold = fold(queries, context.points.shape[:-2])
        layers = self.transformer.hidden_states(context, folded)
        values = torch.stack([self.transformer.blocks[0].read_out(tokens) for tokens in layers], dim=-1)
        check_finite(values.mT, "layer")
        return unfold(values[..., values.shape[-2] - folded.shape[-2] :, :])


def columns(transformer: Any, context: Context) -> Basis:  # noqa: ANN401
    """Values after each layer as a function of the queries, with layers, their hooks and weights as they are now.

    Args:
        transformer: An ``InContextTransformer`` of L layers.
        context: The context, ``(*batch, n)``.

    Returns:
        ``(*more, *batch, m, d) -> (*more, *batch, m, L + 1)``; gradients pass on to the weights.

    Raises:
        ValueError: If values are others each time that they are asked for.
    """
    kept = copy.copy(context)
    vars(kept).update({name: part.clone() for name, part in vars(context).items() if isinstance(part, Tensor)})
    basis = partial(_Columns(held(transformer)), kept)
    _check_repeatable(transformer, basis, kept.states[..., :1, :])
    return basis


@torch.no_grad()
def _check_repeatable(transformer: nn.Module, basis: Basis, states: Tensor) -> None:
    """Raises ValueError if ``states`` have other values each time, for something in training mode that is not ours."""
    trained = (type(part).__module__ for part in transformer.modules() if part.training)
    if not all(name.startswith(_UNCHANGING) for name in trained):
        alone, again = basis(states), basis(states)
        if depends_on_call(alone, again, alone):
            raise ValueError(
                "blocks: values are others each time that they are asked for, as with dropout or spectral "
                "normalisation of weights in training mode; call transformer.eval() before fit."
            )
