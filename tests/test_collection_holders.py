"""Environments that more than one thing steps at a time."""

import gymnasium as gym
import numpy as np
import pytest

from icrl_agents.collection import collect_episodes
from icrl_agents.collection.copies import copies_of


def test_two_collections_in_one_environment_at_a_time_are_refused():
    env = gym.make("Pendulum-v1")

    def policy(observation, rng):
        collect_episodes(env, num_steps=2, seed=1)
        return np.zeros(1, np.float32)

    with pytest.raises(ValueError, match="env: another collection has reset it while this one was running"):
        collect_episodes(env, num_steps=9, seed=0, policy=policy)
    copies = gym.make_vec("Pendulum-v1", num_envs=2)
    first, second = copies_of(copies), copies_of(copies)
    for each in (first, second):
        each.reset(0)
    second.step([np.zeros(1, np.float32)] * 2)
    with pytest.raises(ValueError, match="env: another collection has reset it"):
        first.step([np.zeros(1, np.float32)] * 2)
    assert len(collect_episodes(env, num_steps=9, seed=0)) == len(collect_episodes(env, num_steps=9, seed=0)) == 1
