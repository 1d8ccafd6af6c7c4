"""The temporal-shift layer as standard attention: ``torch.nn.MultiheadAttention`` with exported weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from icrl_agents.attention import BoundAttention, SoftmaxAttention
from icrl_agents.context import Context
from icrl_agents.kernels import RBF, DotProduct, Exponential
from icrl_agents.layers.lifting import LIFTED, context_lift, lifted_features, lifted_score
from icrl_agents.layers.memory import DualHeadLayer, TemporalShiftLayer
from icrl_agents.prompt import MEMORY, memory_tokens, route


class MultiheadLayer(nn.Module):
    """Standard attention over a memory prompt, then the Temporal Shift Module u ← γ·shift(v) (arXiv 2605.07333).

    Padded transitions are hidden from all columns by ``key_padding_mask``; final observations and queries, which are
    columns but no keys, by ``attn_mask``.

    Args:
        attention: One head, batch first, without biases, of width d + 3 (with ``lift``, d + 5).
        lift: The RBF to which the features are lifted; None to take them as they are.

    Raises:
        ValueError: If ``attention`` has another form.
    """

    def __init__(self, attention: nn.MultiheadAttention, lift: RBF | None = None) -> None:
        super().__init__()
        if attention.num_heads != 1 or not attention.batch_first or attention.in_proj_bias is not None:
            raise ValueError(f"attention: expected one head, batch_first=True and bias=False, got {attention!r}.")
        self.attention, self.lift = attention, lift

    def tokens(self, context: Context, queries: Tensor) -> Tensor:
        """The prompt of this layer, columns [φ; R; u; v], ``(*batch, columns, width)``."""
        dim = self.attention.embed_dim - MEMORY - (0 if self.lift is None else LIFTED)
        if context.dim != dim:
            raise ValueError(f"context: expected dimension {dim}, that of the weights, got {context.dim}.")
        tokens = memory_tokens(context, queries)
        return torch.cat([self._features(context)(tokens[..., :-MEMORY]), tokens[..., -MEMORY:]], dim=-1)

    def bind(self, context: Context) -> BoundAttention:
        """The layer's attention to the transitions of ``context``: of any states, whose memory rows are 0."""
        features = self._features(context)

        def rule(queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
            blank = (0, MEMORY)
            return self._attend(functional.pad(features(queries), blank), functional.pad(features(keys), blank), mask)[
                1
            ]

        return BoundAttention(rule, context.states, context.mask, context.states.new_ones(()))

    def attend(self, bound: object, tokens: Tensor) -> Tensor:
        """Nothing: the standard attention computes its weights anew in each layer."""
        return tokens[..., :0]

    def messages(self, tokens: Tensor, context: Context) -> Tensor:
        """What each key sends to the value row, ``(*batch, n)``."""
        values, output = self.attention.in_proj_weight.chunk(3)[2], self.attention.out_proj.weight
        return tokens[..., : len(context), :] @ (output.to(tokens) @ values.to(tokens))[-1]

    def forward(self, tokens: Tensor, context: Context, weights: Tensor) -> Tensor:
        """Returns the tokens after the layer, ``(*batch, columns, width)``."""
        tokens = tokens + self._attend(tokens, tokens, context.mask)[0]
        return torch.cat([tokens[..., :-2], route(context, tokens[..., -1])[..., None], tokens[..., -1:]], dim=-1)

    def read_out(self, tokens: Tensor) -> Tensor:
        """Values of every column, ``(*batch, columns)``."""
        return tokens[..., -1]

    def _features(self, context: Context) -> Callable[[Tensor], Tensor]:
        if self.lift is None:
            return lambda states: states
        scale, centre = context_lift(context, self.lift)
        return lambda states: lifted_features(states, scale.to(states), centre.to(states))

    def _attend(self, queries: Tensor, columns: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attention of the queries to the first n columns, and its weights on all of them.

        Both are zero, not NaN, where a context has no transition at all.
        """
        batch, n, width = mask.shape[:-1], mask.shape[-1], columns.shape[-2]
        queries = queries.expand(*batch, *queries.shape[-2:])
        if n == 0:
            return torch.zeros_like(queries), queries.new_zeros((*queries.shape[:-1], width))
        empty = ~mask.any(-1)[..., None]
        padding = functional.pad(~mask & ~empty, (0, width - n)).reshape(-1, width)
        no_keys = (torch.arange(width, device=mask.device) >= n).expand(queries.shape[-2], width)
        flat_queries, flat_columns = (rows.reshape(-1, *rows.shape[-2:]) for rows in (queries, columns))
        found, weights = functional_call(
            self.attention,
            {name: weight.to(columns) for name, weight in self.attention.named_parameters()},
            (flat_queries, flat_columns, flat_columns),
            {"key_padding_mask": padding, "attn_mask": no_keys},
        )
        return tuple(
            part.reshape(*batch, *part.shape[-2:]).masked_fill(empty[..., None], 0.0) for part in (found, weights)
        )


def export_multihead_attention(layer: TemporalShiftLayer, dim: int) -> MultiheadLayer:
    """Returns ``layer`` as standard attention, equal to it after every layer (arXiv 2605.07333, construction).

    Standard attention scores a query against a key by (W_Q z_q)ᵀ(W_K z_k)/√E, with E the width of a token: so
    W_K = [I, 0] and W_Q = √E [Bᵀ, 0] for the score xᵀBx′, that is A = W_KᵀW_Q/√E; W_V is the layer's V, and the output
    projection the identity.

    Args:
        layer: A temporal-shift layer with softmax attention over ``DotProduct``, ``Exponential`` or ``RBF``; the latter
            on lifted features, two rows more.
        dim: State dimension d ≥ 1.

    Raises:
        TypeError: If ``layer`` is no temporal-shift layer.
        ValueError: If its attention is not softmax over one of these kernels, or of another dimension.
    """
    if not isinstance(layer, TemporalShiftLayer) or isinstance(layer, DualHeadLayer):
        raise TypeError(
            f"layer: expected a TemporalShiftLayer (form='temporal_shift'; its values are those of the dual head), "
            f"got {type(layer).__name__}."
        )
    if not isinstance(layer.attention, SoftmaxAttention):
        raise ValueError(
            f"layer: expected SoftmaxAttention, got {type(layer.attention).__name__}, which is no softmax."
        )
    kernel = layer.attention.kernel
    if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
        raise ValueError(f"dim: expected an integer ≥ 1, got {dim!r}.")
    B = _score_matrix(kernel, dim)
    E = len(B) + MEMORY
    attention = nn.MultiheadAttention(E, num_heads=1, bias=False, batch_first=True, dtype=torch.float64)
    projections = torch.zeros(3, E, E, dtype=torch.float64)
    projections[0, : len(B), : len(B)] = math.sqrt(E) * B.mT
    projections[1, : len(B), : len(B)] = torch.eye(len(B))
    projections[2] = layer.value_matrices(len(B))[0]
    attention.in_proj_weight = nn.Parameter(projections.flatten(0, 1), requires_grad=False)
    attention.out_proj.weight = nn.Parameter(torch.eye(E, dtype=torch.float64), requires_grad=False)
    return MultiheadLayer(attention, kernel if isinstance(kernel, RBF) else None)


def _score_matrix(kernel: object, dim: int) -> Tensor:
    """B of the score x̃ᵀB x̃′ on the features that the head sees."""
    if isinstance(kernel, RBF):
        return lifted_score(dim)
    if isinstance(kernel, Exponential):
        return torch.eye(dim, dtype=torch.float64) / kernel.temperature.detach().double().cpu()
    if not isinstance(kernel, DotProduct):
        raise ValueError(
            f"layer: expected a kernel whose score is bilinear, DotProduct, Exponential or RBF, got {kernel!r}."
        )
    if len(kernel.matrix) != dim:
        raise ValueError(f"dim: expected {len(kernel.matrix)}, the dimension of the layer's matrix, got {dim!r}.")
    return kernel.matrix.detach().double().cpu()
