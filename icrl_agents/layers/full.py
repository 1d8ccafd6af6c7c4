"""Layers over a memory prompt whose value and attention matrices are free: nothing is fixed to zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from icrl_agents.arrays import constant, take_rows
from icrl_agents.checked import Checked, CheckedModule, one_of
from icrl_agents.context import Context
from icrl_agents.magnitudes import for_products
from icrl_agents.prompt import MEMORY, memory_tokens, route
from icrl_agents.value_function import Basis

Form = Literal["temporal_shift", "dual_head"]
_HEADS = {"temporal_shift": 1, "dual_head": 2}


class FullAttentionLayer(CheckedModule):
    """Softmax attention over all rows of the prompt (arXiv 2605.07333, dual-head layer before its sparsity pattern).

        Z ← Z + V₁ Z W₁ (+ V₂ Z W₂ Γ for two heads),   W_h = softmax over the keys of Zᵀ A_h Z

    With ``"temporal_shift"`` one head is followed by u ← route(v). Every row, the features too, may be written and
    read, so the attention changes from layer to layer and a query's value is no kernel expansion: a transformer
    of such layers runs its queries through all of them.

    Args:
        V: Value matrices, ``(D, D)`` or ``(H, D, D)`` with D = d + 3; H is 1 for ``"temporal_shift"``, otherwise 2.
        A: Attention matrices, shape of ``V``, the key on the left as in Zᵀ A Z.
        form: ``"temporal_shift"`` or ``"dual_head"``.

    Raises:
        ValueError: If ``form`` is unknown, or shapes disagree or do not fit it.
    """

    expands = False
    form: Checked[Form] = Checked(one_of(_HEADS))

    def __init__(self, V: Tensor, A: Tensor, *, form: Form = "temporal_shift") -> None:
        super().__init__()
        self.form = form
        self.V, self.A = _heads("V", V, _HEADS[form]), _heads("A", A, _HEADS[form])
        if self.V.shape != self.A.shape:
            raise ValueError(f"A: expected the shape of V, {tuple(self.V.shape)}, got {tuple(self.A.shape)}.")

    @property
    def dim(self) -> int:
        """State dimension d."""
        return self.V.shape[-1] - MEMORY

    def tokens(self, context: Context, queries: Tensor) -> Tensor:
        """The prompt of this layer, ``(*batch, columns, d + 3)``."""
        if context.dim != self.dim:
            raise ValueError(f"context: expected dimension {self.dim}, that of the weights, got {context.dim}.")
        return memory_tokens(context, queries)

    def bind(self, context: Context) -> Basis:
        """The values themselves: there is no basis in which the layer's increments could be expanded."""
        return lambda queries: queries[..., :0]

    def attend(self, bound: Basis, tokens: Tensor) -> Tensor:
        """Nothing: the attention changes with the tokens."""
        return tokens.new_zeros(())

    def messages(self, tokens: Tensor, context: Context) -> Tensor:
        """Nothing: see ``bind``."""
        return tokens[..., 0, :0]

    def attention(self, tokens: Tensor, context: Context) -> Tensor:
        """W of every head, ``(*batch, H, columns, n)``; rows sum to 1 over the keys."""
        columns, keys = for_products(tokens, tokens[..., : len(context), :], self.A)
        scores = columns[..., None, :, :] @ self.A.to(columns).mT @ keys[..., None, :, :].mT
        if bool(context.mask.all()):
            return torch.softmax(scores, -1).to(tokens)
        mask = context.mask[..., None, None, :]
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return torch.softmax(scores, -1).masked_fill(~mask, 0.0).to(tokens)

    def forward(self, tokens: Tensor, context: Context, weights: Tensor) -> Tensor:
        """Returns the tokens after the layer, ``(*batch, columns, d + 3)``."""
        messages = tokens[..., : len(context), :][..., None, :, :] @ self.V.to(tokens).mT
        received = self.attention(tokens, context) @ messages
        if self.form == "dual_head":
            return tokens + received[..., 0, :, :] + _route_rows(context, received[..., 1, :, :])
        tokens = tokens + received[..., 0, :, :]
        target = route(context, tokens[..., -1])[..., None]
        return torch.cat([tokens[..., :-2], target, tokens[..., -1:]], dim=-1)

    def read_out(self, tokens: Tensor) -> Tensor:
        """Values of every column, ``(*batch, columns)``."""
        return tokens[..., -1]

    def value_matrices(self, dim: int) -> tuple[Tensor, ...]:
        """The matrices V ``(d+3, d+3)`` of the heads, in the papers' convention."""
        return tuple(self.V.detach())

    def settings(self) -> dict[str, Any]:
        """Everything but V and A, as ``from_settings`` takes it."""
        return {"form": self.form}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Self:
        """Returns the layer with these ``settings`` and the ``weights`` V and A."""
        return cls(weights["V"], weights["A"], form=settings["form"])

    def extra_repr(self) -> str:
        """The settings."""
        return f"form={self.form!r}"


def _route_rows(context: Context, rows: Tensor) -> Tensor:
    """Entry k becomes γ_k · rows[succ(k)], ``(*batch, columns, D)``; 0 where no transition starts."""
    routed = context.discounts[..., None] * take_rows(rows, context.successors)
    return torch.cat([routed, torch.zeros_like(rows[..., len(context) :, :])], dim=-2)


def _heads(name: str, weights: Tensor, count: int) -> nn.Parameter:
    tensor = constant(name, weights)
    tensor = tensor[None] if tensor.ndim == 2 else tensor
    if tensor.ndim != 3 or len(tensor) != count or tensor.shape[-1] != tensor.shape[-2] or tensor.shape[-1] <= MEMORY:
        raise ValueError(f"{name}: expected shape ({count}, d + 3, d + 3) with d ≥ 1, got {tuple(tensor.shape)}.")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name}: expected finite weights, got NaN or inf.")
    return nn.Parameter(tensor, requires_grad=False)
