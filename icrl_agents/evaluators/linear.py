"""Linear policy evaluation by sweeps over the context: v_t(x) = w_tᵀx, w_0 = 0 (arXiv 2405.13861)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from numbers import Real

import torch
from torch import Tensor

from icrl_agents.attention import StepSize, check_step_size
from icrl_agents.context import Context, check_context
from icrl_agents.divergence import Measured, check_convergence
from icrl_agents.eligibility import (
    ROUNDING,
    check_lambda,
    check_preconditioner,
    continuing_features,
    discounted_features,
    eligibility_traces,
    features,
    largest_reach,
    num_transitions,
)
from icrl_agents.error_dynamics import spectral_radius
from icrl_agents.evaluators.sweeps import check_num_sweeps
from icrl_agents.magnitudes import check_squares
from icrl_agents.settings import as_python
from icrl_agents.value_function import ValueFunction


@dataclass(frozen=True, eq=False)
class LinearTD:
    """Batch linear TD(0): w_{t+1} = w_t + (α/n) C Σ_k δ_k⁽ᵗ⁾ x_k (arXiv 2405.13861, in-context TD).

    δ_k⁽ᵗ⁾ = R_k + γ_k w_tᵀx′_k − w_tᵀx_k. ``KernelTD(Linear(), ...)`` with step α/n has the same values. Where the next
    states of a context reach far beyond its states, TD may diverge at every step size: a property of the algorithm.

    Args:
        num_sweeps: L ≥ 0.
        step_size: α > 0, or ``"auto"`` for n / max_k Σ_i |x_iᵀ C x_k|, the same step as of ``KernelTD``.
        preconditioner: C, shape ``(d, d)``; default the identity.

    Example:
        >>> context = Context([[1.0]], [1.0], [0.9], [[1.0]])
        >>> float(LinearTD(num_sweeps=2).fit(context)([1.0]))
        1.9
    """

    num_sweeps: int
    step_size: StepSize = "auto"
    preconditioner: Tensor | None = None

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        _check(self)

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function after each of 0 … L sweeps over ``context``."""
        return TDLambda(0.0, self.num_sweeps, self.step_size, self.preconditioner).fit(context)


@dataclass(frozen=True, eq=False)
class TDLambda:
    """Batch linear TD(λ): w_{t+1} = w_t + (α/n) C Σ_k δ_k⁽ᵗ⁾ e_k, e_k = x_k + γ_{k−1} λ e_{k−1}.

    Traces start anew with each trajectory. The construction of arXiv 2405.13861 (in-context TD(λ)) has
    e_k = x_k + λ e_{k−1}, without γ: with constant γ, its λ is the γλ of this class. With γ in the trace, λ has
    its usual meaning: at λ = 1 on terminating episodes the fixed point is the regression on the returns.

    Args:
        lambda_: λ in [0, 1].
        num_sweeps: L ≥ 0.
        step_size: α > 0, or ``"auto"`` for n / max_k Σ_i |x_iᵀ C e_k|.
        preconditioner: C, shape ``(d, d)``; default the identity.
    """

    lambda_: float
    num_sweeps: int
    step_size: StepSize = "auto"
    preconditioner: Tensor | None = None

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        check_lambda(self.lambda_)
        _check(self)

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function after each of 0 … L sweeps over ``context``."""
        check_context(context)
        x = context.states
        directions = _preconditioned(self.preconditioner, eligibility_traces(context, x, self.lambda_))
        return _sweep(context, directions, _gain(context, self.step_size, x, directions), self.num_sweeps)


@dataclass(frozen=True, eq=False)
class ResidualGradient:
    """Residual gradient: w_{t+1} = w_t + (α/n) C Σ_k δ_k⁽ᵗ⁾ (x_k − γ_k x′_k) (arXiv 2405.13861).

    It is gradient descent on the mean squared TD error of the context, and it converges wherever its step is
    small enough; what it converges to is biased where transitions are random, since each next state is sampled once.

    Args:
        num_sweeps: L ≥ 0.
        step_size: α > 0, or ``"auto"`` for n / max_k Σ_i |d_iᵀ C d_k| with d_k = x_k − γ_k x′_k, at which the mean
            squared TD error never rises (C positive semi-definite).
        preconditioner: C, shape ``(d, d)``; default the identity.
    """

    num_sweeps: int
    step_size: StepSize = "auto"
    preconditioner: Tensor | None = None

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        _check(self)

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function after each of 0 … L sweeps over ``context``."""
        check_context(context)
        following = discounted_features(context)
        differences = context.states - following
        rounding = ROUNDING * torch.finfo(context.dtype).eps * (context.states.abs() + following.abs())
        still = (differences.abs() <= rounding).flatten(-2).all(-1)  # by which a step would be divided
        differences = differences.masked_fill(still[..., None, None], 0.0)
        directions = _preconditioned(self.preconditioner, differences)
        return _sweep(context, directions, _gain(context, self.step_size, differences, directions), self.num_sweeps)


@dataclass(frozen=True, eq=False)
class AverageRewardTD:
    """Differential TD for continuing tasks (arXiv 2405.13861, in-context average-reward TD).

        δ_k = R_k − r̄ + wᵀx′_k − wᵀx_k,   w ← w + (α/n) C Σ_k δ_k x_k,   r̄ ← r̄ + (η/n) Σ_k δ_k,

    both from the old (w, r̄), which start at 0. Discounts are ignored. Values are determined up to a constant only,
    as far as the features can represent one. r̄_ℓ is ``average_rewards`` of the value function.

    Args:
        num_sweeps: L ≥ 0.
        step_size: α > 0, or ``"auto"`` for n / max_k Σ_i |x_iᵀ C x_k|.
        reward_step_size: η in (0, 2): r̄ is multiplied by 1 − η in each sweep.
        preconditioner: C, shape ``(d, d)``; default the identity.
    """

    num_sweeps: int
    step_size: StepSize = "auto"
    reward_step_size: float = 1.0
    preconditioner: Tensor | None = None

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        _check(self)
        check_reward_step_size(self.reward_step_size)

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function after each of 0 … L sweeps over ``context``.

        Raises:
            ValueError: If a transition of ``context`` is terminal.
        """
        check_context(context)
        x, x_next = context.states, continuing_features(context)
        directions = _preconditioned(self.preconditioner, x)
        gain = _gain(context, self.step_size, x, directions)
        reward_gain = float(self.reward_step_size) / num_transitions(context)
        w, average = _zero_weights(context), torch.zeros_like(reward_gain)
        history = [(w, average)]
        for _ in range(self.num_sweeps):
            delta = context.rewards - average[..., None] + _apply(x_next, w) - _apply(x, w)
            delta = delta.masked_fill(~context.mask, 0.0)
            w, average = w + gain * _apply(directions.mT, delta), average + reward_gain * delta.sum(-1)
            history.append((w, average))
        weights, averages = zip(*history, strict=True)
        coefficients = torch.stack(weights, dim=-2)
        check_convergence(context, coefficients, discounted=False)
        return ValueFunction([features], [coefficients], context, average_rewards=torch.stack(averages, dim=-1))


def check_reward_step_size(reward_step_size: float) -> float:
    """Returns η if it lies in (0, 2), where r̄ converges; raises ValueError otherwise."""
    if isinstance(reward_step_size, bool) or not isinstance(reward_step_size, Real) or not 0 < reward_step_size < 2:
        raise ValueError(f"reward_step_size: expected a positive number below 2, got {reward_step_size!r}.")
    return float(reward_step_size)


def _check(evaluator: LinearTD | TDLambda | ResidualGradient | AverageRewardTD) -> None:
    """Checks what they share, and keeps a preconditioner that takes no gradient as it is now."""
    check_num_sweeps(evaluator.num_sweeps)
    check_step_size(evaluator.step_size)
    C = check_preconditioner(evaluator.preconditioner)
    if C is not None and not C.requires_grad:
        object.__setattr__(evaluator, "preconditioner", C.clone())


def _preconditioned(preconditioner: Tensor | None, directions: Tensor) -> Tensor:
    """C applied to each of ``directions (*batch, n, d)``."""
    C = check_preconditioner(preconditioner, directions.shape[-1])
    return directions if C is None else directions @ C.to(directions).mT


def _gain(context: Context, step_size: StepSize, readers: Tensor, directions: Tensor) -> Tensor:
    """α/n, shape ``(*batch, 1)``; ``"auto"`` takes α = n / max_k Σ_i |readers_iᵀ directions_k|."""
    n = num_transitions(context)
    check_squares("context", context.points)
    if step_size != "auto":
        return (torch.full_like(n, float(step_size)) / n)[..., None]
    largest = largest_reach(readers, directions)
    return (1.0 / torch.where(largest > 0, largest, 1.0))[..., None]


def _sweep(context: Context, directions: Tensor, gain: Tensor, num_sweeps: int) -> ValueFunction:
    """Runs w_{t+1} = w_t + (α/n) Σ_k δ_k⁽ᵗ⁾ directions_k."""
    w = _zero_weights(context)
    history = [w]
    for _ in range(num_sweeps):
        w = w + gain * _apply(directions.mT, context.td_errors(_apply(context.points, w)))
        history.append(w)
    coefficients = torch.stack(history, dim=-2)
    check_convergence(context, coefficients, measure=partial(_measured, context, directions, gain))
    return ValueFunction([features], [coefficients], context)


def _measured(context: Context, directions: Tensor, gain: Tensor, index: int) -> Measured:
    """Spectral radius of I − (α/n) Σ_k directions_k (x_k − γ_k x′_k)ᵀ of one context."""
    differences = context.states - discounted_features(context)
    moments = (gain[..., None] * directions.mT @ differences).reshape(-1, context.dim, context.dim)[index]
    return Measured(spectral_radius(torch.eye(context.dim, device=moments.device).to(moments) - moments))


def _zero_weights(context: Context) -> Tensor:
    return context.points.new_zeros((*context.points.shape[:-2], context.dim))


def _apply(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector[..., None])[..., 0]
