"""Random samples of indices."""

import torch
from torch import Tensor

from icrl_agents.magnitudes import power_of_two


def some(points: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """``number`` of the points, drawn one by one; all if they are no more."""
    if number >= len(points):
        return points
    return points[torch.randint(len(points), (number,), generator=generator, device="cpu").to(points.device)]


def by_risk(risks: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Indices drawn with probabilities in proportion to squares, as they are best for a sum of squared errors."""
    sums = (risks / power_of_two(risks)).square().cumsum(0)
    drawn = torch.rand(min(number, len(risks)), generator=generator, dtype=torch.float64, device="cpu")
    found = torch.searchsorted(sums, drawn.to(sums.device) * sums[-1], right=True)
    return found[found < len(risks)]  # none where nothing is at risk
