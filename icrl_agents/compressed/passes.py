"""Forward passes over compressed contexts, equal to those of the transformer."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from icrl_agents.arrays import check_kind
from icrl_agents.attention import KernelAttention, SoftmaxAttention
from icrl_agents.blocks import prompt_of
from icrl_agents.compressed.contexts import CompressedContexts
from icrl_agents.divergence import DivergenceError
from icrl_agents.eligibility import eligibility_traces
from icrl_agents.judgement import judge
from icrl_agents.kernel_binding import bind_kernel
from icrl_agents.kernel_matrix import check_finite, check_reached, has_score, score_matrix
from icrl_agents.layers import DualHeadLayer, LinearAttentionLayer, TemporalShiftLayer
from icrl_agents.magnitudes import widened
from icrl_agents.pure import is_patched
from icrl_agents.transformer import InContextTransformer


def state_values(transformer: InContextTransformer, contexts: CompressedContexts) -> Tensor:
    """Values at every point, ``(B, M)``: what ``transformer(contexts.context, contexts.points)`` returns.

    Softmax layers with a score cost O(M²) each and linear ones O(D³), whatever the number of transitions; every
    other transformer runs over all columns. Differentiable in the weights, also twice.

    Args:
        transformer: Any transformer.
        contexts: The contexts.

    Raises:
        TypeError: If an argument is of another type.
        DivergenceError: If a value is not finite, or as the transformer.
    """
    check_kind("transformer", transformer, InContextTransformer)
    check_kind("contexts", contexts, CompressedContexts)
    values = finite_state_values(transformer, contexts)
    errors = None if prompt_of(transformer.blocks[0]) == "average_reward" else _td_errors(values.detach(), contexts)
    judge(transformer, contexts.context, contexts.points, values, errors)
    return values


def _td_errors(values: Tensor, contexts: CompressedContexts) -> Tensor:
    """δ_k of every transition, ``(B, n)``, doubled: ``fit``, which judges them, has those of one layer before."""
    before, after = values.gather(-1, contexts.path[:, :-1]), values.gather(-1, contexts.path[:, 1:])
    return 2.0 * (contexts.context.rewards + contexts.discounts * after - before)


def finite_state_values(transformer: InContextTransformer, contexts: CompressedContexts) -> Tensor:
    """``state_values``, but values that no policy has are let be: for measurements of layers that diverge."""
    values = unchecked_state_values(transformer, contexts)
    if not bool(torch.isfinite(values.detach()).all()):
        raise DivergenceError("values are not finite: the layers diverge, or scores overflow, on one of the contexts.")
    return values


def unchecked_state_values(transformer: InContextTransformer, contexts: CompressedContexts) -> Tensor:
    """``state_values``, perhaps with NaN or infinities where others would raise: for losses that are checked anyway."""
    blocks = list(transformer.blocks)
    if all(type(block) is type(blocks[0]) and _is_compressible(block) for block in blocks):
        if isinstance(blocks[0], LinearAttentionLayer):
            return _linear_values(cast(list[LinearAttentionLayer], blocks), transformer.loops, contexts)
        return _softmax_values(cast(list[TemporalShiftLayer], blocks), transformer.loops, contexts)
    return transformer(contexts.context, contexts.points)


def attention(layer: TemporalShiftLayer, contexts: CompressedContexts) -> Tensor:
    """Empirical attention matrix K(s, s′) ∝ c(s′) exp g(s, s′), ``(B, M, M)``, over the points of each context.

    c counts the transitions that start at s′. Rows sum to 1; a row that no key reaches is 0.

    Args:
        layer: A layer with softmax attention whose kernel has a score.
        contexts: The contexts.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If the layer's attention is of another kind, or a score overflows.
    """
    check_kind("layer", layer, TemporalShiftLayer)
    if not _has_score(layer.attention):
        raise ValueError(
            f"layer: expected SoftmaxAttention over a kernel with a score, got {type(layer.attention).__name__} over "
            f"{layer.attention.kernel!r}."
        )
    check_kind("contexts", contexts, CompressedContexts)
    weights = _attention(layer, contexts)
    check_finite(weights)
    return weights


def _attention(layer: TemporalShiftLayer, contexts: CompressedContexts) -> Tensor:
    kernel = bind_kernel(layer.attention.kernel, contexts.context.states, contexts.context.mask)
    scores = score_matrix(kernel, contexts.points, contexts.points) + contexts.counts.log()[:, None, :]
    if not bool(torch.isneginf(scores).all(-1).any()):
        return torch.softmax(scores, -1).to(contexts.points)
    unreached = check_reached(kernel, scores, contexts.counts > 0)
    return torch.softmax(scores.masked_fill(unreached, 0.0), -1).masked_fill(unreached, 0.0).to(contexts.points)


def _is_compressible(block: torch.nn.Module) -> bool:
    if is_patched(block) or type(block) is LinearAttentionLayer:
        return not is_patched(block)
    return type(block) in (TemporalShiftLayer, DualHeadLayer) and _has_score(cast(TemporalShiftLayer, block).attention)


def _has_score(attention: SoftmaxAttention | KernelAttention) -> bool:
    return type(attention) is SoftmaxAttention and has_score(attention.kernel)


def _softmax_values(blocks: list[TemporalShiftLayer], loops: int, contexts: CompressedContexts) -> Tensor:
    """Iterates y ← C y + b over y = v, or y = [v; ũ] for two heads, where u_k = γ_k ũ(x′_k).

    The maps of looped blocks are composed to one, whose powers with exponents 1, 2, 4, … are then applied: they
    commute, so L loops take O(log L) products; in float64, since powers of two heads lose L² times their rounding.
    """
    (C, b), *others = [_affine_map(block, contexts) for block in blocks]
    for C_next, b_next in others:
        C, b = C_next @ C, torch.baddbmm(b_next, C_next, b)
    y = torch.zeros_like(b)
    while loops:
        if loops % 2:
            y = torch.baddbmm(b, C, y)
        loops //= 2
        if loops:
            C, b = C @ C, torch.baddbmm(b, C, b)
    return y[:, : contexts.rewards.shape[-1], 0].to(contexts.points)


def _affine_map(block: TemporalShiftLayer, contexts: CompressedContexts) -> tuple[Tensor, Tensor]:
    """C and b of one layer, ``(B, hM, hM)`` and ``(B, hM, 1)`` for h heads."""
    K = _attention(block, contexts)
    K_routed, K_reward = K @ contexts.routing, K @ contexts.rewards[..., None]
    w = block.value_weights.to(K)
    if isinstance(block, DualHeadLayer):
        t = block.target_weights.to(K)
        heads = [[w[2] * K, w[1] * K_routed], [t[2] * K, t[1] * K_routed]]
        C = torch.cat([torch.cat(row, -1) for row in heads], -2)
        b = torch.cat([w[0] * K_reward, t[0] * K_reward], -2)
    else:
        C, b = w[2] * K + w[1] * K_routed, w[0] * K_reward
    C, b = widened(C), widened(b)
    return C + torch.eye(C.shape[-1], dtype=C.dtype, device=C.device), b


def _linear_values(blocks: list[LinearAttentionLayer], loops: int, contexts: CompressedContexts) -> Tensor:
    """Iterates T ← T + (Σ_h P_h T G Tᵀ Q_h) T with the moments G = (1/n) Z M Zᵀ of the prompt's columns.

    After each layer every column z has become T z, and so Z M Zᵀ has become T Z M Zᵀ Tᵀ. Where φ and γφ′ are close,
    little of G is left of their difference, of which float32 has no digits.
    """
    context, n = contexts.context, len(contexts)
    tokens = widened(blocks[0].tokens(context, contexts.points))
    Z, queries = tokens[:, :n], tokens[:, n:]
    decays = {block.trace_decay for block in blocks}
    moments = {decay: (Z.mT @ eligibility_traces(context, Z, decay) / max(n, 1))[:, None] for decay in decays}
    T = torch.eye(Z.shape[-1], dtype=Z.dtype, device=Z.device).expand(len(Z), 1, -1, -1)
    for _ in range(loops):
        for block in blocks:
            A = block.P.to(Z) @ (T @ moments[block.trace_decay] @ T.mT) @ block.Q.to(Z)
            T = T + A.sum(1, keepdim=True) @ T
    return -(queries @ T[:, 0, -1, :, None])[..., 0].to(contexts.points)
