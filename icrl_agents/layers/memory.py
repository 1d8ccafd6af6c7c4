"""Layers over a memory prompt: one attention layer is one sweep of softmax or kernel TD.

With α(+1, +1, −1) as value weights on the rows (R, u, v), a key's message is its TD error, and attention delivers
it to every state: the update of weighted softmax TD (arXiv 2605.07333) under ``SoftmaxAttention`` and of kernel TD
(arXiv 2605.09727) under ``KernelAttention``.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from icrl_agents import prompt
from icrl_agents.arrays import constant
from icrl_agents.attention import BoundAttention, KernelAttention, SoftmaxAttention, attend
from icrl_agents.blockwise import BlockwiseMatrix
from icrl_agents.context import Context
from icrl_agents.prompt import MEMORY, memory_tokens
from icrl_agents.weighted_context import Transitions

TD_SIGNS = (1.0, 1.0, -1.0)


class TemporalShiftLayer(nn.Module):
    """One attention head, then the parameter-free Temporal Shift Module u ← γ·shift(v) (arXiv 2605.07333).

        Z ← Z + V Z · K(Zᵀ A Z),   then row u ← route(row v)

    V has the single non-zero row v, holding ``value_weights`` on (R, u, v). Equal states of a context may be kept once
    (``weighted``): tokens and messages are then means over their visits, and attention counts these.

    Args:
        attention: Attention over the features.
        value_weights: Weights on (R, u, v), shape ``(3,)``.
    """

    weighted = True

    def __init__(
        self, attention: SoftmaxAttention | KernelAttention, value_weights: Tensor | tuple[float, ...] = TD_SIGNS
    ) -> None:
        super().__init__()
        if not isinstance(attention, (SoftmaxAttention, KernelAttention)):
            raise TypeError(
                "attention: expected SoftmaxAttention(kernel) or KernelAttention(kernel), "
                f"got {type(attention).__name__}."
            )
        self.attention = attention
        self.value_weights = _weights("value_weights", value_weights)

    @property
    def step_size(self) -> float | None:
        """α where the layer is one sweep of TD, its weights α(+1, +1, −1); None elsewhere."""
        return td_step_size(self.value_weights)

    def tokens(self, context: Transitions, queries: Tensor) -> Tensor:
        """The prompt of this layer, ``(*batch, columns, d + 3)``."""
        return memory_tokens(cast(Context, context), queries)

    def bind(self, context: Transitions) -> BoundAttention:
        """The layer's attention to the transitions of ``context``; the layer never changes its features."""
        return attend(self.attention, context)

    def attend(self, bound: BoundAttention, tokens: Tensor) -> Tensor | BlockwiseMatrix:
        """Attention weights of every column, ``(*batch, columns, n)``; they depend on the features alone."""
        return bound.over(tokens[..., :-MEMORY])

    def messages(self, tokens: Tensor, context: Transitions) -> Tensor:
        """What each key sends to the value row, ``(*batch, n)``: α δ_k at the constructed weights; padding nothing."""
        return _send(tokens, context, self.value_weights)

    def forward(self, tokens: Tensor, context: Transitions, weights: Tensor | BlockwiseMatrix) -> Tensor:
        """Returns the tokens after the layer, ``(*batch, columns, d + 3)``; ``weights`` are of ``attend``."""
        features, reward, _, value = _split(tokens)
        value = value + _receive(weights, self.messages(tokens, context))
        return _join(features, reward, route(context, value), value)

    def read_out(self, tokens: Tensor) -> Tensor:
        """Values of every column, ``(*batch, columns)``."""
        return tokens[..., -1]

    def value_matrices(self, dim: int) -> tuple[Tensor, ...]:
        """The matrix V ``(d+3, d+3)`` of the head, in the papers' convention."""
        return (_value_matrix(dim, -1, self.value_weights),)


class DualHeadLayer(TemporalShiftLayer):
    """Two heads that share one attention (arXiv 2605.07333 and 2605.09727, dual-head layer).

        Z ← Z + V₁ Z W + V₂ Z W Γ

    The current-value head V₁ writes row v; the target-value head V₂ writes row u through the routing Γ, so that
    u_k keeps γ_k v(x′_k). The discount lives in the routing, γ_k from column succ(k) to column k, and not in V₂:
    the weights are then the same for every γ and for terminal transitions.

    Args:
        attention: Attention over the features.
        value_weights: Row v of V₁ on (R, u, v), shape ``(3,)``.
        target_weights: Row u of V₂ on (R, u, v), shape ``(3,)``.
    """

    def __init__(
        self,
        attention: SoftmaxAttention | KernelAttention,
        value_weights: Tensor | tuple[float, ...] = TD_SIGNS,
        target_weights: Tensor | tuple[float, ...] = TD_SIGNS,
    ) -> None:
        super().__init__(attention, value_weights)
        self.target_weights = _weights("target_weights", target_weights)

    @property
    def step_size(self) -> float | None:
        """α where both heads hold α(+1, +1, −1); None elsewhere."""
        equal = torch.equal(self.value_weights.detach(), self.target_weights.detach())
        return td_step_size(self.value_weights) if equal else None

    def forward(self, tokens: Tensor, context: Transitions, weights: Tensor | BlockwiseMatrix) -> Tensor:
        """Returns the tokens after the layer, ``(*batch, columns, d + 3)``; ``weights`` are of ``attend``."""
        features, reward, target, value = _split(tokens)
        messages = torch.stack([self.messages(tokens, context), _send(tokens, context, self.target_weights)], dim=-1)
        to_value, to_target = (weights @ messages).unbind(-1)
        return _join(features, reward, target + route(context, to_target), value + to_value)

    def value_matrices(self, dim: int) -> tuple[Tensor, ...]:
        """The matrices V₁ and V₂ ``(d+3, d+3)`` of the heads, in the papers' convention."""
        return (*super().value_matrices(dim), _value_matrix(dim, -2, self.target_weights))


def _weights(name: str, weights: Tensor | tuple[float, ...]) -> nn.Parameter:
    tensor = constant(name, weights)
    if tensor.shape != (MEMORY,) or not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name}: expected {MEMORY} finite weights on (R, u, v), got {weights!r}.")
    return nn.Parameter(tensor, requires_grad=False)


def route(context: Transitions, row: Tensor) -> Tensor:
    """``prompt.route``; of a context whose equal states are kept once, the mean over the visits of each."""
    if isinstance(context, Context):
        return prompt.route(context, row)
    routed = context.bootstrap(row)
    return torch.cat([routed, torch.zeros_like(row[..., routed.shape[-1] :])], dim=-1)


def td_step_size(weights: Tensor) -> float | None:
    """α of weights α(+1, +1, −1) on (R, u, v); None of others."""
    alpha = weights.detach()[0]
    return (
        float(alpha) if bool(alpha > 0) and torch.equal(weights.detach(), alpha * alpha.new_tensor(TD_SIGNS)) else None
    )


def _send(tokens: Tensor, context: Transitions, weights: Tensor) -> Tensor:
    sent = tokens[..., : len(context), -MEMORY:] @ weights.to(tokens)
    return sent.masked_fill(~context.mask, 0.0)


def _receive(weights: Tensor | BlockwiseMatrix, messages: Tensor) -> Tensor:
    return (weights @ messages[..., None])[..., 0]


def _split(tokens: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return tokens[..., :-MEMORY], tokens[..., -3], tokens[..., -2], tokens[..., -1]


def _join(features: Tensor, reward: Tensor, target: Tensor, value: Tensor) -> Tensor:
    return torch.cat([features, torch.stack([reward, target, value], dim=-1)], dim=-1)


def _value_matrix(dim: int, row: int, weights: Tensor) -> Tensor:
    matrix = weights.new_zeros((dim + MEMORY, dim + MEMORY))
    matrix[row, dim:] = weights.detach()
    return matrix
