"""The temporal-shift layer as standard attention: ``torch.nn.MultiheadAttention`` with exported weights."""

from __future__ import annotations

import copy
import math
from functools import partial
from numbers import Integral
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from icrl_agents.arrays import fold
from icrl_agents.attention import BoundAttention, SoftmaxAttention
from icrl_agents.context import Context
from icrl_agents.kernels import RBF, DotProduct, Exponential
from icrl_agents.layers.lifting import LIFTED, check_digits, context_lift, lifted_features, lifted_score
from icrl_agents.layers.memory import TemporalShiftLayer, td_step_size
from icrl_agents.magnitudes import for_products
from icrl_agents.prompt import MEMORY, memory_tokens, route
from icrl_agents.pure import held


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

    @property
    def prompt(self) -> str:
        """What the layer reads: a memory prompt, or one whose features are lifted in a certain way."""
        return "memory" if self.lift is None else f"memory of features lifted for {self.lift!r}"

    @property
    def expands(self) -> bool:
        """Whether value functions are expansions: attention reads the features alone, and what is sent goes to row v.

        So it is of exported weights; through others, and those with gradients, even of 0, queries run as columns.
        """
        trained = torch.is_grad_enabled() and any(weight.requires_grad for weight in self.attention.parameters())
        queries, keys, values = self.attention.in_proj_weight.detach().chunk(3)
        sent = self.attention.out_proj.weight.detach() @ values
        return not (trained or bool(queries[:, -MEMORY:].any() or keys[:, -MEMORY:].any() or sent[:-1].any()))

    @property
    def step_size(self) -> float | None:
        """α where the layer is one sweep of TD, for it sends α(+1, +1, −1) on (R, u, v) to row v; None elsewhere."""
        sent = (self.attention.out_proj.weight.detach() @ self.attention.in_proj_weight.detach().chunk(3)[2])[-1]
        return None if bool(sent[:-MEMORY].any()) else td_step_size(sent[-MEMORY:])

    def __init__(self, attention: nn.MultiheadAttention, lift: RBF | None = None) -> None:
        super().__init__()
        _check_form(attention)
        self.attention, self.lift = attention, lift

    def tokens(self, context: Context, queries: Tensor) -> Tensor:
        """The prompt of this layer, columns [φ; R; u; v], ``(*batch, columns, width)``."""
        _check_form(self.attention)
        dim = self.attention.embed_dim - MEMORY - (0 if self.lift is None else LIFTED)
        if context.dim != dim:
            raise ValueError(f"context: expected dimension {dim}, that of the weights, got {context.dim}.")
        tokens = memory_tokens(context, queries)
        lift = None if self.lift is None else context_lift(context, self.lift)
        features = _lifted(lift, tokens[..., :-MEMORY])
        check_digits(lift, features)
        return torch.cat([features, tokens[..., -MEMORY:]], dim=-1)

    def bind(self, context: Context) -> BoundAttention:
        """The layer's attention to the transitions of ``context``: of any states, whose memory rows are 0."""
        rule = partial(held(self)._weights, None if self.lift is None else context_lift(context, self.lift))
        return BoundAttention(rule, context.states.clone(), context.mask, context.states.new_ones(()))

    def rule(self, context: Context) -> SoftmaxAttention:
        """Softmax attention with the layer's score of states, x̃ᵀBx̃′, where it reads the features alone."""
        queries, keys, _ = self.attention.in_proj_weight.detach().double().chunk(3)
        B = (queries.mT @ keys)[:-MEMORY, :-MEMORY] / math.sqrt(len(keys))
        return SoftmaxAttention(_Bilinear(B, None if self.lift is None else context_lift(context, self.lift)))

    def attend(self, bound: object, tokens: Tensor) -> Tensor:
        """Nothing: the standard attention computes its weights anew in each layer."""
        return tokens[..., :0]

    def messages(self, tokens: Tensor, context: Context) -> Tensor:
        """What each key sends to the value row, ``(*batch, n)``; padding nothing."""
        values, output = self.attention.in_proj_weight.chunk(3)[2], self.attention.out_proj.weight
        sent = (output.to(tokens) @ values.to(tokens))[-1]
        return (tokens[..., : len(context), :] @ sent).masked_fill(~context.mask, 0.0)

    def forward(self, tokens: Tensor, context: Context, weights: Tensor) -> Tensor:
        """Returns the tokens after the layer, ``(*batch, columns, width)``."""
        tokens = tokens + self._attend(tokens, tokens, context.mask)[0]
        return torch.cat([tokens[..., :-2], route(context, tokens[..., -1])[..., None], tokens[..., -1:]], dim=-1)

    def read_out(self, tokens: Tensor) -> Tensor:
        """Values of every column, ``(*batch, columns)``."""
        return tokens[..., -1]

    def _weights(self, lift: tuple[Tensor, Tensor] | None, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        queries, keys = (_lifted(lift, states) for states in (queries, keys))
        check_digits(lift, queries)
        queries, keys = (functional.pad(each, (0, MEMORY)) for each in (queries, keys))
        return self._attend(queries, keys, mask)[1]

    def _attend(self, queries: Tensor, columns: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attention of the queries to the first n columns, and its weights on all of them.

        Both are zero, not NaN, where a context has no transition at all. Weights of another floating type are those of
        a copy: in the module itself, other threads would find them in place of its own.
        """
        attention = held(self.attention)
        batch, n, width, dtype = mask.shape[:-1], mask.shape[-1], columns.shape[-2], columns.dtype
        queries, unfold = fold(queries, batch)
        to_query, to_key, _ = attention.in_proj_weight.chunk(3)
        queries, columns = for_products(queries, columns, to_query / math.sqrt(len(to_query)), to_key)
        if n == 0:
            return unfold(torch.zeros_like(queries)), unfold(queries.new_zeros((*queries.shape[:-1], width)))
        empty = ~mask.any(-1)[..., None]
        padding = functional.pad(~mask & ~empty, (0, width - n)).reshape(batch.numel(), width)
        no_keys = (torch.arange(width, device=mask.device) >= n).expand(queries.shape[-2], width)
        flat_queries, flat_columns = (rows.reshape(batch.numel(), *rows.shape[-2:]) for rows in (queries, columns))
        found, weights = functional_call(
            attention,
            {name: weight.to(columns) for name, weight in attention.named_parameters()},
            (flat_queries, flat_columns, flat_columns),
            {"key_padding_mask": padding, "attn_mask": no_keys},
        )
        found, weights = (
            unfold(part.reshape(*batch, *part.shape[-2:]).masked_fill(empty[..., None], 0.0)).to(dtype)
            for part in (found, weights)
        )
        return found, weights


def _check_form(attention: nn.MultiheadAttention) -> None:
    """Raises ValueError of another form, such as one that adds keys of its own, or whose dropout was set later."""
    if attention.num_heads != 1 or not attention.batch_first or attention.in_proj_bias is not None:
        raise ValueError(f"attention: expected one head, batch_first=True and bias=False, got {attention!r}.")
    further = attention.add_zero_attn or attention.bias_k is not None or attention.bias_v is not None
    if not attention._qkv_same_embed_dim or further or attention.dropout > 0:
        raise ValueError(
            "attention: expected keys and values of the queries' dimension, add_zero_attn=False, add_bias_kv=False and "
            f"dropout=0, got kdim={attention.kdim}, vdim={attention.vdim}, add_zero_attn={attention.add_zero_attn}, "
            f"add_bias_kv={attention.bias_k is not None} and dropout={attention.dropout}."
        )


class _Bilinear(NamedTuple):
    """The kernel exp(x̃ᵀBx̃′) of features x̃ that may be lifted."""

    B: Tensor
    lift: tuple[Tensor, Tensor] | None

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return self.score(x, y).exp()

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """Its logarithm, ``(*batch, m, n)``."""
        return _lifted(self.lift, x) @ self.B.to(x) @ _lifted(self.lift, y).mT


def _lifted(lift: tuple[Tensor, Tensor] | None, states: Tensor) -> Tensor:
    """The features of ``states``, lifted where there are a length scale and a centre to do it with."""
    return states if lift is None else lifted_features(states, *(part.to(states) for part in lift))


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
    if type(layer) is not TemporalShiftLayer:
        raise TypeError(
            f"layer: expected a TemporalShiftLayer (form='temporal_shift'; its values are those of the dual head), "
            f"got {type(layer).__name__}."
        )
    if type(layer.attention) is not SoftmaxAttention:
        raise ValueError(f"layer: expected SoftmaxAttention, got {type(layer.attention).__name__}, no softmax.")
    kernel = layer.attention.kernel
    if isinstance(dim, bool) or not isinstance(dim, Integral) or dim < 1:
        raise ValueError(f"dim: expected an integer ≥ 1, got {dim!r}.")
    B = _score_matrix(kernel, dim)
    E = len(B) + MEMORY
    attention = nn.MultiheadAttention(E, num_heads=1, bias=False, batch_first=True, dtype=torch.float64, device="meta")
    projections = torch.zeros(3, E, E, dtype=torch.float64, device="cpu")
    projections[0, : len(B), : len(B)] = math.sqrt(E) * B.mT
    projections[1, : len(B), : len(B)] = torch.eye(len(B), device="cpu")
    projections[2] = layer.value_matrices(len(B))[0]
    attention.in_proj_weight = nn.Parameter(projections.flatten(0, 1), requires_grad=False)
    attention.out_proj.weight = nn.Parameter(torch.eye(E, dtype=torch.float64, device="cpu"), requires_grad=False)
    return MultiheadLayer(attention, copy.deepcopy(kernel) if isinstance(kernel, RBF) else None)


def _score_matrix(kernel: object, dim: int) -> Tensor:
    """B of the score x̃ᵀB x̃′ on the features that the head sees."""
    if type(kernel) is RBF:
        return lifted_score(dim)
    if type(kernel) is Exponential:
        return torch.eye(dim, dtype=torch.float64, device="cpu") / kernel.temperature.detach().double().cpu()
    if type(kernel) is not DotProduct:
        raise ValueError(
            f"layer: expected a kernel whose score is bilinear, DotProduct, Exponential or RBF, got {kernel!r}."
        )
    if len(kernel.matrix) != dim:
        raise ValueError(f"dim: expected {len(kernel.matrix)}, the dimension of the layer's matrix, got {dim!r}.")
    return kernel.matrix.detach().double().cpu()
