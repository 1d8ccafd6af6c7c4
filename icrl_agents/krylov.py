"""Krylov spaces: what a matrix does to few vectors, asked for products alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

EXHAUSTED = 1e-10
"""A space of which no larger share of a product points outside is invariant, up to rounding."""


def arnoldi(product: Callable[[Tensor], Tensor], start: Tensor, most: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Arnoldi's iteration for B matrices at once: orthonormal bases of start, A start, A² start, ….

    Args:
        product: A v, of vectors ``(B, D)``.
        start: Their first vectors, ``(B, D)``.
        most: Largest number of steps.

    Yields:
        After k = 1, 2, … steps the basis V ``(B, k + 1, D)`` and H ``(B, k + 1, k)`` with A V_k = V_{k+1} H; the last
        row of H, and the last vector, are 0 where the space is invariant.
    """
    B, D = start.shape
    basis, H = start.new_zeros(B, most + 1, D), start.new_zeros(B, most + 1, most)
    basis[:, 0] = _over(start, start.norm(dim=-1))
    for k in range(most):
        z = product(basis[:, k])
        size = z.norm(dim=-1)
        for _ in range(2):  # the second time for what rounding has left of the first
            along = (basis[:, : k + 1] @ z[..., None])[..., 0]
            z = z - (basis[:, : k + 1].mT @ along[..., None])[..., 0]
            H[:, : k + 1, k] += along
        left = z.norm(dim=-1)
        H[:, k + 1, k] = left.masked_fill(left <= EXHAUSTED * size, 0.0)
        basis[:, k + 1] = _over(z, H[:, k + 1, k])
        yield basis[:, : k + 2], H[:, : k + 2, : k + 1]


def _over(rows: Tensor, length: Tensor) -> Tensor:
    return (rows / length.masked_fill(length == 0, 1.0)[:, None]).masked_fill((length == 0)[:, None], 0.0)


def least_squares(H: Tensor, right: Tensor) -> Tensor:
    """The shortest y that minimises ‖H y − b‖, ``(B, k)``: small matrices ``(B, k + 1, k)``, some of lower rank."""
    return (torch.linalg.pinv(H.cpu()) @ right.cpu()[..., None])[..., 0].to(H)
