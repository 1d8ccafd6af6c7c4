"""Randomness that ``seed=`` does not reach is told of."""

import contextlib
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


class Forgetful(gym.Env):
    """Draws from a generator that its reset seeds or not."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (1,)), spaces.Discrete(1)

    def __init__(self, source):
        self.source, self.rng, self.old = source, np.random.default_rng(), np.random.RandomState()

    def reset(self, *, seed=None, options=None):
        if self.source == "anew" and seed is not None:
            self.rng = np.random.default_rng(seed)
        elif self.source == "in place" and seed is not None:
            self.old.seed(seed)
            self.rng.bit_generator.state = np.random.PCG64(seed).state
        elif self.source == "seeded":
            super().reset(seed=seed)
        self.left = 3
        return self._drawn(), {}

    def step(self, action):
        self.left -= 1
        return self._drawn(), 0.0, self.left == 0, False, {}

    def _drawn(self):
        stream = self.np_random if self.source in ("forgotten", "seeded") else self.rng
        drawn = 0.0 if self.source == "none" else stream.normal() + self.old.normal() * (self.source == "in place")
        self.place = np.full(1, drawn, np.float32)
        return self.place

    def get_state(self):
        return self.left, self.place

    def set_state(self, snapshot, seed=None):
        self.reset(seed=seed)
        self.left, self.place = snapshot
        return self.place


@pytest.mark.parametrize(("source", "name"), [("forgotten", "np_random"), ("own", "rng")])
def test_an_environment_whose_reset_does_not_seed_its_generator_is_told_of(source, name):
    told = f"seed: 0 does not decide the result, since the environment draws from its {name}, which its reset does not"
    for env in (Forgetful(source), SyncVectorEnv([lambda: Forgetful(source)] * 2)):
        for _ in range(2):
            with pytest.warns(UserWarning, match=told):
                collect(env, num_steps=5, gamma=0.9, seed=0)
        collect(env, num_steps=5, gamma=0.9, seed=None)  # where nothing was to decide
    with pytest.warns(UserWarning, match=told):
        ppo(Forgetful(source), TabularTD(1), total_steps=8, seed=0, config=PPOConfig(rollout_steps=8, batch_size=4))
    env = Forgetful(source)
    with pytest.warns(UserWarning, match=told):
        states = states_along(env, episodes=1, states_per_episode=2, steps=3, seed=0)
    with pytest.warns(UserWarning, match=told):
        ground_truth(env, states, gamma=0.5, continuations=2, seed=0)


def test_workers_whose_reset_does_not_seed_them_are_told_of():
    for source in ("forgotten", "seeded"):
        envs = AsyncVectorEnv([lambda source=source: Forgetful(source)] * 2)
        try:
            for _ in range(2):
                with pytest.warns() if source == "forgotten" else contextlib.nullcontext() as told:
                    collect(envs, num_steps=5, gamma=0.9, seed=0, policy=stay)
                assert told is None or "draws from its np_random, which its reset does not seed" in str(told[0].message)
        finally:
            envs.close()


@pytest.mark.parametrize("source", ["anew", "in place", "seeded", "none"])
def test_generators_that_a_reset_seeds_in_one_way_or_another_are_not_told_of(source):
    env = Forgetful(source)
    one, other = (collect(env, num_steps=5, gamma=0.9, seed=seed) for seed in (0, 1))
    again = collect(Forgetful(source), num_steps=5, gamma=0.9, seed=1)
    assert torch.equal(other.states, again.states)
    assert torch.equal(one.states, other.states) == (source == "none")


@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_vector_environment_in_workers_is_collected_from_again_as_the_first_time(shared_memory):
    env = AsyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2, shared_memory=shared_memory)
    try:
        first, again = (collect_episodes(env, num_episodes=4, seed=0) for _ in range(2))
    finally:
        env.close()
    single = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
    for episodes in (first, again):
        for one, other in zip(episodes, collect_episodes(single, num_episodes=4, seed=0), strict=True):
            np.testing.assert_array_equal(one.observations, other.observations)
            np.testing.assert_array_equal(one.rewards, 1.0)
