"""Transformers over a linear prompt: linear TD and its relatives (arXiv 2405.13861)."""

from __future__ import annotations

from numbers import Integral

import torch
from torch import Tensor

from icrl_agents.attention import StepSize
from icrl_agents.eligibility import check_preconditioner
from icrl_agents.evaluators import AverageRewardTD, LinearTD, ResidualGradient, TDLambda
from icrl_agents.layers.linear_attention import LinearAttentionLayer, Prompt, Scaling
from icrl_agents.transformer import InContextTransformer, check_count
from icrl_agents.value_function import Evaluator

STATE, DIFFERENCE = (1.0, 0.0), (1.0, -1.0)
"""Signs on the rows (φ, γφ′): what a column is taken for."""


def linear_td(
    dim: int, num_layers: int, step_size: StepSize = "auto", preconditioner: Tensor | None = None
) -> InContextTransformer:
    """Linear transformer whose layer ℓ is sweep ℓ of batch linear TD(0) (arXiv 2405.13861, in-context TD).

    P = e_last e_lastᵀ and Q = α [[−Cᵀ, Cᵀ, 0], [0, 0, 0], [0, 0, 0]].

    Args:
        dim: State dimension d ≥ 1.
        num_layers: L ≥ 0.
        step_size: α > 0, or ``"auto"`` for n / max_k Σ_i |x_iᵀ C x_k| of each context.
        preconditioner: C, shape ``(d, d)``; default the identity.

    Raises:
        ValueError: If an argument is out of range.
    """
    num_layers = check_count("num_layers", num_layers)
    reference = LinearTD(num_layers, step_size, preconditioner)
    query = _query_matrix(dim, STATE, step_size, preconditioner)
    return _transformer([query], num_layers, reference, scaling=_scaling(step_size, "values"))


def td_lambda(
    dim: int, num_layers: int, lambda_: float, step_size: StepSize = "auto", preconditioner: Tensor | None = None
) -> InContextTransformer:
    """Linear transformer whose layer ℓ is sweep ℓ of batch TD(λ) (arXiv 2405.13861, in-context TD(λ)).

    P and Q are those of ``linear_td``; the mask M decays by γλ along each trajectory.

    Args:
        dim: State dimension d ≥ 1.
        num_layers: L ≥ 0.
        lambda_: λ in [0, 1].
        step_size: α > 0, or ``"auto"`` for n / max_k Σ_i |x_iᵀ C e_k| of each context, e_k its traces.
        preconditioner: C, shape ``(d, d)``; default the identity.

    Raises:
        ValueError: If an argument is out of range.
    """
    num_layers = check_count("num_layers", num_layers)
    reference = TDLambda(lambda_, num_layers, step_size, preconditioner)
    query = _query_matrix(dim, STATE, step_size, preconditioner)
    return _transformer([query], num_layers, reference, trace_decay=lambda_, scaling=_scaling(step_size, "values"))


def residual_gradient(
    dim: int, num_layers: int, step_size: StepSize = "auto", preconditioner: Tensor | None = None
) -> InContextTransformer:
    """Linear transformer whose layer ℓ is sweep ℓ of residual gradient (arXiv 2405.13861, residual gradient).

    P = e_last e_lastᵀ and Q = α [[−Cᵀ, Cᵀ, 0], [Cᵀ, −Cᵀ, 0], [0, 0, 0]]: φ − γφ′ on both sides.

    Args:
        dim: State dimension d ≥ 1.
        num_layers: L ≥ 0.
        step_size: α > 0, or ``"auto"`` for n / max_k Σ_i |d_iᵀ C d_k| of each context, d_k = x_k − γ_k x′_k.
        preconditioner: C, shape ``(d, d)``; default the identity.

    Raises:
        ValueError: If an argument is out of range.
    """
    num_layers = check_count("num_layers", num_layers)
    reference = ResidualGradient(num_layers, step_size, preconditioner)
    query = _query_matrix(dim, DIFFERENCE, step_size, preconditioner)
    return _transformer([query], num_layers, reference, scaling=_scaling(step_size, "errors"))


def average_reward_td(
    dim: int,
    num_layers: int,
    step_size: StepSize = "auto",
    reward_step_size: float = 1.0,
    preconditioner: Tensor | None = None,
) -> InContextTransformer:
    """Two-head linear transformer whose layer ℓ is sweep ℓ of differential TD (arXiv 2405.13861, average reward).

    The first head is that of ``linear_td`` on undiscounted features; the second, Q = −η at the row of ones, takes
    the mean TD error from the last row of every key: minus the average reward so far.

    Args:
        dim: State dimension d ≥ 1.
        num_layers: L ≥ 0.
        step_size: α > 0, or ``"auto"`` for n / max_k Σ_i |x_iᵀ C x_k| of each context.
        reward_step_size: η in (0, 2).
        preconditioner: C, shape ``(d, d)``; default the identity.

    Raises:
        ValueError: If an argument is out of range.
    """
    num_layers = check_count("num_layers", num_layers)
    reference = AverageRewardTD(num_layers, step_size, reward_step_size, preconditioner)
    values = _query_matrix(dim, STATE, step_size, preconditioner, extra_rows=2)
    average = torch.zeros_like(values)
    average[2 * dim, 2 * dim] = -float(reward_step_size)
    scaling = _scaling(step_size, "values")
    return _transformer([values, average], num_layers, reference, prompt="average_reward", scaling=scaling)


def _query_matrix(
    dim: int,
    keys: tuple[float, float],
    step_size: StepSize,
    preconditioner: Tensor | None,
    extra_rows: int = 1,
) -> Tensor:
    """Q with zᵢᵀ Q zⱼ = −α (key i as ``keys``)ᵀ Cᵀ (φ_j − γφ′_j), shape ``(D, D)``."""
    if isinstance(dim, bool) or not isinstance(dim, Integral) or dim < 1:
        raise ValueError(f"dim: expected an integer ≥ 1, got {dim!r}.")
    C = check_preconditioner(preconditioner, dim)
    C = torch.eye(dim, dtype=torch.float64, device="cpu") if C is None else C
    alpha = 1.0 if step_size == "auto" else float(step_size)
    signs = torch.outer(C.new_tensor(keys), C.new_tensor(DIFFERENCE))
    Q = C.new_zeros((2 * dim + extra_rows, 2 * dim + extra_rows))
    Q[: 2 * dim, : 2 * dim] = -alpha * torch.kron(signs, C.mT.contiguous())
    return Q


def _scaling(step_size: StepSize, auto: Scaling) -> Scaling:
    return auto if step_size == "auto" else "none"


def _transformer(
    queries: list[Tensor],
    num_layers: int,
    reference: Evaluator,
    *,
    prompt: Prompt = "discounted",
    trace_decay: float = 0.0,
    scaling: Scaling,
) -> InContextTransformer:
    Q = torch.stack(queries)
    P = torch.zeros_like(Q)
    P[:, -1, -1] = 1.0
    layer = LinearAttentionLayer(P, Q, prompt=prompt, trace_decay=trace_decay, scaling=scaling)
    return InContextTransformer([layer], num_layers, reference)
