"""How close a transformer has come to a construction: its weights, its attention and its values."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from icrl_agents.compressed import CompressedContexts, attention
from icrl_agents.layers import DualHeadLayer, FullAttentionLayer, LinearAttentionLayer, TemporalShiftLayer
from icrl_agents.prompt import MEMORY
from icrl_agents.transformer import InContextTransformer
from icrl_agents.value_function import ValueFunction

TD_PATTERN = (1, 1, -1)
"""Signs of the value weights on (R, u, v) in the construction of arXiv 2605.07333."""


def value_weights(transformer: InContextTransformer) -> Tensor:
    """Weights of row v of each block's value head on (R, u, v), ``(blocks, 3)``.

    With two heads the sign of the memory row u is a convention, since the second head writes what the first one reads.
    It is taken such that the second head's weight on R is positive.

    Raises:
        TypeError: If a block has no memory prompt.
    """
    return torch.stack([_value_row(block)[-MEMORY:] for block in transformer.blocks])


def sign_pattern(transformer: InContextTransformer) -> list[tuple[int, ...]]:
    """Signs −1, 0 or +1 of ``value_weights``, one triple per block; (+1, +1, −1) in the construction."""
    return [tuple(int(sign) for sign in row.sign()) for row in value_weights(transformer)]


def sign_rate(transformers: list[InContextTransformer]) -> float:
    """Share of the transformers, for instance one per seed, of which every block has the signs (+1, +1, −1)."""
    if len(transformers) == 0:
        raise ValueError("transformers: expected at least one, got none.")
    hits = [all(signs == TD_PATTERN for signs in sign_pattern(transformer)) for transformer in transformers]
    return sum(hits) / len(hits)


def value_distance(transformer: InContextTransformer) -> Tensor:
    """Distance of each block's V to the construction up to a positive scale, min_{c ≥ 0} ‖cV − V*‖ / ‖V*‖.

    It is 0 at the construction, √(1 − cos²) in general and 1 where V is orthogonal to V* or worse. Two heads count
    as one vector; the linear construction's matrix is P = e eᵀ. Of a form with fewer free weights, the entries that
    are fixed agree.

    Returns:
        ``(blocks,)``.
    """
    return torch.stack([_distance(*_value_pair(block)) for block in transformer.blocks])


def value_row_distance(transformer: InContextTransformer) -> Tensor:
    """``value_distance`` of row v of the value head alone, which is what reaches the read-out; ``(blocks,)``.

    In the construction it is (+1, +1, −1) on (R, u, v) and 0 on the features; the linear one's is that of P.
    """
    distances = []
    for block in transformer.blocks:
        if isinstance(block, LinearAttentionLayer):
            row = block.P.detach()[:, -1]
            constructed = torch.zeros_like(row)
            constructed[:, -1] = 1.0
        else:
            row = _value_row(block)
            constructed = torch.zeros_like(row)
            constructed[-MEMORY:] = torch.tensor(TD_PATTERN)
        distances.append(_distance(row, constructed))
    return torch.stack(distances)


def attention_distance(transformer: InContextTransformer) -> Tensor:
    """Distance of each block's A to the construction up to a positive scale, ``(blocks,)``; see ``value_distance``.

    For softmax blocks A* has the identity on the features and 0 elsewhere; on the features both are first centred
    over the keys, since softmax does not see what all keys share. For linear ones Q* = [[−I, I, 0], 0, 0], C = I.
    """
    return torch.stack([_distance(*_attention_pair(block)) for block in transformer.blocks])


def context_diagonality(transformer: InContextTransformer, contexts: CompressedContexts) -> Tensor:
    """Mean over layers and visited states s of Σ_{k: x_k = s} K(x_k, s), ``(B,)``: attention to the state itself.

    A state's weight on its own visits is 1 in tabular TD and the share of its visits under uniform attention.

    Args:
        transformer: Softmax blocks only.
        contexts: The contexts.

    Raises:
        TypeError: If a block is linear.
    """
    if any(isinstance(block, FullAttentionLayer) for block in transformer.blocks):
        matrices = attention_by_layer(transformer, contexts)
    else:
        matrices = [attention(_softmax(block), contexts) for block in transformer.blocks]
    visited = contexts.counts > 0
    diagonals = torch.stack([matrix.diagonal(dim1=-2, dim2=-1) for matrix in matrices]).mean(0)
    return (diagonals * visited).sum(-1) / visited.sum(-1)


def attention_by_layer(transformer: InContextTransformer, contexts: CompressedContexts) -> list[Tensor]:
    """Attention of queries at the points to the points in each layer, ``(B, M, M)``; a mean over heads.

    Raises:
        TypeError: If a block is linear.
    """
    M, blocks = contexts.points.shape[-2], list(transformer.blocks)
    if not any(isinstance(block, FullAttentionLayer) for block in blocks):
        return [attention(_softmax(block), contexts) for block in blocks] * transformer.loops
    matrices = []
    for depth, tokens in enumerate(transformer.hidden_states(contexts.context, contexts.points)):
        block = blocks[depth % len(blocks)]
        if depth == transformer.num_layers:
            break
        if isinstance(block, FullAttentionLayer):
            weights = block.attention(tokens, contexts.context).mean(-3)
            matrices.append(contexts.by_point(weights[..., -M:, :]))
        else:
            matrices.append(attention(_softmax(block), contexts))
    return matrices


def value_difference(
    value_function: ValueFunction, reference: ValueFunction, states: Tensor, weights: Tensor
) -> Tensor:
    """Value difference Σ_i ρ_i (v(x_i) − v_ref(x_i))² of a model to an algorithm (arXiv 2405.13861), ``(*batch,)``.

    Args:
        value_function: The model's, from a context.
        reference: The algorithm's, from the same context.
        states: x, ``(*batch, m, d)``.
        weights: ρ, summing to 1, for instance a stationary distribution, ``(*batch, m)``.
    """
    return (weights * (value_function(states) - reference(states)).square()).sum(-1)


def implicit_weight_similarity(
    value_function: ValueFunction, reference: ValueFunction, states: Tensor, weights: Tensor
) -> Tensor:
    """Cosine similarity of the linear weights w that fit both value functions best (arXiv 2405.13861), ``(*batch,)``.

    w minimises Σ_i ρ_i (v(x_i) − x_iᵀw)²; where several do, it is the shortest. Arguments of ``value_difference``.
    """
    root = weights.sqrt()[..., None]
    both = torch.stack([value_function(states), reference(states)], dim=-1)
    w = torch.linalg.pinv(root * states) @ (root * both)
    return torch.cosine_similarity(w[..., 0], w[..., 1], dim=-1)


def sensitivity_similarity(
    value_function: ValueFunction, reference: ValueFunction, states: Tensor, weights: Tensor
) -> Tensor:
    """Weighted mean Σ_i ρ_i cos(∇v(x_i), ∇v_ref(x_i)) of the gradients in the query (arXiv 2405.13861), ``(*batch,)``.

    Both value functions must be differentiable in the state, which a kernel 1{x = x′} is not. Arguments of
    ``value_difference``.
    """
    gradients = [_gradient(function, states) for function in (value_function, reference)]
    return (weights * torch.cosine_similarity(*gradients, dim=-1)).sum(-1)


def _gradient(value_function: ValueFunction, states: Tensor) -> Tensor:
    with torch.enable_grad():
        queries = states.detach().requires_grad_(True)
        return torch.autograd.grad(value_function(queries).sum(), queries)[0]


def _distance(found: Tensor, constructed: Tensor) -> Tensor:
    cosine = torch.cosine_similarity(found.flatten(), constructed.flatten(), dim=0).clamp(0.0, 1.0)
    return (1.0 - cosine.square()).clamp(min=0.0).sqrt()


def _value_row(block: torch.nn.Module) -> Tensor:
    if isinstance(block, FullAttentionLayer):
        return _oriented(block.V.detach())[0, -1]
    row = _softmax(block).value_weights.detach().clone()
    if isinstance(block, DualHeadLayer) and block.target_weights[0] < 0:
        row[1] *= -1
    return row


def _oriented(V: Tensor) -> Tensor:
    """V of two heads with the sign of row u, the target, such that the second head's weight on R is positive."""
    if len(V) == 1 or V[1, -2, -MEMORY] >= 0:
        return V
    sign = torch.ones(V.shape[-1]).to(V)
    sign[-2] = -1.0
    return sign[:, None] * V * sign


def _value_pair(block: torch.nn.Module) -> tuple[Tensor, Tensor]:
    if isinstance(block, LinearAttentionLayer):
        constructed = torch.zeros_like(block.P)
        constructed[:, -1, -1] = 1.0
        return block.P.detach(), constructed
    signs = torch.tensor(TD_PATTERN, dtype=torch.float64)
    if isinstance(block, FullAttentionLayer):
        constructed = torch.zeros_like(block.V)
        for head in range(len(constructed)):
            constructed[head, -1 - head, -MEMORY:] = signs
        return _oriented(block.V.detach()), constructed
    found = _value_row(block)
    if isinstance(block, DualHeadLayer):
        target = block.target_weights.detach().clone()
        target[[0, 2]] *= 1.0 if target[0] >= 0 else -1.0
        return torch.cat([found, target]), signs.repeat(2)
    return found, signs


def _attention_pair(block: torch.nn.Module) -> tuple[Tensor, Tensor]:
    if isinstance(block, LinearAttentionLayer):
        constructed, d = torch.zeros_like(block.Q), block.dim
        constructed[:, :d, : 2 * d] = torch.cat([-torch.eye(d), torch.eye(d)], dim=-1)
        return block.Q.detach(), constructed
    if isinstance(block, FullAttentionLayer):
        A, d = block.A.detach().clone(), block.dim
        A[:, :d] -= A[:, :d].mean(1, keepdim=True)
    else:
        A = cast(Tensor, _softmax(block).attention.kernel.matrix).detach().mT[None]  # type: ignore[union-attr]
        A, d = A - A.mean(1, keepdim=True), A.shape[-1]
    constructed = torch.zeros_like(A)
    constructed[:, :d, :d] = torch.eye(d).to(A) - 1.0 / d
    return A, constructed


def _softmax(block: torch.nn.Module) -> TemporalShiftLayer:
    if not isinstance(block, TemporalShiftLayer):
        raise TypeError(f"transformer: expected layers over a memory prompt, got a {type(block).__name__}.")
    return block
