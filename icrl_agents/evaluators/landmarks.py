"""Landmarks, which stand in for all states of a long context, and the features of its points that they make."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from icrl_agents.context import Context
from icrl_agents.distinct import group_rows
from icrl_agents.kernel_matrix import OWN, check_finite, kernel_matrix
from icrl_agents.kernels import Kernel

SMALLEST_COSINE = 1e-3
"""Final observations at a smaller one, κ(x, z)/√(κ(x, x) κ(z, z)), to every landmark have their exact weights."""

REACH = 0.1
"""States at a smaller one to every landmark keep less than a hundredth of κ(x, x): they become landmarks as well."""

ROWS = 4_096
"""States at a time."""

_FEW = 32
_SAME = 1e-6


class Landmarks(NamedTuple):
    """Landmarks and what turns κ(Z, x) into features: values at x are κ(x, Z) B a / (κ(x, Z) mass).

    Final observations may lie so far out that their weights hang on digits which κ(x, Z) has not got. These have
    columns of their own, in what keys send as in what such points receive, so that their weights are exact.

    Args:
        kernel: κ, bound to the context.
        Z: Landmarks, ``(m, d)``.
        B: ``(m + e, r + e)``, with B Bᵀ = κ(Z, Z)⁺ in its first block, and 1 on the diagonal of the second.
        mass: B Bᵀ Σ_k κ(Z, x_k), ``(m,)``, by which values are normalised; None where they are not.
        far: Indices of those observations among the context's points, ``(e,)``.
        exact: Their weights K(x_k, x), ``(e, n)``.
        visited: Which of the context's points are states that a transition leaves, ``(p,)``.
    """

    kernel: Kernel
    Z: Tensor
    B: Tensor
    mass: Tensor | None
    far: Tensor
    exact: Tensor
    visited: Tensor

    def rows(self, context: Context, index: Tensor) -> tuple[Tensor, Tensor]:
        """What the points of ``context`` at ``index (b,)`` send, κ(x, Z) where they are keys, and their features.

        No normaliser is smaller than κ of a key among its terms: of a landmark, and of the point itself if it is a key.
        """
        points, keys = context.points[index], self.visited[index]
        kappa = kernel_matrix(self.kernel, points, self.Z)
        check_finite(kappa)
        features = kappa
        if self.mass is not None:
            own = _diagonal(self.kernel, points).masked_fill(~keys, 0.0)
            features = kappa / _normaliser(kappa, self.mass, own)[:, None]
        if len(self.far) == 0:
            return kappa, features
        is_far = index[:, None] == self.far
        sent = self.exact[:, index.clamp(max=len(context) - 1)].mT
        features = features.masked_fill(is_far.any(-1, keepdim=True), 0.0)
        return torch.cat([kappa, sent], -1), torch.cat([features, is_far.to(features)], -1)

    @torch.no_grad()
    def lost(self, states: Tensor, kappa: Tensor) -> Tensor:
        """The most of K(x, x) that features may lose at states of the context, ``(b,)``, of what they send.

        It is (κ(x, x) − max_z κ(x, z)² / κ(z, z)) / normaliser: of all landmarks together it is less.
        """
        kappa, own = kappa[:, : len(self.Z)], _diagonal(self.kernel, states)
        found = own * (1.0 - _cosines(self.kernel, self.Z, kappa, own).square()).clamp(min=0.0)
        return found if self.mass is None else found / _normaliser(kappa, self.mass, own)


def visited(context: Context) -> Tensor:
    """Which of the points are states that a transition leaves, ``(p,)``: next states may equal one and be kept apart.

    So are those of rows in another order, and those with a derivative of their own.
    """
    group = group_rows(context.points).group
    left = torch.zeros_like(group, dtype=torch.bool)
    left[group[: len(context)][context.mask]] = True
    return left[group]


def finals(context: Context, visited: Tensor) -> Tensor:
    """The indices of the final observations among the points, which no transition leaves, ``(e,)``."""
    return context.successors[~visited[context.successors]].unique()


def far_finals(kernel: Kernel, Z: Tensor, context: Context, visited: Tensor, most: int) -> Tensor:
    """The indices of final observations that are far from every landmark, ``most`` at most: the farthest."""
    found = finals(context, visited)
    if len(found) == 0:
        return found
    points = context.points[found]
    cosines = _cosines(kernel, Z, kernel_matrix(kernel, points, Z), _diagonal(kernel, points))
    farthest = cosines.argsort()[:most]
    return found[farthest[cosines[farthest] < SMALLEST_COSINE]].sort().values


def with_unreached(kernel: Kernel, Z: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """Z and the states out of its reach, farthest first, ``(m + e, d)``, e ≤ ⌈m / 10⌉; Σ_k κ(z, x_k) of each.

    Drawn at random, Z misses what is rare, however large the rewards are there.
    """
    sums, cosines = _survey(kernel, Z, states)
    left, most = (cosines < REACH).nonzero()[:, 0], len(Z) + math.ceil(len(Z) / 10)
    points, cosines, chosen = states[left].detach(), cosines[left], []
    while len(Z) + len(chosen) < most and bool((cosines < 1.0 - _SAME).any()):
        chosen.append(left[cosines.argmin()])
        cosines = torch.maximum(cosines, _survey(kernel, states[chosen[-1]][None].detach(), points)[1])
    if not chosen:
        return Z, sums
    more = states[torch.stack(chosen)]
    return torch.cat([Z, more]), torch.cat([sums, _survey(kernel, more, states)[0]])


def _survey(kernel: Kernel, Z: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_k κ(x_k, z), ``(m,)``, and each state's largest cosine to a landmark, ``(n,)``."""
    sums, cosines = torch.zeros_like(Z[:, 0]), []
    for block in states.split(ROWS):
        kappa = kernel_matrix(kernel, block, Z)
        sums = sums + kappa.sum(0)
        with torch.no_grad():
            cosines.append(_cosines(kernel, Z, kappa, _diagonal(kernel, block)))
    return sums, torch.cat(cosines)


def inverse_root(kappa: Tensor) -> Tensor:
    """B with B Bᵀ = κ⁺, ``(m, r)``, directions below rounding left out."""
    given = kappa.detach()
    if not torch.allclose(given, given.mT, rtol=1e-6, atol=1e-6 * float(given.abs().max())):
        raise ValueError("kernel: Nystrom needs a symmetric kernel, got κ(x, y) ≠ κ(y, x).")
    eigenvalues, U = torch.linalg.eigh((kappa + kappa.mT) / 2)
    if bool(eigenvalues[0] < -1e-6 * eigenvalues[-1]):
        raise ValueError("kernel: Nystrom needs a positive semi-definite kernel, got one with a negative eigenvalue.")
    kept = eigenvalues > 10 * len(kappa) * torch.finfo(kappa.dtype).eps * eigenvalues[-1]
    return U[:, kept] * eigenvalues[kept].rsqrt()


def _cosines(kernel: Kernel, Z: Tensor, kappa: Tensor, own: Tensor) -> Tensor:
    """max_z |κ(x, z)| / √(κ(x, x) κ(z, z)), ``(b,)``, of κ(x, Z) ``(b, m)`` and κ(x, x); 1 where κ(x, x) = 0."""
    lengths = _diagonal(kernel, Z).sqrt()
    lengths = lengths.masked_fill(lengths == 0, 1.0)
    scaled = kappa if bool((lengths == 1).all()) else kappa / lengths  # without a copy for most kernels
    largest = torch.maximum(scaled.amax(-1), -scaled.amin(-1))
    return (largest / own.sqrt()).masked_fill(own == 0, 1.0)


def _normaliser(kappa: Tensor, mass: Tensor, own: Tensor) -> Tensor:
    """Σ_k κ(x, x_k) as landmarks give it, or the least that it can be if that is larger; 1 where it is 0."""
    found = torch.maximum(kappa @ mass, torch.maximum(kappa.amax(-1), own))
    return found.masked_fill(found == 0, 1.0)


def _diagonal(kernel: Kernel, points: Tensor) -> Tensor:
    """κ(x, x) of each point, ``(b,)``; a kernel of one's own may take tables alone, not a batch of them."""
    if type(kernel) in OWN:
        return kernel(points[:, None], points[:, None])[:, 0, 0]
    return torch.cat([kernel_matrix(kernel, few, few).diagonal() for few in points.split(_FEW)])
