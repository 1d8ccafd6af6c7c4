"""The kernel that tells equal states from all others."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from icrl_agents.magnitudes import check_floating
from icrl_agents.notices import warn

_ROUNDING = 16
"""Units in the last place of a column's largest number, within which sums of the same steps give one number."""


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
    """Warns where a state of ``x`` is none of ``y``, and is one of them but for rounding, perhaps to float32."""
    if gaps.numel() == 0 or not bool((gaps.amin(-1) > 0).any()):
        return
    if _is_near(x, y, gaps) or _is_rounded(x, y) or _is_rounded(y, x):
        warn(
            "states: some equal a state of the context but for rounding, so that they are none that was visited; "
            "round both alike, or ask with np.float32 numbers where observations are such.",
            stacklevel=2,
        )


def _is_near(x: Tensor, y: Tensor, gaps: Tensor) -> bool:
    """Whether the nearest one of ``y`` is one of ``x`` but for rounding of sums of each column's numbers."""
    least, nearest = gaps.min(-1, keepdim=True)
    among = y.expand(*nearest.shape[:-2], *y.shape[-2:])
    differences = (x - among.gather(-2, nearest.expand(*nearest.shape[:-1], y.shape[-1]))).abs()
    rounding = _ROUNDING * torch.finfo(y.dtype).eps * y.abs().amax(-2, keepdim=True)
    return bool(((differences <= rounding).all(-1) & (least[..., 0] > 0)).any())


def _is_rounded(x: Tensor, y: Tensor) -> bool:
    """Whether some of ``x`` is in ``y``, all of which float32 holds, once it is rounded to that."""
    if x.dtype != torch.float64:
        return False
    rounded = x.float().to(x)
    finer = (rounded != x).any(-1)
    if not (bool(finer.any()) and bool((y.float().to(y) == y).all())):
        return False
    return bool(((torch.cdist(rounded, y, p=float("inf")) == 0) & finer[..., None]).any())
