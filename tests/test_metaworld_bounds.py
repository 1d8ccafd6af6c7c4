"""What the MetaWorld environments refuse, and when an episode ends."""

import gymnasium as gym
import numpy as np
import pytest

from icrl_envs.metaworld.env import MetaWorldEnv
from icrl_envs.metaworld.limits import EpisodeLimit
from icrl_envs.metaworld.mrp import MetaWorldMRPEnv


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (np.array([0.0, np.nan, 0.0, 0.0]), ValueError),
        (np.array([0.0, 0.0, 0.0, np.inf]), ValueError),
        (np.array([0.0, 1.01, 0.0, 0.0]), ValueError),
        (np.array([-128, 0, 0, 0], np.int8), ValueError),  # whose absolute value is itself
        (np.array([0, 0, 0, -(2**63)]), ValueError),
        (np.ma.masked_array(np.zeros(4), [True, False, False, False]), TypeError),
        (np.zeros(3), ValueError),
        (np.zeros((1, 4)), ValueError),
        (0, ValueError),
        (None, TypeError),
        (["up", "down", "left", "right"], TypeError),
    ],
)
def test_a_wrong_action_never_reaches_the_simulator(action, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where MuJoCo would write its log
    env, twin = MetaWorldEnv("reach-v3"), MetaWorldEnv("reach-v3")
    env.reset(seed=0)
    twin.reset(seed=0)
    with pytest.raises(error, match="action must"):
        env.step(action)
    assert env.step([0.5, 0, 0, 1])[0].tobytes() == twin.step(np.array([0.5, 0.0, 0.0, 1.0]))[0].tobytes()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int64, np.float16, np.longdouble, ">f8"])
def test_an_action_of_any_type_moves_as_the_same_numbers_in_float64(dtype):
    env, twin = MetaWorldEnv("push-v3"), MetaWorldEnv("push-v3")
    for each in (env, twin):
        each.reset(seed=0, options={"goal_index": 0})
    for _ in range(5):
        moved, expected = (each.step(np.array([1, 0, 0, 1], t))[0] for each, t in ((env, dtype), (twin, float)))
        np.testing.assert_array_equal(moved, expected)


def test_a_reward_process_has_one_action():
    env = MetaWorldMRPEnv("reach-v3")
    env.reset(seed=0)
    for action in (1, np.zeros(4)):
        with pytest.raises(ValueError, match="action must be 0, which lets the policy act"):
            env.step(action)
    assert env.step(np.int64(0))[0].shape == (10,)


@pytest.mark.parametrize(("cls", "action"), [(MetaWorldEnv, np.zeros(4)), (MetaWorldMRPEnv, 0)])
def test_after_the_last_step_comes_a_reset(cls, action):
    env = cls("reach-v3")
    with pytest.raises(gym.error.ResetNeeded, match=r"call reset\(\) first"):
        env.step(action)
    env.reset(seed=0)
    ends = [env.step(action)[2:4] for _ in range(500)]
    assert ends == [(False, False)] * 499 + [(False, True)]
    with pytest.raises(ValueError, match=r"truncated after 500 steps: call reset\(\)"):
        env.step(action)
    env.reset()
    assert env.step(action)[2:4] == (False, False)


def test_shorter_episodes():
    env = MetaWorldMRPEnv("reach-v3", max_episode_steps=3)
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
    with pytest.raises(ValueError, match="truncated after 3 steps"):
        env.step(0)


def test_longer_episodes_are_refused():
    with pytest.raises(ValueError, match=r"max_episode_steps must be an integer in \[1, 500\]; got 1000"):
        MetaWorldEnv(max_episode_steps=1000)
    spec = gym.envs.registration.EnvSpec(
        "icrl-test/Limited-v0",
        "icrl_envs.metaworld.env:MetaWorldEnv",
        additional_wrappers=(
            gym.envs.registration.WrapperSpec("EpisodeLimit", "icrl_envs.metaworld.limits:EpisodeLimit", {}),
        ),
    )
    with pytest.raises(ValueError, match=r"max_episode_steps must be at most 500, .*; got 1000"):
        gym.make(spec, max_episode_steps=1000)
    env = gym.make(spec, max_episode_steps=5)
    assert isinstance(env, EpisodeLimit)
    assert isinstance(gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json())), EpisodeLimit)
    env.reset(seed=0)
    assert [env.step(env.action_space.sample())[3] for _ in range(5)] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"domain": "pick-place"}, ValueError, r"Did you mean 'pick-place-v3'\?"),
        ({"observation": "all"}, ValueError, "observation must be one of 'core', 'full', 'state'; got 'all'"),
        ({"goal_visible": "no"}, TypeError, "goal_visible must be True or False; got 'no'"),
        ({"reward_version": "v3"}, ValueError, "reward_version must be 'v2' or 'v1'; got 'v3'.*silently computes v1"),
        ({"reward_version": "v4"}, ValueError, "reward_version must be one of 'v2', 'v1'"),
        ({"split": "validation"}, ValueError, "split must be one of 'train', 'test', 'all'"),
        ({"task_seed": -1}, ValueError, r"task_seed must be an integer in \[0, 4294967294\]"),
        ({"task_seed": 2**32 - 1}, ValueError, "task_seed must be an integer"),
        ({"max_episode_steps": 0}, ValueError, r"max_episode_steps must be an integer in \[1, 500\]; got 0"),
        ({"render_mode": "human"}, ValueError, "render_mode must be one of 'rgb_array'"),
        ({"camera": "corner5"}, ValueError, "camera must be one of 'corner'"),
        ({"width": 0}, ValueError, "width must be an integer ≥ 1"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        MetaWorldEnv(**arguments)
