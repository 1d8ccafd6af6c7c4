"""Environments and processes of one's own that return other things than they should, or in another order."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from icrl_agents.collection import collect, collect_episodes
from icrl_envs import ProcessEnv

LINE = spaces.Box(-np.inf, np.inf, (1,), np.float64)


class Steps:
    """A process whose steps return what it is told."""

    gamma, observation_space = 0.9, LINE

    def __init__(self, outcome):
        self.outcome = outcome

    def sample_start(self, rng):
        return 3

    def sample_step(self, state, rng):
        return self.outcome

    def observe(self, state):
        return np.array([float(state)])


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ((2, 1.0), r"process: expected sample_step to return \(next_state, reward, terminated\), got 2 things"),
        ((2, 1.0, False, {}), "got 4 things"),
        (2, "got int"),
        ((2, False, 1.0), "got False and 1.0, which seem to be in each other's place"),
        ((2, np.False_, 1), "in each other's place"),
    ],
)
def test_a_process_that_returns_other_things_or_in_another_order_is_refused(outcome, message):
    env = ProcessEnv(Steps(outcome))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(np.int64(0))


def test_a_reward_that_is_true_or_false_is_one_where_the_flags_are_flags_too():
    for terminated in (False, np.False_, np.array([False])):
        env = ProcessEnv(Steps((2, True, terminated)))
        assert collect(env, num_steps=2, gamma=0.9, seed=0).rewards.tolist() == [1.0, 1.0]


class Own(gym.Env):
    """Counts three steps from a random start, where time runs out; its steps end in what it is told."""

    observation_space, action_space = LINE, spaces.Discrete(2)

    def __init__(self, ending):
        self.ending = ending

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start, self.steps = self.np_random.random(1), 0
        return self.start, {}

    def step(self, action):
        self.steps += 1
        return self.start + self.steps, *self.ending(self.steps == 3)


@pytest.mark.parametrize("made", [lambda make: make(), lambda make: SyncVectorEnv([make] * 2)])
def test_a_time_limit_that_is_told_as_a_termination_is_refused(made):
    def older(done):
        return 1.0, done, False, {"TimeLimit.truncated": True} if done else {}

    def converted(done):
        return 1.0, False, done, {"TimeLimit.truncated": True} if done else {}

    def goal(done):
        return 1.0, done, False, {"TimeLimit.truncated": False}

    with pytest.raises(ValueError, match=r"expected truncated to be True where info\['TimeLimit.truncated'\] is"):
        collect_episodes(made(lambda: Own(older)), num_steps=6, seed=0)
    for ending, terminated in ((converted, False), (goal, True)):
        first, *_ = collect_episodes(made(lambda ending=ending: Own(ending)), num_steps=6, seed=0)
        assert (len(first), first.terminated) == (3, terminated)


def test_an_environment_whose_reward_and_flag_are_in_each_others_place_is_refused():
    with pytest.raises(ValueError, match="env: expected step to return the reward before whether it terminated"):
        collect(Own(lambda done: (done, 1.0, False, {})), num_steps=3, gamma=0.9, seed=0)


class Older(gym.vector.VectorEnv):
    """Copies of the interface before Gymnasium's, at their reset or at their steps."""

    num_envs, single_observation_space, single_action_space = 2, LINE, spaces.Discrete(2)
    observation_space, action_space = spaces.Box(-np.inf, np.inf, (2, 1), np.float64), spaces.MultiDiscrete([2, 2])
    metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, *, at_reset):
        self.at_reset = at_reset

    def reset(self, *, seed=None, options=None):
        return np.zeros((2, 1)) if self.at_reset else (np.zeros((2, 1)), {})

    def step(self, actions):
        return np.zeros((2, 1)), np.zeros(2), np.ones(2, bool), {}


def test_vector_environments_of_the_interface_before_gymnasium_are_refused_by_name():
    with pytest.raises(ValueError, match=r"env: expected reset to return \(observation, info\), .* got ndarray"):
        collect(Older(at_reset=True), num_steps=3, gamma=0.9, seed=0)
    with pytest.raises(ValueError, match=r"env: expected step to return \(observation, reward, .* got 4 things"):
        collect(Older(at_reset=False), num_steps=3, gamma=0.9, seed=0)
