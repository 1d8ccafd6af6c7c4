"""Randomness that ``seed=`` does not reach is told of."""

import copy
import random

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from icrl_agents.collection import collect, collect_episodes
from icrl_agents.control import PPOConfig, ppo
from icrl_agents.evaluators import TabularTD
from icrl_agents.ground_truth import ground_truth, states_along


class Walk(gym.Env):
    """A random walk whose steps come from one generator or another."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (1,)), spaces.Discrete(2)

    def __init__(self, source):
        self.source = source

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.zeros(1, np.float32)
        return self.place.copy(), {}

    def step(self, action):
        draw = {"numpy": np.random.normal, "python": random.random, "torch": lambda: torch.rand(1)}
        draw |= {"own": self.np_random.normal, "none": float}
        self.place += np.float32(draw[self.source]())
        return self.place.copy(), float(self.place[0]), False, False, {}


def stay(observation, rng):
    return 0


@pytest.mark.parametrize("source", ["numpy", "python", "torch"])
def test_an_environment_that_draws_from_a_global_generator_is_told_of(source):
    with pytest.warns(UserWarning, match="seed: 3 does not decide the result, since the environment or the policy"):
        collect(Walk(source), num_steps=20, gamma=0.9, seed=3)
    with pytest.warns(UserWarning, match="seed: 0 does not decide the result"):
        ppo(Walk(source), TabularTD(1), total_steps=8, seed=0, config=PPOConfig(rollout_steps=8, batch_size=4))
    with pytest.warns(UserWarning, match="seed: 0 does not decide the result"):
        collect(Walk("own"), num_steps=20, gamma=0.9, seed=0, policy=lambda x, rng: random.randrange(2))
    collect(Walk(source), num_steps=20, gamma=0.9, seed=None)  # where nothing was to decide
    collect(Walk("own"), num_steps=20, gamma=0.9, seed=0)


def test_numpys_global_generator_may_be_of_another_kind():
    kept = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(0))
    try:
        collect(Walk("own"), num_steps=20, gamma=0.9, seed=0)
        with pytest.warns(UserWarning, match="seed: 3 does not decide the result"):
            collect(Walk("numpy"), num_steps=20, gamma=0.9, seed=3)
    finally:
        np.random.set_bit_generator(kept)


def test_an_accelerator_that_comes_into_use_on_the_way_is_no_draw(monkeypatch):
    def policy(observation, rng):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [torch.zeros(16, dtype=torch.uint8)])
        return 0

    collect(Walk("own"), num_steps=20, gamma=0.9, seed=0, policy=policy)


class Restorable(Walk):
    action_space = spaces.Discrete(1)

    def get_state(self):
        return self.place.copy()

    def set_state(self, snapshot, seed=None):
        self.place = snapshot.copy()
        return self.place.copy()


def test_ground_truth_of_such_an_environment_is_told_of_too():
    env = Restorable("numpy")
    with pytest.warns(UserWarning, match="seed: 0 does not decide the result"):
        states = states_along(env, episodes=1, states_per_episode=2, steps=6, seed=0)
    with pytest.warns(UserWarning, match="seed: 1 does not decide the result"):
        ground_truth(env, states, gamma=0.5, continuations=2, seed=1)


@pytest.mark.parametrize("source", ["numpy", "none"])
@pytest.mark.parametrize("number", [2, 3])
def test_copies_that_all_do_the_same_are_told_of_in_workers_too(source, number):
    envs = AsyncVectorEnv([lambda: Walk(source)] * number, context="fork")  # each with NumPy's generator as it is
    try:
        with pytest.warns(
            UserWarning, match=f"env: {number} copies did all the same, though each has a seed of its own"
        ):
            assert len(collect_episodes(envs, num_steps=20, seed=0, policy=stay)) == number
    finally:
        envs.close()
    collect_episodes(SyncVectorEnv([lambda: Walk("own")] * number), num_steps=20, seed=0, policy=stay)


class Coins(gym.Env):
    """Episodes of two tosses, of which many are equal by chance."""

    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 2
        return 0, {}

    def step(self, action):
        self.left -= 1
        heads = int(self.np_random.integers(2))
        return heads, float(heads), self.left == 0, False, {}


def test_copies_whose_first_episodes_are_equal_by_chance_are_not_told_of():
    envs, chance = AsyncVectorEnv([Coins] * 2), 0
    try:
        for seed in range(0, 20, 2):
            episodes = collect_episodes(envs, num_steps=20, seed=seed)
            chance += np.array_equal(episodes[0].observations, episodes[len(episodes) // 2].observations)
    finally:
        envs.close()
    assert chance > 0


def test_no_seed_is_fresh_entropy_even_where_the_environment_was_seeded_before():
    env = Walk("own")
    env.reset(seed=0)
    envs = SyncVectorEnv([lambda: copy.deepcopy(env)] * 4)
    episodes = collect_episodes(envs, num_steps=5, seed=None, policy=stay)
    episodes += collect_episodes(env, num_steps=5, seed=None, policy=stay)
    assert len({episode.rewards.tobytes() for episode in episodes}) == 5
