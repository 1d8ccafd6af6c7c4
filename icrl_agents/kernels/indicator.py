"""The kernel that tells equal states from all others."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from icrl_agents.magnitudes import check_floating, resolution
from icrl_agents.notices import warn

_ROUNDING = 16
"""Units in the last place of a column's largest number, within which sums of the same steps give one number."""


_MANY = 0.1
"""A share of the states that have others so near, which those of a line do not have by chance."""

_SOME, _AT_ONCE = 500, 2**20
"""States of a context that are asked whether they have, and distances at a time."""


class Identity(nn.Module):
    """Indicator kernel κ(x, x′) = 1{x = x′}: under it, weighted softmax TD is tabular TD (arXiv 2605.07333)."""

    def bind(self, keys: Tensor, mask: Tensor | None = None) -> Self:
        """Returns the kernel as it is; warns where many of ``keys`` are others but for rounding."""
        n, keys = keys.shape[-2], keys.detach()
        count = min(n, _SOME)
        some = keys[..., torch.arange(count, device=keys.device) * n // max(1, count), :]
        found = [_near(rows, keys).sum(-1) for rows in some.split(max(1, _AT_ONCE // max(1, n)), -2) if keys.numel()]
        if found and bool((torch.stack(found).sum(0) > _MANY * count).any()):
            _warn()
        return self

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
    """Warns where a state of ``x`` that is none of ``y`` is one but for rounding, perhaps to float32."""
    if gaps.numel() == 0:
        return
    unseen = gaps.amin(-1) > 0
    if bool(unseen.any()) and (bool((_near(x, y, gaps) & unseen).any()) or _is_rounded(x, y) or _is_rounded(y, x)):
        _warn()


def _warn() -> None:
    warn(
        "states: some equal a state of the context but for rounding, so that they are none that was visited, or "
        "count as two; round both alike, or ask with np.float32 numbers where observations are such.",
        stacklevel=3,
    )


def _near(x: Tensor, y: Tensor, gaps: Tensor | None = None) -> Tensor:
    """Which of ``x`` are others of ``y`` but for rounding of sums, ``(*batch, m)``, of their distances ``gaps``."""
    gaps = torch.cdist(x, y, p=float("inf")) if gaps is None else gaps
    rounding = _ROUNDING * resolution(y) * y.abs().amax(-2, keepdim=True)
    numbers = (y.round() == y) & (y.abs() <= 0.5 / torch.finfo(y.dtype).eps)  # of states, say, which were not rounded
    rounding = torch.where(numbers.all(-2, keepdim=True), rounding.clamp(max=0.5), rounding)
    near = (gaps > 0) & (gaps <= rounding.amax(-1, keepdim=True))
    if bool(near.any()):
        unit = rounding.clamp(min=torch.finfo(y.dtype).tiny)
        near &= torch.cdist(x / unit, y / unit, p=float("inf")) <= 1.0
    return near.any(-1)


def _is_rounded(x: Tensor, y: Tensor) -> bool:
    """Whether some of ``x`` is in ``y``, all of which float32 holds, once it is rounded to that."""
    if x.dtype != torch.float64:
        return False
    rounded = x.float().to(x)
    finer = (rounded != x).any(-1)
    if not (bool(finer.any()) and bool((y.float().to(y) == y).all())):
        return False
    return bool(((torch.cdist(rounded, y, p=float("inf")) == 0) & finer[..., None]).any())
