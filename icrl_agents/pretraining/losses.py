"""Pretraining losses; each is a function of a transformer and a batch, differentiable in the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from icrl_agents.compressed.passes import unchecked_state_values as state_values
from icrl_agents.pretraining.batches import Batch
from icrl_agents.pretraining.config import PretrainConfig
from icrl_agents.pretraining.sliding import sliding_td_loss
from icrl_agents.transformer import InContextTransformer

Loss = Callable[[InContextTransformer, Any], Tensor]
"""Of a ``Batch``; of ``SlidingWindows`` where the configuration asks for windows."""


def loss_of(config: PretrainConfig) -> Loss:
    """Returns the loss that ``config`` asks for."""
    if config.windows is not None:
        return sliding_td_loss
    sampled: dict[str, Loss] = {"td": td_loss, "neu": neu_loss, "mc": monte_carlo_loss, "value": value_loss}
    expected: dict[str, Loss] = {"td": expected_td_loss, "neu": expected_neu_loss}
    if config.algorithm == "residual_gradient":
        sampled["td"], expected["td"] = residual_loss, expected_residual_loss
    elif config.algorithm == "average_reward":
        sampled |= {"td": differential_loss, "value": differential_value_loss}
        expected["td"] = expected_differential_loss
    return (expected if config.expectations else sampled)[config.loss]


def td_loss(transformer: InContextTransformer, batch: Batch) -> Tensor:
    """Semi-gradient TD, mean (R + γ sg[v̂(S_{n+1})] − v̂(S_n))², both values from the same context."""
    return _sampled_errors(state_values(transformer, batch.contexts), batch, stop=True).square().mean()


def expected_td_loss(transformer: InContextTransformer, batch: Batch) -> Tensor:
    """Semi-gradient TD, mean over contexts of Σ_s μ(s) (r(s) + γ (P sg[v̂])(s) − v̂(s))²."""
    _, mu, _ = _known(batch)
    errors = _expected_errors(state_values(transformer, batch.contexts), batch, stop=True)
    return (mu * errors.square()).sum(-1).mean()


def residual_loss(transformer: InContextTransformer, batch: Batch) -> Tensor:
    """Mean (R + γ v̂(S_{n+1}) − v̂(S_n))², the gradient of the target included."""
    return _sampled_errors(state_values(transformer, batch.contexts), batch, stop=False).square().mean()


def expected_residual_loss(transformer: InContextTransformer, batch: Batch) -> Tensor:
    """Mean over contexts of Σ_s μ(s) (r(s) + γ (P v̂)(s) − v̂(s))², the gradient of the target included."""
    _, mu, _ = _known(batch)
    errors = _expected_errors(state_values(transformer, batch.contexts), batch, stop=False)
    return (mu * errors.square()).sum(-1).mean()


def differential_loss(transformer: InContextTransformer, batch: Batch) -> Tensor:
    """Differential semi-gradient TD, mean (R − r̄ + sg[v̂(S_{n+1})] − v̂(S_n))², r̄ the mean reward of the context."""
    values, contexts = state_values(transformer, batch.contexts), batch.contexts
    average = contexts.rewards.gather(-1, contexts.path[:, :-1]).mean(-1)
    now, following = batch.future[:, 0], batch.future[:, 1]
    targets = _at(contexts.rewards, now) - average + _at(values.detach(), following)
    return (targets - _at(values, now)).square().mean()


def expected_differential_loss(transformer: InContextTransformer, batch: Batch) -> Tensor:
    """Mean over contexts of Σ_s μ(s) (r(s) − μᵀr + (P sg[v̂])(s) − v̂(s))²."""
    P, mu, _ = _known(batch)
    values, rewards = state_values(transformer, batch.contexts), batch.contexts.rewards
    targets = rewards - (mu * rewards).sum(-1, keepdim=True) + (P @ values.detach()[..., None])[..., 0]
    return (mu * (targets - values).square()).sum(-1).mean()


def differential_value_loss(transformer: InContextTransformer, batch: Batch) -> Tensor:
    """Mean over contexts of Σ_s μ(s) (h(s) − v̂(s) + μᵀv̂)² against the exact differential value h, μᵀh = 0."""
    _, mu, exact = _known(batch)
    values = state_values(transformer, batch.contexts)
    return (mu * (exact - values + (mu * values).sum(-1, keepdim=True)).square()).sum(-1).mean()


def monte_carlo_loss(transformer: InContextTransformer, batch: Batch) -> Tensor:
    """Mean (G − v̂(S_n))², G the discounted rewards of the trajectory's next h steps."""
    values = state_values(transformer, batch.contexts)
    rewards = batch.contexts.rewards.gather(-1, batch.future[:, :-1])
    returns = torch.zeros_like(rewards[:, 0])
    for i in range(rewards.shape[-1] - 1, -1, -1):
        returns = rewards[:, i] + batch.future_discounts[:, i] * returns
    return (returns - _at(values, batch.future[:, 0])).square().mean()


def value_loss(transformer: InContextTransformer, batch: Batch) -> Tensor:
    """Mean over contexts of Σ_s μ(s) (v(s) − v̂(s))² against the exact value v."""
    _, mu, exact = _known(batch)
    return (mu * (exact - state_values(transformer, batch.contexts)).square()).sum(-1).mean()


def neu_loss(transformer: InContextTransformer, batch: Batch) -> Tensor:
    """Norm of the expected update, h₁·h₂ with h_i = mean δ ∇v̂(S_n) over half of the contexts (arXiv 2605.07333).

    The halves have no task in common and so are independent: its mean is ‖E[δ ∇v̂]‖², where the square of one batch,
    or halves that share a task, would add a variance.
    """
    values = state_values(transformer, batch.contexts)
    errors = _sampled_errors(values, batch, stop=False)
    return _product_of_halves(transformer, _at(values, batch.future[:, 0]), errors)


def expected_neu_loss(transformer: InContextTransformer, batch: Batch) -> Tensor:
    """``neu_loss`` with each update replaced by its mean Σ_s μ(s) δ(s) ∇v̂(s), δ = r + γPv̂ − v̂."""
    _, mu, _ = _known(batch)
    values = state_values(transformer, batch.contexts)
    return _product_of_halves(transformer, values, mu * _expected_errors(values, batch, stop=False))


def _product_of_halves(transformer: InContextTransformer, values: Tensor, errors: Tensor) -> Tensor:
    parameters = [parameter for parameter in transformer.parameters() if parameter.requires_grad]
    half = len(values) // 2
    first, second = (_update(values[rows], errors[rows], parameters) for rows in (slice(half), slice(half, 2 * half)))
    return torch.stack([(a * b).sum() for a, b in zip(first, second, strict=True)]).sum()


def _update(values: Tensor, errors: Tensor, parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Mean over the contexts of Σ δ ∇v̂, one tensor per parameter, itself differentiable."""
    return torch.autograd.grad(values, parameters, grad_outputs=errors / len(values), create_graph=True)


def _sampled_errors(values: Tensor, batch: Batch, *, stop: bool) -> Tensor:
    """δ = R_{n+1} + γ v̂(S_{n+1}) − v̂(S_n), ``(B,)``."""
    now, following = batch.future[:, 0], batch.future[:, 1]
    target = values.detach() if stop else values
    reward = _at(batch.contexts.rewards, now)
    return reward + batch.future_discounts[:, 0] * _at(target, following) - _at(values, now)


def _expected_errors(values: Tensor, batch: Batch, *, stop: bool) -> Tensor:
    """δ = r + γPv̂ − v̂, ``(B, M)``."""
    P, _, _ = _known(batch)
    target = values.detach() if stop else values
    return batch.contexts.rewards + batch.future_discounts[:, :1] * (P @ target[..., None])[..., 0] - values


def _at(values: Tensor, points: Tensor) -> Tensor:
    return values.gather(-1, points[:, None])[:, 0]


def _known(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    if batch.transition_matrix is None or batch.stationary is None or batch.values is None:
        raise ValueError("batch: expected contexts of known finite processes for this loss.")
    return batch.transition_matrix, batch.stationary, batch.values
