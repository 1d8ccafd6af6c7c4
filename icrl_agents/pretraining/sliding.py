"""The TD loss of contexts that slide along a trajectory: fast for softmax layers, which share their scores."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from icrl_agents.attention import SoftmaxAttention
from icrl_agents.compressed import SharedSweeps, SlidingWindows
from icrl_agents.compressed.passes import unchecked_state_values as state_values
from icrl_agents.kernels import DotProduct
from icrl_agents.layers import TemporalShiftLayer
from icrl_agents.transformer import InContextTransformer

LARGEST_SPREAD = 60.0
"""Differences of scores up to which no window's normaliser comes near underflow, in float32 too."""


def sliding_td_loss(transformer: InContextTransformer, windows: SlidingWindows) -> Tensor:
    """Semi-gradient TD, mean (R + γ sg[v̂_{t+1}(S_{n+t+1})] − v̂_t(S_{n+t}))², v̂_t from the window that starts at S_t.

    Of one looped softmax layer with the Temporal Shift Module and a dot-product score, loss and gradient are computed
    together, with scores that all windows of a trajectory share, where these are on the processor; otherwise, and on
    every other device, each window is a context of its own.
    """
    block = transformer.blocks[0]
    if len(transformer.blocks) == 1 and transformer.loops > 0 and _shares_scores(block, windows):
        matrix: Tensor = block.attention.kernel.matrix  # type: ignore[assignment]
        weights = block.value_weights
        if (known := _loss_and_gradients(matrix, weights, transformer.loops, windows)) is not None:
            return _Known.apply(matrix, weights, *known)  # type: ignore[return-value]
    return plain_td_loss(transformer, windows)


def plain_td_loss(transformer: InContextTransformer, windows: SlidingWindows) -> Tensor:
    """``sliding_td_loss`` of any transformer, one context per window."""
    values = state_values(transformer, windows.contexts).view(windows.counts.shape)
    queries = windows.queries
    at_end = values.gather(-1, queries[..., None])[..., 0]
    rewards, gamma = windows.rewards.gather(-1, queries[:, :-1]), windows.discounts[:, 1 - queries.shape[1] :]
    return (rewards + gamma * at_end[:, 1:].detach() - at_end[:, :-1]).square().mean()


class _Known(torch.autograd.Function):
    """A loss whose gradients in two weights are known already."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, weights: Tensor, loss: float, *gradients: Tensor) -> Tensor:  # noqa: ANN401
        """Returns the loss."""
        ctx.gradients = gradients
        return weights.new_tensor(loss)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Scales the gradients."""
        return *(grad_outputs[0] * gradient for gradient in ctx.gradients), None, None, None


def _shares_scores(block: nn.Module, windows: SlidingWindows) -> TypeGuard[TemporalShiftLayer]:
    if type(block) is not TemporalShiftLayer or type(block.attention) is not SoftmaxAttention:
        return False
    return type(block.attention.kernel) is DotProduct and windows.points.device.type == "cpu"


def _loss_and_gradients(
    matrix: Tensor, weights: Tensor, loops: int, windows: SlidingWindows
) -> tuple[float, Tensor, Tensor] | None:
    """The loss and its gradients; None if scores spread so far that a window's normaliser could underflow."""
    phi = windows.points.numpy()
    scores = phi @ matrix.detach().numpy().astype(phi.dtype) @ phi.mT
    if not scores.max() - scores.min() < LARGEST_SPREAD:
        return None
    sweeps = SharedSweeps(scores, weights.tolist(), windows)
    loss, gradient = _td_loss(sweeps.values(loops), windows)
    to_scores, to_weights = sweeps.gradients(gradient)
    to_matrix = (phi.mT @ to_scores @ phi).sum(0).astype(np.float64)
    return loss, torch.from_numpy(to_matrix), weights.new_tensor(to_weights)


def _td_loss(values: np.ndarray, windows: SlidingWindows) -> tuple[float, np.ndarray]:
    """The loss and its gradient in the values, whose targets stand still, ``(B, W, M)``."""
    queries, rewards = windows.queries.numpy(), windows.rewards.numpy()
    B, W, _ = values.shape
    rows, columns = np.arange(B)[:, None], np.arange(W)
    at_end = values[rows, columns, queries]
    errors = rewards[rows, queries[:, :-1]] + windows.discounts.numpy()[:, 1 - W :] * at_end[:, 1:] - at_end[:, :-1]
    gradient = np.zeros_like(values)
    gradient[rows, columns[:-1], queries[:, :-1]] = (-2.0 / errors.size) * errors
    return float(np.vdot(errors, errors)) / errors.size, gradient
