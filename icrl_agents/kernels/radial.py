"""Kernels of a scaled distance between states."""

from __future__ import annotations

import math
from typing import Literal, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from icrl_agents.arrays import differentiated, positive
from icrl_agents.distances import (
    ExpandedScore,
    common_offset,
    median_distance,
    pairwise_distance,
    squared_distance,
    without_offset,
)
from icrl_agents.magnitudes import check_floating, widened
from icrl_agents.pure import holding

LengthScale = float | Tensor | Literal["median"]


class _Radial(nn.Module):
    """What the kernels of a scaled Euclidean distance ρ = ‖(x − x′)/ℓ‖ share.

    Distances are computed from differences, not from ‖x‖² + ‖x′‖² − 2xᵀx′, which loses all digits where states are
    close and far from the origin. Squares alone are expanded, around the centre, in float64, where exact to 1e-12.
    """

    length_scale: Tensor | None
    positive = True
    _offset: Tensor | None = None

    def __init__(self, length_scale: LengthScale = 1.0) -> None:
        super().__init__()
        if isinstance(length_scale, str):
            if length_scale != "median":
                raise ValueError(f"length_scale: expected a number, a tensor (d,) or 'median', got {length_scale!r}.")
            self.register_parameter("length_scale", None)
        else:
            scale = positive("length_scale", length_scale)
            if scale.ndim > 1:
                raise ValueError(f"length_scale: expected a number or a tensor (d,), got shape {tuple(scale.shape)}.")
            self.length_scale = nn.Parameter(scale, requires_grad=False)

    def bind(self, keys: Tensor, mask: Tensor | None = None) -> Self:
        """Returns the kernel for one context: with ℓ as it is now, or the median distance between ``keys``.

        Raises:
            ValueError: If training has left a length scale at 0, NaN or inf.
        """
        if isinstance(getattr(type(self), "length_scale", None), property) and not is_parametrized(self):
            raise TypeError(
                "length_scale: a property of a class of one's own cannot be kept as it is now; take "
                "torch.nn.utils.parametrize, or a module that calls RBF(length_scale) itself."
            )
        scale = self.length_scale
        if scale is not None and not bool((torch.isfinite(scale) & (scale != 0)).all()):
            raise ValueError(
                f"length_scale: expected finite numbers that are not 0, got {scale.tolist()}, as where training has "
                "gone too far; take a smaller learning rate, or train its logarithm."
            )
        found = median_distance(keys.detach(), mask)[..., None, None] if scale is None else scale
        return holding(self, length_scale=found, _offset=common_offset(keys))

    def distance(self, x: Tensor, y: Tensor, p: float = 2.0) -> Tensor:
        """‖(x − y)/ℓ‖_p ``(*batch, m, n)``, of what float64 holds of x/ℓ and y/ℓ without the offset that they share."""
        return pairwise_distance(*self._scaled(x, y), p).to(x.dtype)

    def _scaled(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        scale = widened(self._scale(x, y))
        left, right = (widened(each) / scale for each in without_offset(x, y, self._offset))
        return left, right

    def _scale(self, x: Tensor, y: Tensor) -> Tensor:
        """ℓ, of the context ``y`` if it is a median."""
        check_floating(x, y)
        if self.length_scale is None:
            return median_distance(y.detach())[..., None, None].to(x)
        scale = self.length_scale.to(x)
        if scale.ndim == 1 and len(scale) not in (1, x.shape[-1]):
            raise ValueError(f"length_scale: expected one number per state dimension, {x.shape[-1]}, got {len(scale)}.")
        return scale

    def extra_repr(self) -> str:
        """The length scale."""
        return f"length_scale={'median' if self.length_scale is None else self.length_scale.tolist()}"


class RBF(_Radial):
    """Gaussian kernel κ(x, x′) = exp(−‖(x − x′)/ℓ‖²/2), score −‖(x − x′)/ℓ‖²/2.

    Args:
        length_scale: ℓ > 0 in the units of the states: a number, a tensor ``(d,)`` with one per dimension, or
            ``"median"``, the median Euclidean distance between the states of each context, to gradients a constant.

    Raises:
        ValueError: If ``length_scale`` is not positive and finite, or an unknown word.

    Example:
        >>> x = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
        >>> RBF(length_scale=2.0)(x, x)[0]
        tensor([1.0000, 0.6065], dtype=torch.float64)
    """

    _bound: tuple[Tensor, ExpandedScore] | None = None

    def bind(self, keys: Tensor, mask: Tensor | None = None) -> Self:
        """As of every radial kernel; keys and ℓ that take no gradient are prepared once, for all queries."""
        bound = super().bind(keys, mask)
        scale = bound._scale(keys, keys)
        bound._bound = None if differentiated(keys, scale) else (keys, ExpandedScore(keys, scale))
        return bound

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """−ρ²/2."""
        if type(self).distance is not _Radial.distance:  # that of a class of one's own
            return -0.5 * self.distance(x, y).square()
        expanded = self._expanded(x, y)
        return (-0.5 * squared_distance(*self._scaled(x, y))).to(x.dtype) if expanded is None else expanded

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Exp(−ρ²/2), where it can be as a power of two, which takes less time."""
        expanded = self._expanded(x, y, math.log2(math.e))
        return torch.exp(self.score(x, y)) if expanded is None else torch.exp2(expanded)

    def _expanded(self, x: Tensor, y: Tensor, factor: float = 1.0) -> Tensor | None:
        if type(self).distance is not _Radial.distance:
            return None
        keys, prepared = self._bound or (None, None)
        if prepared is None or keys is not y or differentiated(y):
            prepared = ExpandedScore(y, self._scale(x, y))
        return prepared(x, factor)


class Laplace(_Radial):
    """Laplace kernel κ(x, x′) = exp(−‖(x − x′)/ℓ‖) with the Euclidean norm, score −‖(x − x′)/ℓ‖.

    It has no second derivatives where states coincide, and torch none of distances: take RBF for them.

    Args:
        length_scale: As of ``RBF``.
    """

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """−ρ."""
        return -self.distance(x, y)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Exp(−ρ)."""
        return torch.exp(self.score(x, y))


class ProductLaplace(_Radial):
    """Product of one-dimensional Laplace kernels, κ(x, x′) = exp(−Σ_d |x_d − x′_d|/ℓ_d), score −Σ_d |x_d − x′_d|/ℓ_d.

    Its distance is the L1 norm: states are close only where they are close in every dimension.

    Args:
        length_scale: As of ``RBF``.
    """

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """−Σ_d |x_d − x′_d|/ℓ_d."""
        return -self.distance(x, y, p=1.0)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The exponential of the score."""
        return torch.exp(self.score(x, y))
