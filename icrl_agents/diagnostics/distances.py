"""Distance of a transformer's weights to those of a construction, up to what its layers cannot tell apart."""

from __future__ import annotations

from typing import cast

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from icrl_agents.arrays import check_kind
from icrl_agents.constructions import average_reward_td, linear_td
from icrl_agents.diagnostics.emergence import TD_PATTERN, oriented, softmax_block, value_row
from icrl_agents.kernels import DotProduct
from icrl_agents.layers import DualHeadLayer, FullAttentionLayer, LinearAttentionLayer
from icrl_agents.magnitudes import cosine_similarity
from icrl_agents.prompt import MEMORY
from icrl_agents.transformer import InContextTransformer
from icrl_envs import arguments

_TIED = 1e-6
"""Differences between fits of heads that are rounding."""


def value_distance(transformer: InContextTransformer, construction: InContextTransformer | None = None) -> Tensor:
    """Distance of each block's V to the construction up to a positive scale, min_{c ≥ 0} ‖cV − V*‖ / ‖V*‖.

    It is 0 at the construction, √(1 − cos²) in general and 1 where V is orthogonal to V* or worse. Two softmax heads
    count as one vector, in which the sign of the memory row u is a convention; its unit is not, though one that is c
    times as large throughout gives the same values. Of a form with fewer free weights, the entries that are fixed
    agree; with one head, what V writes into row u does not count, since the shift writes there.

    In a linear layer, V is P. It acts through Σ_h P_h (·) Q_h alone: heads may swap, and P_h may be multiplied by any
    c ≠ 0 if Q_h is divided by it. So heads are matched to the construction's and each gets one sign, common to its P
    and its Q, such that both together fit best; the distance is the root mean square over heads. A flip of one of
    the two alone is no symmetry: it leaves one of the distances at 1.

    Args:
        transformer: Softmax or linear blocks.
        construction: What linear blocks are compared with; by default ``linear_td`` (``average_reward_td`` for the
            average-reward prompt).

    Returns:
        ``(blocks,)``.

    Raises:
        TypeError: If an argument is no transformer, or a block's attention has no matrix or its prompt no memory.
        ValueError: If the construction has another prompt.
    """
    return torch.stack([_of_values(block, construction) for block in _blocks(transformer, construction)])


def value_row_distance(transformer: InContextTransformer, construction: InContextTransformer | None = None) -> Tensor:
    """``value_distance`` of row v of the value head alone, which is what reaches the read-out; ``(blocks,)``.

    In the construction it is (+1, +1, −1) on (R, u, v) and 0 on the features; the linear one's is that of P.
    """
    distances = []
    for block in _blocks(transformer, construction):
        if isinstance(block, LinearAttentionLayer):
            P, _, constructed, _ = _matched(block, construction)
            distances.append(_mean_distance(P[:, -1], constructed[:, -1]))
            continue
        row = value_row(block)
        constructed = torch.zeros_like(row)
        constructed[-MEMORY:] = row.new_tensor(TD_PATTERN)
        distances.append(_distance(row, constructed))
    return torch.stack(distances)


def attention_distance(
    transformer: InContextTransformer, construction: InContextTransformer | None = None, *, one_hot: bool = True
) -> Tensor:
    """Distance of each block's A to the construction up to a positive scale, ``(blocks,)``; see ``value_distance``.

    For softmax blocks A* has the identity on the features and 0 elsewhere. For linear ones A is Q.

    Args:
        transformer: As of ``value_distance``.
        construction: As of ``value_distance``.
        one_hot: Whether the features of each state sum to the same number, as one-hot ones do. Then a row that is
            added to each row of A adds as much to the scores of all keys, which softmax does not see, and both are
            first centred over the keys on the features. Not so in general, where False compares them as they are.
    """
    arguments.flag("one_hot", one_hot)
    return torch.stack([_of_attention(block, construction, one_hot) for block in _blocks(transformer, construction)])


def _blocks(transformer: InContextTransformer, construction: InContextTransformer | None) -> list[torch.nn.Module]:
    check_kind("transformer", transformer, InContextTransformer)
    if construction is not None:
        check_kind("construction", construction, InContextTransformer)
    return list(transformer.blocks)


def _of_values(block: torch.nn.Module, construction: InContextTransformer | None) -> Tensor:
    if isinstance(block, LinearAttentionLayer):
        P, _, constructed, _ = _matched(block, construction)
        return _mean_distance(P, constructed)
    signs = next(block.parameters()).new_tensor(TD_PATTERN)
    if isinstance(block, FullAttentionLayer):
        constructed = torch.zeros_like(block.V)
        for head in range(len(constructed)):
            constructed[head, -1 - head, -MEMORY:] = signs
        found = oriented(block.V.detach()).clone()
        if len(found) == 1:
            found[:, -2] = 0.0  # row u of one head, in whose place the shift writes
        return _distance(found, constructed)
    found = value_row(block)
    if isinstance(block, DualHeadLayer):
        target = block.target_weights.detach().clone()
        target[[0, 2]] *= 1.0 if target[0] >= 0 else -1.0
        return _distance(torch.cat([found, target]), signs.repeat(2))
    return _distance(found, signs)


def _of_attention(block: torch.nn.Module, construction: InContextTransformer | None, one_hot: bool) -> Tensor:
    if isinstance(block, LinearAttentionLayer):
        _, Q, _, constructed = _matched(block, construction)
        return _mean_distance(Q, constructed)
    if isinstance(block, FullAttentionLayer):
        A, d = block.A.detach().clone(), block.dim
        A[:, :d] -= one_hot * A[:, :d].mean(1, keepdim=True)
    else:
        kernel = softmax_block(block).attention.kernel
        check_kind("transformer: kernel", kernel, DotProduct, ", which has no matrix to compare")
        A = cast(DotProduct, kernel).matrix.detach().mT[None]
        A, d = A - one_hot * A.mean(1, keepdim=True), A.shape[-1]
    constructed = torch.zeros_like(A)
    constructed[:, :d, :d] = torch.eye(d, device=A.device).to(A) - one_hot / d
    return _distance(A, constructed)


def _matched(
    block: LinearAttentionLayer, construction: InContextTransformer | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """P and Q of the block with heads in order and signs chosen, then those of the construction, ``(H, D, D)``."""
    if construction is None:
        draw = average_reward_td if block.prompt == "average_reward" else linear_td
        construction = draw(block.dim, 1)
    target = construction.blocks[0]
    if not isinstance(target, LinearAttentionLayer) or target.P.shape[1:] != block.P.shape[1:]:
        raise ValueError("construction: expected a linear transformer over the same prompt as the one measured.")
    P, Q = block.P.detach(), block.Q.detach()
    P_target, Q_target = target.P.detach().to(P).expand_as(P), target.Q.detach().to(Q).expand_as(Q)
    fit = _cosines(P, P_target) + _cosines(Q, Q_target)  # (found, constructed)
    own = _TIED * torch.eye(
        len(P), device=P.device, dtype=P.dtype
    )  # orders that fit as well leave heads where they are
    heads, order = linear_sum_assignment((fit.mT.abs().nan_to_num() + own).numpy(force=True), maximize=True)
    signs = torch.where(fit[order, heads] >= 0, 1.0, -1.0).to(P)[:, None, None]
    return signs * P[order], signs * Q[order], P_target, Q_target


def _cosines(found: Tensor, constructed: Tensor) -> Tensor:
    return cosine_similarity(found.flatten(1)[:, None], constructed.flatten(1)[None], dim=-1)


def _mean_distance(found: Tensor, constructed: Tensor) -> Tensor:
    distances = [_distance(*pair) for pair in zip(found, constructed, strict=True)]
    return torch.stack(distances).square().mean().sqrt()


def _distance(found: Tensor, constructed: Tensor) -> Tensor:
    cosine = cosine_similarity(found.flatten(), constructed.flatten(), dim=0).clamp(0.0, 1.0)
    return (1.0 - cosine.square()).clamp(min=0.0).sqrt()
