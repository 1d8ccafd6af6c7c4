"""Ground truth where observations are no vectors."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from icrl_agents.collection import collect_episodes
from icrl_agents.ground_truth import ground_truth, observed, states_along

SHOWN = [
    (spaces.Discrete(9, start=2), lambda t: np.int64(2 + t)),
    (spaces.MultiDiscrete([3, 9]), lambda t: np.array([t % 3, t])),
    (spaces.MultiBinary(3), lambda t: np.array([t & 1, t >> 1 & 1, t >> 2], np.int8)),
    (spaces.Box(-9, 9, (2, 2), np.float32), lambda t: np.array([[t, -t], [t / 3, 0.1]], np.float32)),
    (
        spaces.Dict(place=spaces.Box(0, 9, (1,)), room=spaces.Discrete(9)),
        lambda t: {"room": t, "place": np.ones(1) * t},
    ),
]


@pytest.mark.parametrize(("space", "show"), SHOWN)
def test_states_are_shown_as_they_are_collected(space, show):
    class Clock(gym.Env):
        observation_space, action_space = space, spaces.Discrete(1)

        def reset(self, *, seed=None, options=None):
            return self.set_state(0), {}

        def step(self, action):
            return self.set_state(self.time + 1), 1.0, False, False, {}

        def get_state(self):
            return self.time

        def set_state(self, snapshot, *, seed=None):
            self.time = snapshot
            return show(self.time)

    [episode] = collect_episodes(Clock(), num_steps=7, seed=0)
    states = states_along(Clock(), episodes=1, states_per_episode=7, steps=7, seed=0)
    truth = ground_truth(Clock(), states[:2], gamma=0.5, continuations=2, seed=0, missing=0.2)
    np.testing.assert_array_equal(observed(Clock(), states), episode.observations[:-1])
    np.testing.assert_array_equal(truth.observations, episode.observations[:2])
    assert truth.values.tolist() == [1.75, 1.75]


def test_pixels_are_refused_as_by_collect():
    class Picture(gym.Env):
        observation_space, action_space = spaces.Box(0, 255, (84, 84), np.uint8), spaces.Discrete(1)

        def get_state(self):
            return 0

        def set_state(self, snapshot, *, seed=None):
            return np.zeros((84, 84), np.uint8)

    for run in (
        lambda env: states_along(env, episodes=1, states_per_episode=1, steps=1, seed=0),
        lambda env: ground_truth(env, [0], gamma=0.5, continuations=2, seed=0),
    ):
        with pytest.raises(ValueError, match="env: pixel observations"):
            run(Picture())
