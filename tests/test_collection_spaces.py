"""What environments use: spaces that no reset seeds, whose draws are told of, and tensors with gradients."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from icrl_agents.collection import collect, collect_episodes


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


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_tensors_with_a_gradient_from_a_differentiable_simulator_are_their_numbers(kind):
    class Simulator(gym.Env):
        observation_space, action_space = spaces.Box(-9, 9, (1,)), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.state = torch.zeros(1, dtype=kind, requires_grad=True)
            return self.state, {}

        def step(self, action):
            self.state = self.state + 0.5
            return self.state, 2 * self.state, False, False, {}

    episode = collect_episodes(Simulator(), num_steps=3, seed=0)[0]
    assert episode.observations.tolist() == [[0.0], [0.5], [1.0], [1.5]]
    assert episode.rewards.tolist() == [1.0, 2.0, 3.0]
