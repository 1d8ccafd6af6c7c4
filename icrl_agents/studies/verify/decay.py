"""How the error of softmax TD decays with depth in the population limit, over many chains and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import torch
from torch import Tensor

from icrl_agents.diagnostics import ExpectedUpdate, expected_update, kernel_diagonality, sufficient_bound
from icrl_agents.kernels import Exponential, Kernel
from icrl_agents.studies.verify.config import VerifyConfig
from icrl_envs import FiniteProcess, boyan_chain

STATES, DEPTH = 5, 1_000
SCALES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""c of the score c·xᵀx′: on one-hot features it sets the diagonality."""
SETTINGS = (*((c, 1.0) for c in SCALES), (SCALES[-1], 0.5))
"""Scales c with step sizes α."""
DISCOUNTS, FEATURES = (0.5, 0.9), ("one_hot", "random")


@dataclass(frozen=True)
class Decay:
    """How the error of N chains decays in the population limit, under one score.

    Args:
        update: The update of each chain, batch shape ``(N,)``.
        exact: Their values v = (I − γP)⁻¹ r, ``(N, S)``.
        gamma: γ of all chains.
        step_size: α in (0, 1].
        depth: L, even.
    """

    update: ExpectedUpdate
    exact: Tensor
    gamma: float
    step_size: float = 1.0
    depth: int = DEPTH

    @classmethod
    def of(cls, chains: Sequence[FiniteProcess], kernel: Kernel, step_size: float = 1.0, depth: int = DEPTH) -> Decay:
        """Of finite processes with equally many states and the same γ."""
        updates = [expected_update(chain, kernel) for chain in chains]
        stacked = ExpectedUpdate(*(torch.stack(parts) for parts in zip(*updates, strict=True)))
        exact = torch.as_tensor(np.stack([chain.values() for chain in chains]))
        return cls(stacked, exact, chains[0].gamma, step_size, depth)

    @cached_property
    def errors(self) -> Tensor:
        """‖v_t − v‖_∞ for t = 0 … L, ``(N, L + 1)``."""
        return self.update.errors(self.depth, self.step_size).abs().amax(-2)

    @cached_property
    def rate(self) -> Tensor:
        """The measured rate per sweep over the second half of the sweeps, ``(N,)``."""
        half = self.depth // 2
        return (self.errors[:, -1].log() - self.errors[:, half].log()).div(self.depth - half).exp()

    @cached_property
    def radius(self) -> Tensor:
        """The spectral radius of I − αM(I − γP), ``(N,)``."""
        return torch.linalg.eigvals(self.update.td_error_operator(self.step_size)).abs().amax(-1)

    @cached_property
    def norm(self) -> Tensor:
        """Its ∞-norm, ``(N,)``."""
        return self.update.error_operator(self.step_size).abs().sum(-1).amax(-1)

    @cached_property
    def diagonality(self) -> Tensor:
        """The least kernel diagonality m, ``(N,)``."""
        return kernel_diagonality(self.update.attention).minimum

    @cached_property
    def bound(self) -> Tensor:
        """1 − α(2m − 1 − γ), ``(N,)``."""
        return sufficient_bound(self.diagonality, self.gamma, self.step_size)


def population(config: VerifyConfig) -> list[Decay]:
    """A decay for each of ``SETTINGS``, for each discount, for each kind of features, in this order."""
    decays = []
    for features, gamma in product(FEATURES, DISCOUNTS):
        chains = drawn(config.first_seed, config.chains, gamma, features)
        decays += [Decay.of(chains, Exponential(1.0 / c), alpha) for c, alpha in SETTINGS]
    return decays


def drawn(first_seed: int, chains: int, gamma: float, features: str = "one_hot") -> list[FiniteProcess]:
    """The random Boyan's chains."""
    seeds = range(first_seed, first_seed + chains)
    return [boyan_chain(num_states=STATES, gamma=gamma, features=features, task_seed=seed) for seed in seeds]
