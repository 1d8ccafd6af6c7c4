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


class Loop(gym.Env):
    """One state, whose step gives what it is told to."""

    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(1)

    def __init__(self, *outcome):
        self.outcome = outcome

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), *self.outcome

    def get_state(self):
        return 0

    def set_state(self, snapshot, *, seed=None):
        return self.reset(seed=seed)[0]


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ((1.0, True, False, {"TimeLimit.truncated": True}), "the time limit would count as a termination"),
        ((1.0, "False", False, {}), "env: expected terminated to be True or False, got 'False'"),
        ((1.0, np.nan, False, {}), "env: expected terminated to be True or False, got nan"),
        ((False, 1.0, False, {}), "which seem to be in each other's place"),
        (("1", False, False, {}), "env: expected a reward that is one real number, got '1'"),
        ((2**60 + 1, False, False, {}), "rewards: float64 would round the integer"),
        ((1.0, False, {}), "env: expected step to return"),
    ],
)
def test_steps_that_collect_refuses_are_refused_in_ground_truth_too(outcome, message):
    env = Loop(*outcome)
    for run in (
        lambda: ground_truth(env, [0], gamma=0.9, continuations=2, seed=0),
        lambda: states_along(env, episodes=1, states_per_episode=1, steps=2, seed=0),
    ):
        with pytest.raises(ValueError, match=message):
            run()


def test_a_reward_in_an_array_of_one_is_one_reward():
    env = Loop(np.array([1.0]), False, False, {})
    found = ground_truth(env, [0], gamma=0.5, continuations=2, seed=0, missing=1e-12)
    np.testing.assert_allclose(found.values, [2.0])


def test_a_passive_wrapper_is_looked_below_only_while_it_steps_as_one():
    class Shaped(gym.wrappers.TimeLimit):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            return observation, 10 * reward, *rest

    class Named(gym.wrappers.TimeLimit):
        """The same under another name."""

    chain = gym.make("icrl_envs:icrl/BoyanChain-v0", num_states=4)
    assert len(states_along(Named(chain, 50), episodes=1, states_per_episode=2, steps=5, seed=0)) == 2
    with pytest.raises(ValueError, match="env: expected none but passive wrappers, got Shaped"):
        states_along(Shaped(chain, 50), episodes=1, states_per_episode=2, steps=5, seed=0)
