"""How fast the layers converge: measured rates against the spectral radius and the bound of kernel diagonality."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from icrl_agents.kernels import DotProduct
from icrl_agents.studies.verify.config import VerifyConfig
from icrl_agents.studies.verify.constructions import SOFTMAX
from icrl_agents.studies.verify.decay import STATES, Decay, drawn, population
from icrl_agents.studies.verify.figures import convergence_figure
from icrl_agents.studies.verify.rows import EXACT, Row, largest
from icrl_agents.studies.verify.samples import largest_error

RATE = 0.02
"""Largest relative difference between a measured rate and the spectral radius."""


def check_convergence(config: VerifyConfig) -> Iterator[Row]:
    """Yields the rows on rates and writes convergence.png."""
    decays = population(config)
    convergence_figure(config, decays, config.out / "convergence.png")
    on = f"population limit, {config.chains} chains, {len(decays)} settings"

    def row(claim: str, measured: Tensor | float, where: str = on, high: float | None = EXACT) -> Row:
        low = None if high is not None else 0.5
        return Row(claim=claim, source=SOFTMAX, on=where, measured=float(measured), at_least=low, at_most=high)

    yield row("fixed point = (I − γP)⁻¹ r", largest(largest_error(d.update.limit(), d.exact) for d in decays))
    rate, radius, bound, norm = (
        torch.cat([getattr(d, name) for d in decays]) for name in ("rate", "radius", "bound", "norm")
    )
    yield row("rate of the error = spectral radius of I − αM(I − γP)", (rate / radius - 1).abs().max(), high=RATE)
    slowest = torch.cat([d.radius.new_tensor(1.0 - d.step_size * (1.0 - d.gamma)) - d.radius for d in decays])
    yield row("no score is faster than 1 − α(1 − γ)", slowest.max())
    yield row("‖I − αM(I − γP)‖_∞ ≤ 1 − α(2m − 1 − γ), m the kernel diagonality", (norm - bound).max())
    growth = torch.cat([(d.errors[:, 1:] / d.errors[:, :-1]).amax(-1) / d.norm for d in decays])
    yield row("no sweep grows the error by more than that norm", growth.max() - 1.0)
    holds = bound < 1.0
    excess = (rate - bound)[holds].max() if bool(holds.any()) else torch.nan
    yield row("m > (1 + γ)/2: converges, at a rate within the bound", excess, f"the {int(holds.sum())} that fulfil it")
    share = (radius < 1.0)[~holds].double().mean()
    others = f"the {int((~holds).sum()):,} that do not"
    yield row("this is not necessary: share that converges without it", share, others, high=None)
    yield _divergence(config)


def _divergence(config: VerifyConfig) -> Row:
    """A score that prefers the other states: M has eigenvalues below 0."""
    away = DotProduct(-2.0 * torch.eye(STATES, dtype=torch.float64))
    decay = Decay.of(drawn(config.first_seed, config.chains, 0.9), away, depth=400)
    least = float(decay.radius.min())
    return Row(
        claim="spectral radius > 1: diverges, at that rate",
        source=SOFTMAX,
        on=f"score −2·1{{s = s′}}, {config.chains} chains of radius ≥ {least:.3g}",
        measured=float((decay.rate / decay.radius - 1).abs().max()) if least > 1 else float("nan"),
        at_most=RATE,
    )
