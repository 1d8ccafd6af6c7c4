"""Every environment id of the package, in one list."""

from typing import NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import WrapperSpec


class Entry(NamedTuple):
    """One id and where its classes are found; strings, so that nothing is imported before it is made."""

    id: str
    entry_point: str
    vector_entry_point: str | None = None
    max_episode_steps: int | None = None
    additional_wrappers: tuple[WrapperSpec, ...] = ()


# Refuses the longer TimeLimit that gym.make(max_episode_steps=...) would put around an environment that ends at 500.
METAWORLD_LIMIT = (WrapperSpec("EpisodeLimit", "icrl_envs.metaworld.limits:EpisodeLimit", {}),)

ENTRIES = (
    Entry("icrl/BoyanChain-v0", "icrl_envs.chain_envs:BoyanChainEnv", "icrl_envs.vector:BoyanChainVectorEnv"),
    Entry("icrl/LoopChain-v0", "icrl_envs.chain_envs:LoopChainEnv", "icrl_envs.vector:LoopChainVectorEnv"),
    Entry("icrl/RKHS-v0", "icrl_envs.rkhs_env:RKHSEnv", "icrl_envs.vector:RKHSVectorEnv"),
    Entry("icrl/CartPole-v0", "icrl_envs.cartpole_env:CartPoleEnv", max_episode_steps=500),
    Entry("icrl/MetaWorldMRP-v0", "icrl_envs.metaworld.mrp:MetaWorldMRPEnv", additional_wrappers=METAWORLD_LIMIT),
    Entry("icrl/MetaWorld-v0", "icrl_envs.metaworld.env:MetaWorldEnv", additional_wrappers=METAWORLD_LIMIT),
)


def register_envs() -> None:
    """Register every id with Gymnasium; ids that are registered already are left as they are."""
    for entry in ENTRIES:
        if entry.id not in gym.registry:
            gym.register(**entry._asdict())
