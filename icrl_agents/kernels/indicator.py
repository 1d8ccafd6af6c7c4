"""The kernel that tells equal states from all others."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from icrl_agents.magnitudes import check_floating
from icrl_agents.notices import warn


class Identity(nn.Module):
    """Indicator kernel κ(x, x′) = 1{x = x′}: under it, weighted softmax TD is tabular TD (arXiv 2605.07333)."""

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """0 where x = x′, −∞ elsewhere."""
        return torch.log(self(x, y))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """1{x = x′}."""
        check_floating(x, y)
        _check_rounded(x.detach(), y.detach())
        return (torch.cdist(x, y, p=float("inf")) == 0).to(x.dtype)


def _check_rounded(x: Tensor, y: Tensor) -> None:
    """Warns where a state of ``x`` is one of ``y`` but for rounding to float32, in which all of ``y`` came."""
    if x.dtype != torch.float64 or x.numel() == 0:
        return
    rounded = x.float().to(x)
    finer = (rounded != x).any(-1)
    if not (bool(finer.any()) and bool((y.float().to(y) == y).all())):
        return
    if bool(((torch.cdist(rounded, y, p=float("inf")) == 0) & finer[..., None]).any()):
        warn(
            "states: some equal a state of the context but for rounding to float32, in which that was observed, so "
            "that they are none that was visited; ask with np.float32 numbers, as observations are.",
            stacklevel=2,
        )
