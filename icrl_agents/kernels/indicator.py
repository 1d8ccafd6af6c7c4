"""The kernel that tells equal states from all others."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from icrl_agents.magnitudes import check_floating, resolution
from icrl_agents.notices import warn

_ROUNDING = 16
"""Units in the last place of a column's largest number, within which sums of the same steps give one number."""


_LOOKED_AT = 100_000
"""Pairs of states that are compared column by column."""

_MANY = 0.1
"""A share of the states that have others so near, which those of a line do not have by chance."""


class Identity(nn.Module):
    """Indicator kernel κ(x, x′) = 1{x = x′}: under it, weighted softmax TD is tabular TD (arXiv 2605.07333)."""

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """0 where x = x′, −∞ elsewhere."""
        return torch.log(self(x, y))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """1{x = x′}."""
        check_floating(x, y)
        gaps = torch.cdist(x, y, p=float("inf"))
        _check_rounded(x.detach(), y.detach(), gaps.detach())
        return (gaps == 0).to(x.dtype)


def _check_rounded(x: Tensor, y: Tensor, gaps: Tensor) -> None:
    """Warns where a state of ``x`` is one of ``y`` but for rounding, perhaps to float32, and so another one."""
    if gaps.numel() == 0:
        return
    unseen = bool((gaps.amin(-1) > 0).any())
    if _is_near(x, y, gaps) or (unseen and (_is_rounded(x, y) or _is_rounded(y, x))):
        warn(
            "states: some equal a state of the context but for rounding, so that they are none that was visited, or "
            "count as two; round both alike, or ask with np.float32 numbers where observations are such.",
            stacklevel=2,
        )


def _is_near(x: Tensor, y: Tensor, gaps: Tensor) -> bool:
    """Whether one of ``x`` that is none of ``y``, or many that are, are others of ``y`` but for rounding of sums."""
    rounding = _ROUNDING * resolution(y) * y.abs().amax(-2, keepdim=True)
    numbers = (y.round() == y) & (y.abs() <= 0.5 / torch.finfo(y.dtype).eps)  # of states, say, which were not rounded
    rounding = torch.where(numbers.all(-2, keepdim=True), rounding.clamp(max=0.5), rounding)
    near = ((gaps > 0) & (gaps <= rounding.amax(-1, keepdim=True))).nonzero()[:_LOOKED_AT]
    if len(near) == 0:
        return False
    *batch, i, j = near.unbind(-1)
    left, right, most = (each.expand(*gaps.shape[:-2], -1, -1) for each in (x, y, rounding))
    differences = (left[(*batch, i)] - right[(*batch, j)]).abs()
    found = torch.zeros(gaps.shape[:-1], dtype=torch.bool, device=gaps.device)
    alike = (differences <= most[(*batch, torch.zeros_like(i))]).all(-1)
    found[tuple(each[alike] for each in (*batch, i))] = True
    seen = (gaps == 0).any(-1)
    return bool((found & ~seen).any()) or int((found & seen).sum()) > _MANY * int(seen.sum())


def _is_rounded(x: Tensor, y: Tensor) -> bool:
    """Whether some of ``x`` is in ``y``, all of which float32 holds, once it is rounded to that."""
    if x.dtype != torch.float64:
        return False
    rounded = x.float().to(x)
    finer = (rounded != x).any(-1)
    if not (bool(finer.any()) and bool((y.float().to(y) == y).all())):
        return False
    return bool(((torch.cdist(rounded, y, p=float("inf")) == 0) & finer[..., None]).any())
