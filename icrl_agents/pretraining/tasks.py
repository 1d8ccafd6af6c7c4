"""The tasks of pretraining: the environments' random chains, many at once, with symbols of their own."""

from __future__ import annotations

import dataclasses

import numpy as np

from icrl_agents.pretraining.config import PretrainConfig
from icrl_envs import FiniteBatch, boyan_chains, loop_chains


def draw_chains(config: PretrainConfig, count: int, rng: np.random.Generator) -> FiniteBatch:
    """Returns ``count`` fresh chains with fresh features and rewards.

    One-hot features are distinct unit vectors in random order, so that a state's symbol says nothing about its place.

    Args:
        config: Says which kind of chain and features; not CartPole.
        count: N ≥ 1.
        rng: Source of the draws.
    """
    draw = boyan_chains if config.chain == "boyan" else loop_chains
    S, d, random = config.num_states, config.dim, config.features == "random"
    chains = draw(
        count,
        rng,
        num_states=S,
        gamma=config.gamma,
        features=config.features,
        num_features=d if random else None,
        representable=config.representable,
    )
    if random:
        return chains
    symbols = rng.permuted(np.tile(np.arange(d), (count, 1)), axis=1)[:, :S]
    return dataclasses.replace(chains, features=np.eye(d)[symbols])
