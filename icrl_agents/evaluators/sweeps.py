"""Kernel-space policy evaluation by sweeps over the context: softmax, kernel and tabular TD."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from icrl_agents.attention import (
    KernelAttention,
    SoftmaxAttention,
    StepSize,
    check_step_size,
)
from icrl_agents.context import Context, check_context
from icrl_agents.evaluators.iteration import iterate
from icrl_agents.evaluators.nystrom import Nystrom
from icrl_agents.kernel_matrix import check_kernel
from icrl_agents.kernels import Identity, Kernel
from icrl_agents.settings import as_python
from icrl_agents.value_function import ValueFunction


@dataclass(frozen=True)
class WeightedSoftmaxTD:
    """Weighted softmax TD (arXiv 2605.07333): v_{t+1}(x) = v_t(x) + α Σ_k K(x_k, x) δ_k⁽ᵗ⁾, v_0 = 0.

    δ_k⁽ᵗ⁾ = R_k + γ_k v_t(x′_k) − v_t(x_k) and K(x_k, x) = κ(x, x_k) / Σ_i κ(x, x_i), over the context's
    transitions. It contracts where the kernel is diagonal enough on the context; in continuous spaces, depth and
    kernel width are the regularisers, since every state is distinct and L → ∞ interpolates the noise. At γ = 1 there
    are values only where episodes end; elsewhere L sweeps give sums over L steps, and from L = 10 on that is warned of.

    Args:
        kernel: κ ≥ 0; see ``icrl_agents.kernels``.
        num_sweeps: L ≥ 0, or ``math.inf`` for the limit, which is solved for; its depth is 0.
        step_size: α > 0.
        approximation: Landmarks, for contexts so long that every transition cannot be compared with every other.

    Example:
        >>> context = Context([[0.0]], [1.0], [0.9], [[0.0]])
        >>> float(WeightedSoftmaxTD(Identity(), num_sweeps=2).fit(context)([0.0]))
        1.9
    """

    kernel: Kernel
    num_sweeps: float
    step_size: float = 1.0
    approximation: Nystrom | None = None

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        check_kernel(self.kernel)
        check_depth(self.num_sweeps, self.approximation)
        check_step_size(self.step_size, auto=False)

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function after each of 0 … L sweeps over ``context``."""
        check_context(context)
        return iterate(
            SoftmaxAttention(self.kernel), context, self.num_sweeps, float(self.step_size), self.approximation
        )


@dataclass(frozen=True)
class KernelTD:
    """Kernel TD (arXiv 2605.09727): v_{t+1}(x) = v_t(x) + α Σ_k δ_k⁽ᵗ⁾ κ(x_k, x), v_0 = 0.

    Args:
        kernel: κ; see ``icrl_agents.kernels``.
        num_sweeps: L ≥ 0, or ``math.inf`` for the limit, which is solved for; its depth is 0.
        step_size: α > 0, or ``"auto"`` for 1 / max_j Σ_i |κ(x_i, x_j)|, at which the sweeps are stable at
            γ = 0 (κ positive semi-definite). Next states far beyond the states may make TD diverge at every step size.
        approximation: As of ``WeightedSoftmaxTD``.
    """

    kernel: Kernel
    num_sweeps: float
    step_size: StepSize = "auto"
    approximation: Nystrom | None = None

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        check_kernel(self.kernel)
        check_depth(self.num_sweeps, self.approximation)
        check_step_size(self.step_size)

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function after each of 0 … L sweeps over ``context``."""
        check_context(context)
        rule = KernelAttention(self.kernel, self.step_size)
        return iterate(rule, context, self.num_sweeps, approximation=self.approximation)


@dataclass(frozen=True)
class TabularTD:
    """Tabular TD with the mean TD error over the visits of each state: v(x) ← v(x) + α mean_{k: x_k = x} δ_k.

    It is weighted softmax TD with κ(x, x′) = 1{x = x′}. A state that was never visited keeps v = 0.

    Args:
        num_sweeps: L ≥ 0, or ``math.inf`` for the limit, which is solved for; its depth is 0.
        step_size: α > 0.
    """

    num_sweeps: float
    step_size: float = 1.0
    kernel: Identity = field(default_factory=Identity, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        check_depth(self.num_sweeps)
        check_step_size(self.step_size, auto=False)

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function after each of 0 … L sweeps over ``context``."""
        return WeightedSoftmaxTD(self.kernel, self.num_sweeps, self.step_size).fit(context)


def check_num_sweeps(num_sweeps: Any) -> int:  # noqa: ANN401
    """Returns ``num_sweeps`` if it is a non-negative integer; raises ValueError otherwise."""
    if isinstance(num_sweeps, bool) or not isinstance(num_sweeps, Integral) or num_sweeps < 0:
        raise ValueError(f"num_sweeps: expected an integer ≥ 0, got {num_sweeps!r}.")
    return int(num_sweeps)


def check_depth(num_sweeps: Any, approximation: object = None) -> None:  # noqa: ANN401
    """Raises ValueError if ``num_sweeps`` is neither a non-negative integer nor, without approximation, infinite."""
    if approximation is not None and not isinstance(approximation, Nystrom):
        raise TypeError(f"approximation: expected Nystrom(landmarks) or None, got {approximation!r}.")
    if isinstance(num_sweeps, float) and num_sweeps == math.inf:
        if approximation is not None:
            raise ValueError("num_sweeps: expected a finite depth with an approximation, got inf.")
    else:
        check_num_sweeps(num_sweeps)
