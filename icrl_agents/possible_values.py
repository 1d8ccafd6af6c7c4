"""Values that no policy has, noticed when they are asked for."""

from __future__ import annotations

import torch
from torch import Tensor

from icrl_agents.context import Context
from icrl_agents.divergence import DivergenceWarning, value_bound
from icrl_agents.notices import warn

FAR, WRONG_SIGN, SLIGHT = 2.0, 0.25, 0.01
"""Values of queries beyond the first times r_max/(1 − γ), under attention that is normalised, are warned of; beyond the
second where no reward has their sign, or none above the third of the largest. A contracting kernel extrapolates.
"""


def check_possible(values: Tensor, context: Context) -> None:
    """Warns where ``values (*more, *batch, m, c)`` are far from any that a policy has in ``context``.

    States that listen to others more than to themselves keep their TD errors, and their coefficients grow with every
    sweep: what the context's own states do not show, a query may.
    """
    bound = value_bound(context)
    if values.numel() == 0 or len(context) == 0 or bool(torch.isinf(bound).all()):
        return
    tiny, rewards = torch.finfo(bound.dtype).tiny, context.rewards.detach()
    for sign in (1.0, -1.0):
        reward = (sign * rewards).amax(-1).clamp(min=0.0) / rewards.abs().amax(-1).clamp(min=tiny)
        allowed = torch.where(reward > SLIGHT, FAR, WRONG_SIGN) * bound
        peaks = (sign * values).flatten(-2).amax(-1)
        excess = torch.where(peaks > allowed, peaks / bound.clamp(min=tiny), 0.0)
        if bool((excess > 0).any()):
            worst = excess.argmax()
            reached, most, share = (float(x.expand_as(excess).flatten()[worst]) for x in (peaks, bound, reward))
            limit = f"r_max/(1 − γ) = {most:.4g}" if share > SLIGHT else "0, though rewards are of the other sign"
            warn(
                f"values of these states reach {sign * reached:.4g}, beyond {limit}, as no policy has them: some "
                "states of the context listen to others more than to themselves, and these states to them; take a "
                "narrower kernel, centred or scaled states, or fewer sweeps.",
                DivergenceWarning,
                stacklevel=4,
            )
            return
