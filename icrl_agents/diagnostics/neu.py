"""The norm of the expected update (NEU): how far a transformer's weights are from a fixed point of in-context TD."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from icrl_agents.arrays import check_kind
from icrl_agents.blocks import prompt_of
from icrl_agents.compressed import CompressedContexts, sample_paths
from icrl_agents.compressed.passes import finite_state_values as state_values
from icrl_agents.diagnostics.finite_chain import CheckedChain, FiniteChain, check_process
from icrl_agents.transformer import InContextTransformer
from icrl_envs import arguments

Estimator = Literal["naive", "two_batch", "conditional"]
_ESTIMATORS = ("naive", "two_batch", "conditional")


def neu(
    transformer: InContextTransformer,
    process: FiniteChain,
    *,
    context_length: int,
    num_contexts: int,
    rng: np.random.Generator,
    estimator: Estimator = "conditional",
) -> Tensor:
    """Norm of the expected update ‖h‖², h(θ) = E[δ ∇v̂_θ(Z)], δ = R + γ v̂_θ(Z′) − v̂_θ(Z) (arXiv 2605.07333).

    The expectation is over contexts of n transitions of a stationary trajectory and the query S_n, S_{n+1} that
    follows. θ are all weights of the transformer. Three estimators:

    - ``"naive"``: ‖h‖² of one batch, biased upwards by the variance of its mean;
    - ``"two_batch"``: h₁·h₂ of two independent halves, unbiased, and negative at times; its error is about the same;
    - ``"conditional"``: the same, with each update replaced by its mean over the queries given the context,
      Σ_s μ(s) δ(s) ∇v̂(s) with δ = r + γPv̂ − v̂. Its error is many times smaller. But it takes the query as
      independent of the context, which in short contexts S_n is not, and so its mean may be several times smaller.

    Args:
        transformer: The transformer; its weights need not require gradients.
        process: A finite process.
        context_length: n ≥ 1.
        num_contexts: Contexts in all, ≥ 2.
        rng: Source of the contexts.
        estimator: One of the three.

    Returns:
        The estimate, a scalar.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If one is out of range.

    Example:
        >>> from icrl_agents.constructions import weighted_softmax_td
        >>> from icrl_agents.kernels import DotProduct
        >>> from icrl_envs import boyan_chain
        >>> chain = boyan_chain(num_states=3, gamma=0.5)
        >>> transformer = weighted_softmax_td(DotProduct(8 * torch.eye(3)), num_layers=40)
        >>> rng = np.random.default_rng(0)
        >>> bool(neu(transformer, chain, context_length=2000, num_contexts=20, rng=rng) < 1e-3)
        True
    """
    if estimator not in _ESTIMATORS:
        raise ValueError(f"estimator: expected one of {list(_ESTIMATORS)}, got {estimator!r}.")
    halves = 1 if estimator == "naive" else 2
    updates = mean_updates(
        transformer,
        process,
        context_length=context_length,
        num_contexts=num_contexts,
        rng=rng,
        batches=halves,
        conditional=estimator == "conditional",
    )
    return updates[0] @ updates[-1]


@torch.inference_mode(False)
def mean_updates(
    transformer: InContextTransformer,
    process: FiniteChain,
    *,
    context_length: int,
    num_contexts: int,
    rng: np.random.Generator,
    batches: int = 2,
    conditional: bool = True,
) -> Tensor:
    """Estimates of the expected update h = E[δ ∇v̂_θ] from independent batches, one after the other.

    Args:
        transformer: The transformer, with k weights.
        process: A finite process.
        context_length: n ≥ 1.
        num_contexts: Contexts in all, at least one per batch; a remainder is left out.
        rng: Source of the contexts.
        batches: Number of batches.
        conditional: Whether queries are summed over; see ``neu``.

    Returns:
        ``(batches, k)``.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If one is out of range.
    """
    check_kind("transformer", transformer, InContextTransformer)
    if prompt_of(transformer.blocks[0]) == "average_reward":
        raise ValueError("transformer: expected discounted values, got differential ones, which have another update.")
    *arrays, gamma = check_process("process", process)
    chain = CheckedChain(*(array.detach().cpu() for array in arrays), gamma=gamma)
    arguments.generator("rng", rng)
    check_kind("conditional", conditional, bool)
    arguments.integer("batches", batches, 1)
    arguments.integer("context_length", context_length, 1)
    arguments.integer("num_contexts", num_contexts, batches)
    size = num_contexts // batches
    required = [parameter.requires_grad for parameter in transformer.parameters()]
    transformer.requires_grad_(True)
    try:
        estimates = [_update(transformer, chain, context_length, size, rng, conditional) for _ in range(batches)]
    finally:
        for parameter, was in zip(transformer.parameters(), required, strict=True):
            parameter.requires_grad_(was)
    return torch.stack(estimates)


def _update(
    transformer: InContextTransformer,
    chain: CheckedChain,
    length: int,
    count: int,
    rng: np.random.Generator,
    conditional: bool,
) -> Tensor:
    contexts, query, following = _sample(chain, length, count, rng)
    with torch.enable_grad():
        values = state_values(transformer, contexts)
        if conditional:
            P, mu = chain.transition_matrix, chain.stationary_distribution
            errors = mu * (contexts.rewards + chain.gamma * values.detach() @ P.mT - values.detach())
            return _mean_gradient(transformer, values, errors)
        now, then = (values.gather(-1, points[:, None])[:, 0] for points in (query, following))
        reward = contexts.rewards.gather(-1, query[:, None])[:, 0]
        return _mean_gradient(transformer, now, reward + chain.gamma * then.detach() - now.detach())


def _mean_gradient(transformer: InContextTransformer, values: Tensor, errors: Tensor) -> Tensor:
    """Mean over the contexts of Σ δ ∇v̂, all weights in a row."""
    if not values.requires_grad:  # no layer, or none with a weight
        return torch.cat(
            [values.new_zeros(0), *(weight.new_zeros(weight.numel()) for weight in transformer.parameters())]
        )
    parts = torch.autograd.grad(values, list(transformer.parameters()), grad_outputs=errors / len(values))
    return torch.cat([part.flatten() for part in parts])


def _sample(
    chain: CheckedChain, length: int, count: int, rng: np.random.Generator
) -> tuple[CompressedContexts, Tensor, Tensor]:
    """Stationary contexts, S_n and S_{n+1}."""
    cumulative = np.cumsum(chain.transition_matrix.numpy(), axis=-1)
    start = np.cumsum(chain.stationary_distribution.numpy())
    cumulative[:, -1] = start[-1] = 1.0
    path = torch.from_numpy(sample_paths(cumulative[None], np.tile(start, (count, 1)), length + 1, rng))
    points = chain.features
    contexts = CompressedContexts(
        points.expand(count, *points.shape),
        chain.rewards.expand(count, -1),
        path[:, :-1],
        torch.full((count, length), chain.gamma, dtype=points.dtype, device="cpu"),
    )
    return contexts, path[:, -2], path[:, -1]
