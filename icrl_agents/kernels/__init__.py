"""Kernels κ(x, x′): how far a transition's TD error reaches.

Every kernel is a module ``(x (*batch, m, d), y (*batch, n, d)) -> (*batch, m, n)``. Those with a closed form of log κ
offer it as ``score``, which softmax attention exponentiates. Their weights are frozen parameters, saved with a model,
and trainable after ``requires_grad_(True)``. Any such callable is a kernel; a ``positive`` one is never 0 but rounded.

A value function keeps a kernel that is a module with the weights of the fit. It cannot keep a network that a function
calls, such as a lambda: train that after the fit, and queries are compared with keys by other weights than its own.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from icrl_agents.distances import median_distance
from icrl_agents.kernels.dot_products import DotProduct, Exponential, Linear, ReLU
from icrl_agents.kernels.indicator import Identity
from icrl_agents.kernels.radial import RBF, Laplace, LengthScale, ProductLaplace

Kernel = Callable[[Tensor, Tensor], Tensor]

__all__ = [
    "RBF",
    "DotProduct",
    "Exponential",
    "Identity",
    "Kernel",
    "Laplace",
    "LengthScale",
    "Linear",
    "ProductLaplace",
    "ReLU",
    "median_distance",
]
