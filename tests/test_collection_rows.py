"""Rows that observations of any space are flattened to: of the numbers that came, and never of others."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from icrl_agents.collection import collect, collect_episodes
from icrl_agents.control import ppo
from icrl_agents.evaluators import LSTD


class Emits(gym.Env):
    """Gives one observation again and again."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, observation):
        self.observation_space, self.observation = space, observation

    def reset(self, *, seed=None, options=None):
        return self.observation, {}

    def step(self, action):
        return self.observation, 1.0, False, False, {}


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (spaces.Discrete(5, start=1), 0),
        (spaces.Discrete(5), 5),
        (spaces.Discrete(5), -1),
        (spaces.Discrete(5), 1.5),
        (spaces.MultiDiscrete([2, 3]), np.array([2, 0])),
        (spaces.MultiBinary(2), np.array([0.7, 1.0])),
        (spaces.Dict({"a": spaces.Box(0, 1, (1,)), "b": spaces.Discrete(3)}), {"a": np.zeros(1), "b": 3}),
        (spaces.Tuple((spaces.MultiBinary(2), spaces.Discrete(3))), (np.array([2, 0]), 1)),
        (spaces.Dict({"a": spaces.Box(0, 1, (1,)), "b": spaces.Box(0, 1, (2,))}), {"a": np.ones(2), "b": np.ones(1)}),
    ],
)
def test_an_observation_outside_of_a_space_of_whole_numbers_is_not_flattened_to_another(space, observation):
    with pytest.raises(ValueError, match="env: expected observations "):
        collect_episodes(Emits(space, observation), num_steps=1, seed=0)


def test_parts_of_a_dictionary_are_kept_as_boxes_are_and_not_rounded_to_their_space():
    space = spaces.Dict({"a": spaces.Box(0, 9, (1,), np.int64), "b": spaces.Box(0, 9, (1,)), "c": spaces.Discrete(2)})
    observation = {"a": np.array([0.5]), "b": np.array([0.1]), "c": np.int64(1)}
    observations = collect_episodes(Emits(space, observation), num_steps=1, seed=0)[0].observations
    np.testing.assert_array_equal(observations[0], [0.5, 0.1, 0.0, 1.0])
    both = spaces.Tuple((spaces.Box(0, 1, (1,)), spaces.MultiBinary(1)))
    kept = collect_episodes(Emits(both, (np.zeros(1, np.float32), np.ones(1, np.int8))), num_steps=1, seed=0)[0]
    assert kept.observations.dtype == np.float64  # float32 only where all of it is


class Careless(SyncVectorEnv):
    """Restarts all copies, whichever it is asked to."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


class Flagged(SyncVectorEnv):
    """Says NaN instead of whether an episode has ended."""

    def step(self, actions):
        observations, rewards, _, truncated, info = super().step(actions)
        return observations, rewards, np.full(self.num_envs, np.nan), truncated, info


def test_a_copy_that_restarts_unasked_in_the_middle_of_its_episode_is_noticed():
    makes = [partial(gym.make, "CartPole-v1", max_episode_steps=n) for n in (3, 5)]
    seen = collect_episodes(SyncVectorEnv(makes, autoreset_mode=AutoresetMode.DISABLED), num_steps=9, seed=0)
    assert len(seen) == 5
    careless = Careless(makes, autoreset_mode=AutoresetMode.DISABLED)
    with pytest.raises(ValueError, match=r"env: expected reset.* to leave copy 1 as it is"):
        collect_episodes(careless, num_steps=9, seed=0)


def test_flags_of_copies_that_are_neither_true_nor_false_are_refused():
    env = Flagged([lambda: gym.make("CartPole-v1")] * 2)
    with pytest.raises(ValueError, match="env: expected terminated to be 2 flags that are True or False, got"):
        collect_episodes(env, num_steps=3, seed=0)


class Masks(gym.Env):
    """Gives a masked observation, reward or flag, whichever ``part`` says, after its first step."""

    observation_space, action_space = spaces.Box(-1, 1, (2,), np.float64), spaces.Discrete(2)

    def __init__(self, part):
        self.part = part

    def reset(self, *, seed=None, options=None):
        return np.zeros(2), {}

    def step(self, action):
        given = {"observations": np.ones(2), "rewards": np.array(1.0), "terminated": np.array(True)}
        given[self.part] = np.ma.masked_array(given[self.part], mask=True)
        return given["observations"], given["rewards"], given["terminated"], False, {}


@pytest.mark.parametrize("part", ["observations", "rewards", "terminated"])
def test_what_is_masked_is_refused_and_not_taken_as_if_it_were_not(part):
    with pytest.raises(TypeError, match=f"env: {part}: the mask of a masked array would be lost"):
        collect_episodes(Masks(part), num_episodes=1, seed=0)


class SameStep(gym.vector.VectorEnv):
    """Two copies that count from 0 to 3 and 4 and restart in the same step, whatever ``mode`` says."""

    num_envs = 2
    single_observation_space, single_action_space = spaces.Box(0, 9, (1,)), spaces.Discrete(2)
    observation_space, action_space = spaces.Box(0, 9, (2, 1)), spaces.MultiDiscrete([2, 2])

    def __init__(self, mode, name):
        self.metadata, self.name = {"autoreset_mode": mode}, name

    def reset(self, *, seed=None, options=None):
        self.steps = np.zeros((2, 1), np.float32)
        return self.steps.copy(), {}

    def step(self, actions):
        self.steps += 1
        ended, final = self.steps[:, 0] >= [3, 4], self.steps.copy()
        self.steps[ended] = 0
        info: dict[str, np.ndarray] = {self.name: final} if ended.any() else {}
        return self.steps.copy(), np.ones(2), ended, np.zeros(2, bool), info


FINAL = ["final_obs", "final_observation", "terminal_observation"]


@pytest.mark.parametrize("name", FINAL)
def test_an_environment_whose_metadata_say_another_mode_than_it_has_is_refused(name):
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED):
        with pytest.raises(ValueError, match=f"env: expected mode {mode.name}, .* are in mode SAME_STEP"):
            collect_episodes(SameStep(mode, name), num_steps=8, seed=0)
    first, *_ = collect_episodes(SameStep(AutoresetMode.SAME_STEP, name), num_steps=8, seed=0)
    assert (first.observations.ravel().tolist(), first.terminated) == ([0.0, 1.0, 2.0, 3.0], True)


class Restarts(gym.Wrapper):
    """Restarts in the same step, or not, and gives the final observation in info."""

    def __init__(self, env, name, *, really):
        super().__init__(env)
        self.name, self.really = name, really

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not (terminated or truncated):
            return observation, reward, terminated, truncated, {self.name: None, **info}
        info = {self.name: np.array(observation), **info}
        return self.env.reset()[0] if self.really else observation, reward, terminated, truncated, info


@pytest.mark.parametrize("name", FINAL)
def test_a_single_environment_that_restarts_itself_in_the_same_step_is_refused(name):
    env = gym.make("Pendulum-v1", max_episode_steps=10)
    told = rf"env: expected step to return the final observation of an episode, got another one than info\['{name}'\]"
    with pytest.raises(ValueError, match=told):
        collect(Restarts(env, name, really=True), num_episodes=2, gamma=0.9, seed=0)
    copies = SyncVectorEnv([lambda: Restarts(env, name, really=True)], autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(
        ValueError, match="env: expected step to return the final observation of an episode, got another"
    ):
        collect(copies, num_episodes=2, gamma=0.9, seed=0)
    with pytest.raises(ValueError, match=told):
        ppo(Restarts(env, name, really=True), LSTD(0.1), total_steps=64, seed=0)


@pytest.mark.parametrize("name", FINAL)
@pytest.mark.parametrize("around", [gym.Wrapper, partial(gym.wrappers.TransformObservation, func=np.negative)])
def test_a_final_observation_in_info_is_no_restart_where_it_is_the_one_returned_or_below_a_wrapper(name, around):
    def make():
        env = Restarts(gym.make("Pendulum-v1", max_episode_steps=10), name, really=False)
        return around(env) if around is gym.Wrapper else around(env, observation_space=env.observation_space)

    single = collect_episodes(make(), num_episodes=2, seed=0)
    assert [len(episode) for episode in single] == [10, 10]
    if around is gym.Wrapper or name == "terminal_observation":
        for mode in AutoresetMode:
            copies = collect_episodes(SyncVectorEnv([make], autoreset_mode=mode), num_episodes=2, seed=0)
            np.testing.assert_array_equal(copies[0].observations, single[0].observations)


@pytest.mark.parametrize(("wrapper", "name"), [("NormalizeObservation", "obs_rms"), ("NormalizeReward", "return_rms")])
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_copies_that_are_standardised_by_scales_of_their_own_are_told_of(wrapper, name, kind):
    env = kind([lambda: getattr(gym.wrappers, wrapper)(gym.make("Pendulum-v1"))] * 2)
    try:
        env.reset(seed=0)
        for _ in range(9):
            env.step(env.action_space.sample())
        env.set_attr("update_running_mean", False)
        for run in (partial(collect, gamma=0.9), collect_episodes):
            with pytest.warns(UserWarning, match=f"env: its copies are each standardised by {name} of their") as told:
                run(env, num_steps=3, seed=0)
            assert [each.filename for each in told] == [__file__]
        collect(env, num_steps=3, seed=0, gamma=0.9, stack=True)  # one context each
        env.set_attr(name, env.get_attr(name)[0])
        collect(env, num_steps=3, seed=0, gamma=0.9)
    finally:
        env.close()


class Older(gym.Env):
    """An environment of the interface before Gymnasium's, at its reset or at its steps."""

    observation_space, action_space = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)

    def __init__(self, *, at_reset):
        self.at_reset = at_reset

    def reset(self, *, seed=None, options=None):
        observation = np.zeros(3, np.float32)
        return observation if self.at_reset else (observation, {})

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, True, {}


def test_environments_of_the_interface_before_gymnasium_are_refused_by_name():
    with pytest.raises(ValueError, match=r"env: expected reset to return \(observation, info\), .* got ndarray"):
        collect(Older(at_reset=True), num_steps=3, gamma=0.9, seed=0)
    with pytest.raises(ValueError, match=r"env: expected step to return \(observation, reward, .* got 4 things"):
        collect(Older(at_reset=False), num_steps=3, gamma=0.9, seed=0)


def test_an_observation_of_another_shape_than_its_box_is_refused_though_it_has_as_many_numbers():
    space = spaces.Box(-9.0, 9.0, (2, 3))
    numbers = np.arange(6, dtype=np.float32)
    for shape in ((2, 3), (6,), (1, 2, 3)):
        episodes = collect_episodes(Emits(space, numbers.reshape(shape)), num_steps=2, seed=0)
        np.testing.assert_array_equal(episodes[0].observations, np.tile(numbers, (3, 1)))
    with pytest.raises(ValueError, match=r"env: expected observations of shape \(2, 3\) as in .*, got \(3, 2\)"):
        collect_episodes(Emits(space, numbers.reshape(3, 2)), num_steps=2, seed=0)
