"""Randomness of an environment's spaces, which no reset seeds, is told of."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from icrl_agents.collection import collect


@pytest.mark.parametrize("name", ["action_space", "observation_space"])
def test_draws_from_a_space_that_has_no_seed_are_told_of(name):
    class Sampled(gym.Env):
        observation_space = spaces.Box(-1.0, 1.0, (1,))

        def __init__(self):
            self.action_space = spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action):
            seen = self.observation_space.sample() if name == "observation_space" else np.full(1, action, np.float32)
            return seen, 0.0, False, False, {}

    env = Sampled()
    policy = None if name == "observation_space" else lambda x, rng: env.action_space.sample()
    getattr(env, name).seed(3)
    collect(env, num_steps=5, gamma=0.9, seed=0, policy=policy)  # seeded by its user
    setattr(env, name, spaces.Box(-1.0, 1.0, (1,)) if name == "observation_space" else spaces.Discrete(2))
    with pytest.warns(
        UserWarning, match=f"seed: 0 does not decide the result, since the environment draws from its {name}"
    ):
        collect(env, num_steps=5, gamma=0.9, seed=0, policy=policy)
