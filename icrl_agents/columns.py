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
from icrl_agents.pure import held
from icrl_agents.value_function import Basis


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
    """
    kept = copy.copy(context)
    vars(kept).update({name: part.clone() for name, part in vars(context).items() if isinstance(part, Tensor)})
    return partial(_Columns(held(transformer)), kept)
