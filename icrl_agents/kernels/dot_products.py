"""Kernels of a dot product of states."""

from __future__ import annotations

from typing import Self, TypeVar

import torch
from torch import Tensor, nn

from icrl_agents.arrays import constant, positive
from icrl_agents.magnitudes import check_floating, check_squares
from icrl_agents.pure import holding

_Module = TypeVar("_Module", bound=nn.Module)


class DotProduct(nn.Module):
    """Bilinear attention score g(x, x′) = xᵀ B x′, as a kernel κ = exp g (arXiv 2605.07333, dual-head layer).

    A query that is orthogonal to every key, or far smaller than them, scores all alike: its value is the plain average
    over the context, which ``ValueFunction.effective_sample_size`` shows (it is then n).

    x is the query and x′ the key. The attention matrix A of a prompt Zᵀ A Z has the key first: its block is Bᵀ.

    Args:
        matrix: B, shape ``(d, d)``.

    Raises:
        ValueError: If ``matrix`` is not square and finite.
    """

    positive = True

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        matrix = constant("matrix", matrix)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not bool(torch.isfinite(matrix).all()):
            raise ValueError(f"matrix: expected a finite square matrix (d, d), got shape {tuple(matrix.shape)}.")
        self.matrix = nn.Parameter(matrix, requires_grad=False)

    def bind(self, keys: Tensor, mask: Tensor | None = None) -> Self:
        """Returns the kernel with B as it is now."""
        return holding(self, matrix=self.matrix)

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """xᵀ B y."""
        check_floating(x, y)
        if x.shape[-1] != len(self.matrix):
            expected = (x.shape[-1], x.shape[-1])
            raise ValueError(f"matrix: expected shape {expected} for these states, got {tuple(self.matrix.shape)}.")
        return x @ self.matrix.to(x) @ y.mT

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Exp(xᵀ B y)."""
        return torch.exp(self.score(x, y))


class Exponential(nn.Module):
    """Exponential kernel κ(x, x′) = exp(xᵀx′/τ), the one that a softmax head induces (arXiv 2605.09727).

    Args:
        temperature: τ > 0, in squared units of the states.
    """

    positive = True

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        tensor = positive("temperature", temperature)
        if tensor.ndim > 0:
            raise ValueError(f"temperature: expected one number, got shape {tuple(tensor.shape)}.")
        self.temperature = nn.Parameter(tensor, requires_grad=False)

    def bind(self, keys: Tensor, mask: Tensor | None = None) -> Self:
        """Returns the kernel with τ as it is now; raises ValueError if training has left it at 0 or below."""
        if not bool(self.temperature > 0):
            raise ValueError(
                f"temperature: expected a positive number, got {self.temperature.item():.4g}, as an optimiser may "
                "leave it; take shorter steps, or train its logarithm in a kernel of your own."
            )
        return holding(self, temperature=self.temperature)

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """xᵀy/τ."""
        check_floating(x, y)
        return (x / self.temperature.to(x)) @ y.mT

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Exp(xᵀy/τ)."""
        return torch.exp(self.score(x, y))

    def extra_repr(self) -> str:
        """The temperature."""
        return f"temperature={self.temperature.tolist()}"


def _of_squares(kernel: _Module, keys: Tensor, mask: Tensor | None = None) -> _Module:
    """Returns the kernel; raises ValueError if it would be 0 or infinite for no reason but the size of the keys."""
    check_squares("context", keys)
    return kernel


class Linear(nn.Module):
    """Linear kernel κ(x, x′) = xᵀx′: under it, kernel TD is linear TD."""

    bind = _of_squares

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """xᵀy."""
        check_floating(x, y)
        return x @ y.mT


class ReLU(nn.Module):
    """Rectified dot product κ(x, x′) = max(0, xᵀx′)."""

    bind = _of_squares

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """max(0, xᵀy)."""
        check_floating(x, y)
        return torch.relu(x @ y.mT)
