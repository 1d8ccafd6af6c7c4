"""How close a transformer has come to a construction: its weights, its attention and its values."""

from __future__ import annotations

import torch
from torch import Tensor

from icrl_agents.arrays import check_kind, check_list, finite, same_shape
from icrl_agents.compressed import CompressedContexts, attention
from icrl_agents.layers import DualHeadLayer, FullAttentionLayer, TemporalShiftLayer
from icrl_agents.magnitudes import cosine_similarity, near_power_of_two, widened
from icrl_agents.prompt import MEMORY
from icrl_agents.transformer import InContextTransformer
from icrl_agents.value_function import ValueFunction

TD_PATTERN = (1, 1, -1)
"""Signs of the value weights on (R, u, v) in the construction of arXiv 2605.07333."""
_LARGEST_GAP = 1e-4


def value_weights(transformer: InContextTransformer) -> Tensor:
    """Weights of row v of each block's value head on (R, u, v), ``(blocks, 3)``.

    With two heads the sign of the memory row u is a convention, since the second head writes what the first one reads.
    It is taken such that the second head's weight on R is positive.

    Raises:
        TypeError: If a block has no memory prompt.
    """
    check_kind("transformer", transformer, InContextTransformer)
    return torch.stack([value_row(block)[-MEMORY:] for block in transformer.blocks])


def sign_pattern(transformer: InContextTransformer) -> list[tuple[int, ...]]:
    """Signs −1, 0 or +1 of ``value_weights``, one triple per block; (+1, +1, −1) in the construction."""
    return [tuple(int(sign) for sign in row.sign()) for row in value_weights(transformer)]


def sign_rate(transformers: list[InContextTransformer]) -> float:
    """Share of the transformers, for instance one per seed, of which every block has the signs (+1, +1, −1)."""
    check_list("transformers", transformers, InContextTransformer)
    hits = [all(signs == TD_PATTERN for signs in sign_pattern(transformer)) for transformer in transformers]
    return sum(hits) / len(hits)


def context_diagonality(transformer: InContextTransformer, contexts: CompressedContexts) -> Tensor:
    """Mean over layers and visited states s of Σ_{k: x_k = s} K(x_k, s), ``(B,)``: attention to the state itself.

    It is 0 where no state was visited.

    A state's weight on its own visits is 1 in tabular TD and the share of its visits under uniform attention.

    Args:
        transformer: Softmax blocks only.
        contexts: The contexts.

    Raises:
        TypeError: If a block is linear.
    """
    check_kind("transformer", transformer, InContextTransformer)
    check_kind("contexts", contexts, CompressedContexts)
    if any(isinstance(block, FullAttentionLayer) for block in transformer.blocks):
        matrices = attention_by_layer(transformer, contexts)
    else:
        matrices = [attention(softmax_block(block), contexts) for block in transformer.blocks]
    visited = contexts.counts > 0
    diagonals = torch.stack([matrix.diagonal(dim1=-2, dim2=-1) for matrix in matrices]).mean(0)
    return (diagonals * visited).sum(-1) / visited.sum(-1).clamp(min=1)


def attention_by_layer(transformer: InContextTransformer, contexts: CompressedContexts) -> list[Tensor]:
    """Attention of queries at the points to the points in each layer, ``(B, M, M)``; a mean over heads.

    Raises:
        TypeError: If a block is linear.
    """
    check_kind("transformer", transformer, InContextTransformer)
    check_kind("contexts", contexts, CompressedContexts)
    M, blocks = contexts.points.shape[-2], list(transformer.blocks)
    if not any(isinstance(block, FullAttentionLayer) for block in blocks):
        return [attention(softmax_block(block), contexts) for block in blocks] * transformer.loops
    matrices = []
    for depth, tokens in enumerate(transformer.hidden_states(contexts.context, contexts.points)):
        block = blocks[depth % len(blocks)]
        if depth == transformer.num_layers:
            break
        if isinstance(block, FullAttentionLayer):
            weights = block.attention(tokens, contexts.context).mean(-3)
            matrices.append(contexts.by_point(weights[..., -M:, :]))
        else:
            matrices.append(attention(softmax_block(block), contexts))
    return matrices


def value_difference(
    value_function: ValueFunction, reference: ValueFunction, states: Tensor, weights: Tensor
) -> Tensor:
    """Value difference Σ_i ρ_i (v(x_i) − v_ref(x_i))² of a model to an algorithm (arXiv 2405.13861), ``(*batch,)``.

    Args:
        value_function: The model's, from a context.
        reference: The algorithm's, from the same context. Of differential values, which average-reward evaluators
            determine up to a constant, the constants count.
        states: x, ``(*batch, m, d)``.
        weights: ρ, summing to 1, for instance a stationary distribution, ``(*batch, m)``.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If the weights have another shape, are negative or do not sum to 1.
    """
    _check_compared(value_function, reference, states, weights)
    return (weights * (value_function(states) - reference(states)).square()).sum(-1)


def implicit_weight_similarity(
    value_function: ValueFunction, reference: ValueFunction, states: Tensor, weights: Tensor
) -> Tensor:
    """Cosine similarity of the linear weights w that fit both value functions best (arXiv 2405.13861), ``(*batch,)``.

    w minimises Σ_i ρ_i (v(x_i) − x_iᵀw)²; where several do, it is the shortest. Where one of the two is 0 there is
    nothing alike, and the similarity is 0, even of a function to itself. Arguments of ``value_difference``.
    """
    _check_compared(value_function, reference, states, weights)
    root = widened(weights).sqrt()[..., None]
    values = torch.broadcast_tensors(value_function(states), reference(states))  # one may be of a batch, one not
    both = widened(torch.stack(values, dim=-1))
    w = _shortest_fit(root * widened(states), root * both)
    return cosine_similarity(w[..., 0], w[..., 1], dim=-1).to(states.dtype)


def _shortest_fit(x: Tensor, y: Tensor) -> Tensor:
    """The shortest w that minimises ‖y − x w‖, ``(*batch, d, c)``; each feature in a unit near its largest number."""
    largest = x.detach().abs().amax(-2)
    unit = torch.where(largest > 0, near_power_of_two(largest), 1.0)[..., None]
    m, d = x.shape[-2:]
    U, s, Vt = torch.linalg.svd(x / unit.mT, full_matrices=m < d)  # all d rows of Vᵀ either way
    spans = s > max(m, d) * torch.finfo(x.dtype).eps * s.amax(-1, keepdim=True)
    fitted = ((U.mT @ y) / s.masked_fill(~spans, 1.0)[..., None]).masked_fill(~spans[..., None], 0.0)
    w = Vt.mT[..., : s.shape[-1]] @ fitted / unit
    spans = torch.nn.functional.pad(spans, (0, d - s.shape[-1]))
    free = Vt.mT.masked_fill(spans[..., None, :], 0.0) / unit  # what w may change by
    return w - torch.where(spans.all(-1)[..., None, None], 0.0, free @ (torch.linalg.pinv(free) @ w))


def sensitivity_similarity(
    value_function: ValueFunction, reference: ValueFunction, states: Tensor, weights: Tensor
) -> Tensor:
    """Weighted mean Σ_i ρ_i cos(∇v(x_i), ∇v_ref(x_i)) of the gradients in the query (arXiv 2405.13861), ``(*batch,)``.

    Both value functions must be differentiable in the state, which a kernel 1{x = x′} is not. A state at which one of
    them is flat counts as 0, so that a function has to itself the share of the weight where it is not. Gradients
    count however small they are: those of values that rounding alone keeps from being flat are rounding too. Arguments
    of ``value_difference``.
    """
    _check_compared(value_function, reference, states, weights)
    gradients = [_gradient(function, states) for function in (value_function, reference)]
    return (weights * cosine_similarity(*gradients, dim=-1)).sum(-1)


def _check_compared(value_function: ValueFunction, reference: ValueFunction, states: Tensor, weights: Tensor) -> None:
    for name, value in (("value_function", value_function), ("reference", reference)):
        check_kind(name, value, ValueFunction)
    for name, tensor in (("states", states), ("weights", weights)):
        check_kind(name, tensor, Tensor)
    same_shape("weights", weights, states.shape[:-1])
    finite("weights", weights)
    if bool((weights < 0).any()) or not bool(((weights.sum(-1) - 1.0).abs() < _LARGEST_GAP).all()):
        raise ValueError("weights: expected numbers ≥ 0 that sum to 1; divide them by their sum.")


@torch.inference_mode(False)
def _gradient(value_function: ValueFunction, states: Tensor) -> Tensor:
    with torch.enable_grad():
        batch = torch.broadcast_shapes(states.shape[:-2], value_function.context.rewards.shape[:-1])
        queries = states.detach().expand(*batch, -1, -1).clone().requires_grad_(True)  # of each context its own
        return torch.autograd.grad(value_function(queries).sum(), queries)[0]


def value_row(block: torch.nn.Module) -> Tensor:
    """Row v of the value head: on (R, u, v), or on all rows of the prompt where all weights are free."""
    if isinstance(block, FullAttentionLayer):
        return oriented(block.V.detach())[0, -1]
    row = softmax_block(block).value_weights.detach().clone()
    if isinstance(block, DualHeadLayer) and block.target_weights[0] < 0:
        row[1] *= -1
    return row


def oriented(V: Tensor) -> Tensor:
    """V of two heads with the sign of row u, the target, such that the second head's weight on R is positive."""
    if len(V) == 1 or V[1, -2, -MEMORY] >= 0:
        return V
    sign = V.new_ones(V.shape[-1])
    sign[-2] = -1.0
    return sign[:, None] * V * sign


def softmax_block(block: torch.nn.Module) -> TemporalShiftLayer:
    """Returns the block, if it is a layer over a memory prompt; raises TypeError otherwise."""
    if not isinstance(block, TemporalShiftLayer):
        raise TypeError(f"transformer: expected layers over a memory prompt, got a {type(block).__name__}.")
    return block
