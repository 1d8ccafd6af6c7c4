"""Kernel-space policy evaluation by sweeps over the context: softmax, kernel and tabular TD."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral

import torch
from torch import Tensor

from icrl_agents.attention import (
    BoundAttention,
    KernelAttention,
    SoftmaxAttention,
    StepSize,
    check_kernel,
    check_step_size,
)
from icrl_agents.context import Context, check_context
from icrl_agents.kernels import Identity, Kernel
from icrl_agents.value_function import ValueFunction


@dataclass(frozen=True)
class WeightedSoftmaxTD:
    """Weighted softmax TD (arXiv 2605.07333): v_{t+1}(x) = v_t(x) + α Σ_k K(x_k, x) δ_k⁽ᵗ⁾, v_0 = 0.

    δ_k⁽ᵗ⁾ = R_k + γ_k v_t(x′_k) − v_t(x_k) and K(x_k, x) = κ(x, x_k) / Σ_i κ(x, x_i), over the context's
    transitions. It contracts where the kernel is diagonal enough on the context; in continuous spaces, depth and
    kernel width are the regularisers, since every state is distinct and L → ∞ interpolates the noise.

    Args:
        kernel: κ ≥ 0; see ``icrl_agents.kernels``.
        num_sweeps: L ≥ 0.
        step_size: α > 0.

    Example:
        >>> context = Context([[0.0]], [1.0], [0.9], [[0.0]])
        >>> float(WeightedSoftmaxTD(Identity(), num_sweeps=2).fit(context)([0.0]))
        1.9
    """

    kernel: Kernel
    num_sweeps: int
    step_size: float = 1.0

    def __post_init__(self) -> None:
        """Checks the arguments."""
        check_kernel(self.kernel)
        check_num_sweeps(self.num_sweeps)
        check_step_size(self.step_size, auto=False)

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function after each of 0 … L sweeps over ``context``."""
        check_context(context)
        attention = SoftmaxAttention(self.kernel).bind(context.states, context.mask)
        return _sweep(context, attention, self.num_sweeps, float(self.step_size))


@dataclass(frozen=True)
class KernelTD:
    """Kernel TD (arXiv 2605.09727): v_{t+1}(x) = v_t(x) + α Σ_k δ_k⁽ᵗ⁾ κ(x_k, x), v_0 = 0.

    Args:
        kernel: κ; see ``icrl_agents.kernels``.
        num_sweeps: L ≥ 0.
        step_size: α > 0, or ``"auto"`` for 1 / max_j Σ_i |κ(x_i, x_j)|, at which sweeps are stable.
    """

    kernel: Kernel
    num_sweeps: int
    step_size: StepSize = "auto"

    def __post_init__(self) -> None:
        """Checks the arguments."""
        check_kernel(self.kernel)
        check_num_sweeps(self.num_sweeps)
        check_step_size(self.step_size)

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function after each of 0 … L sweeps over ``context``."""
        check_context(context)
        attention = KernelAttention(self.kernel, self.step_size).bind(context.states, context.mask)
        return _sweep(context, attention, self.num_sweeps, 1.0)


@dataclass(frozen=True)
class TabularTD:
    """Tabular TD with the mean TD error over the visits of each state: v(x) ← v(x) + α mean_{k: x_k = x} δ_k.

    It is weighted softmax TD with κ(x, x′) = 1{x = x′}. A state that was never visited keeps v = 0.

    Args:
        num_sweeps: L ≥ 0.
        step_size: α > 0.
    """

    num_sweeps: int
    step_size: float = 1.0
    kernel: Identity = field(default_factory=Identity, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Checks the arguments."""
        check_num_sweeps(self.num_sweeps)
        check_step_size(self.step_size, auto=False)

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function after each of 0 … L sweeps over ``context``."""
        return WeightedSoftmaxTD(self.kernel, self.num_sweeps, self.step_size).fit(context)


def check_num_sweeps(num_sweeps: int) -> int:
    """Returns ``num_sweeps`` if it is a non-negative integer; raises ValueError otherwise."""
    if isinstance(num_sweeps, bool) or not isinstance(num_sweeps, Integral) or num_sweeps < 0:
        raise ValueError(f"num_sweeps: expected an integer ≥ 0, got {num_sweeps!r}.")
    return int(num_sweeps)


def _sweep(context: Context, attention: BoundAttention, num_sweeps: int, step_size: float) -> ValueFunction:
    """Runs w_{t+1} = w_t + α δ⁽ᵗ⁾ with v_t(x) = Σ_k K(x_k, x) w_{t,k}."""
    weights = attention(context.points)
    w = torch.zeros_like(context.rewards)
    history = [w]
    for _ in range(num_sweeps):
        w = w + step_size * context.td_errors(_apply(weights, w))
        history.append(w)
    return ValueFunction([attention], [torch.stack(history, dim=-2)], context)


def _apply(weights: Tensor, w: Tensor) -> Tensor:
    return (weights @ w[..., None])[..., 0]
