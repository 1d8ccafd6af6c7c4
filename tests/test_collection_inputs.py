from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

import icrl_agents.collection.recorder
from icrl_agents.collection import collect, collect_episodes
from icrl_envs import FixedPolicy


class Fixed(gym.Env):
    """Observes and pays whatever it was given; never ends."""

    action_space: spaces.Space = spaces.Discrete(1)

    def __init__(self, space: spaces.Space, observations: Sequence[Any], rewards: Sequence[Any] = (1.0,)) -> None:
        self.observation_space, self.observations, self.rewards, self.t = space, observations, rewards, None

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.observations[0], {}

    def step(self, action):
        self.t += 1
        now = self.observations[self.t % len(self.observations)]
        return now, self.rewards[self.t % len(self.rewards)], False, False, {}


def test_an_episode_that_never_ends_is_an_error(monkeypatch):
    monkeypatch.setattr(icrl_agents.collection.recorder, "LONGEST_EPISODE", 1_000)
    endless = Fixed(spaces.Box(-1, 1, (1,)), [np.zeros(1, np.float32)])
    with pytest.raises(
        ValueError, match=r"num_episodes: an episode has not ended after 1,000 steps; ask for num_steps"
    ):
        collect_episodes(endless, num_episodes=1, seed=0)
    assert [len(e) for e in collect_episodes(endless, num_episodes=2, seed=0, max_episode_steps=4)] == [4, 4]
    assert [len(e) for e in collect_episodes(endless, num_steps=7, seed=0, max_episode_steps=4)] == [4, 3]
    assert len(collect_episodes(endless, num_steps=2_000, seed=0)[0]) == 2_000
    assert len(collect_episodes(endless, num_episodes=1, seed=0, max_episode_steps=2_000)[0]) == 2_000


OBSERVATIONS = [
    (spaces.Box(-1, 1, (3,), np.float32), np.array([0.1, 0.2, 0.3], np.float32), [0.1, 0.2, 0.3], np.float32),
    (spaces.Box(-1, 1, (3,), np.float64), np.array([0.1, 0.2, 0.3]), [0.1, 0.2, 0.3], np.float64),
    (spaces.Box(-1, 1, (2, 2), np.float64), np.array([[1.0, 2.0], [3.0, 4.0]]), [1, 2, 3, 4], np.float64),
    (spaces.Box(-1, 1, (), np.float64), np.array(0.5), [0.5], np.float64),
    (spaces.Box(0, 255, (4,), np.uint8), np.array([1, 2, 3, 255], np.uint8), [1, 2, 3, 255], np.float64),
    (spaces.Box(-9, 9, (2,), np.int64), np.array([-3, 4]), [-3, 4], np.float64),
    (spaces.Box(-9, 9, (2,), np.float16), np.array([0.1, 4], np.float16), [float(np.float16(0.1)), 4], np.float64),
    (spaces.Discrete(4), np.int64(2), [0, 0, 1, 0], np.float64),
    (spaces.Discrete(3, start=5), 5, [1, 0, 0], np.float64),
    (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1], np.float64),
    (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [0, 1, 0, 0, 1], np.float64),
    (
        spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1, 1, (2,), np.float32)}),
        {"a": 1, "b": np.array([0.5, 0.25], np.float32)},
        [0, 1, 0.5, 0.25],
        np.float64,
    ),
]


@pytest.mark.parametrize(("space", "observation", "row", "dtype"), OBSERVATIONS, ids=[str(o[0]) for o in OBSERVATIONS])
@pytest.mark.parametrize("copies", [None, 2])
def test_observations_of_any_kind_become_rows(space, observation, row, dtype, copies):
    env = Fixed(space, [observation])
    if copies:
        env = SyncVectorEnv([lambda: Fixed(space, [observation])] * copies)
    episodes = collect_episodes(env, num_steps=2, seed=0)
    assert episodes[-1].observations.dtype == dtype
    np.testing.assert_array_equal(episodes[-1].observations, [np.asarray(row, dtype)] * 3)
    context = collect(env, num_steps=2, gamma=0.9, seed=0)
    assert context.dtype == torch.float64
    assert context.states.shape == (2 * (copies or 1), len(row))


ONE = spaces.Box(-1, 1, (1,), np.float64)


@pytest.mark.parametrize(
    ("env", "error", "message"),
    [
        (
            "CartPole-v1",
            TypeError,
            r"env: expected a gymnasium.Env .* got str; did you mean gymnasium.make\('CartPole-v1",
        ),
        (None, TypeError, r"env: expected a gymnasium.Env or a gymnasium.vector.VectorEnv, got NoneType"),
        (Fixed(spaces.Box(0, 255, (8, 8, 3), np.uint8), []), ValueError, r"env: pixel observations \(8, 8, 3\) are no"),
        (Fixed(spaces.Dict(a=ONE, b=spaces.Text(3)), []), TypeError, r"env: expected observations .* got text, Text"),
        (Fixed(spaces.Sequence(ONE), []), TypeError, r"env: expected observations that flatten .* got Sequence"),
        (Fixed(ONE, [np.zeros(2)]), ValueError, r"env: expected observations of 1 numbers as in Box.*, got 2"),
        (
            Fixed(ONE, [[0.0], [0.0], [np.nan]]),
            ValueError,
            r"episode 0, step 2: expected a finite observation, got \[nan",
        ),
        (
            Fixed(ONE, [[0.0]], [0.0, 1.0, np.inf]),
            ValueError,
            r"episode 0, step 1: expected a finite reward, got \[inf",
        ),
    ],
)
def test_a_bad_environment_is_named(env, error, message):
    with pytest.raises(error, match=message):
        collect(env, num_steps=5, gamma=0.9, seed=0)


def test_a_copy_with_a_bad_number_is_named_in_a_stack():
    env = SyncVectorEnv([lambda: Fixed(ONE, [[0.0]]), lambda: Fixed(ONE, [[0.0]], [0.0, np.nan])])
    with pytest.raises(ValueError, match=r"copy 1, episode 0, step 0: expected a finite reward, got \[nan\]"):
        collect(env, num_steps=5, gamma=0.9, seed=0, stack=True)


def test_a_vector_environment_must_say_how_it_restarts():
    class Silent(VectorEnv):
        num_envs, metadata = 2, {}
        single_observation_space, single_action_space = ONE, spaces.Discrete(1)
        observation_space, action_space = batch_space(ONE, 2), batch_space(spaces.Discrete(1), 2)
        ending = np.array([True, False])

        def reset(self, *, seed=None, options=None):
            return np.zeros((2, 1)), {}

        def step(self, actions):
            return np.ones((2, 1)), np.ones(2), self.ending, ~self.ending & False, {}

    with pytest.raises(ValueError, match=r"env: expected metadata\['autoreset_mode'\] to say when .*, got none"):
        collect(Silent(), num_steps=5, gamma=0.9, seed=0)
    env = Silent()
    env.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    with pytest.raises(ValueError, match=r"env: expected info\['final_obs'\] with the final observations"):
        collect(env, num_steps=5, gamma=0.9, seed=0)


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({}, ValueError, r"num_steps, num_episodes: expected exactly one of them, got num_steps=None and"),
        ({"num_steps": 3, "num_episodes": 3}, ValueError, r"expected exactly one of them, got num_steps=3 and"),
        ({"num_steps": 0}, ValueError, r"num_steps must be an integer ≥ 1; got 0"),
        ({"num_episodes": -1}, ValueError, r"num_episodes must be an integer ≥ 1; got -1"),
        ({"num_steps": 2.0}, TypeError, r"num_steps must be an integer ≥ 1; got 2.0 of type float"),
        ({"num_episodes": True}, TypeError, r"num_episodes must be an integer ≥ 1; got True"),
        ({"num_steps": 3, "max_episode_steps": 0}, ValueError, r"max_episode_steps must be an integer ≥ 1; got 0"),
        ({"num_steps": 3, "seed": -1}, ValueError, r"seed must be an integer ≥ 0; got -1"),
        ({"num_steps": 3, "seed": "7"}, TypeError, r"seed must be an integer ≥ 0; got '7'"),
        ({"num_steps": 3, "gamma": 1.1}, ValueError, r"gamma must be a finite number in \[0, 1\]; got 1.1"),
        ({"num_steps": 3, "gamma": "high"}, TypeError, r"gamma must be a finite number in \[0, 1\]; got 'high'"),
        ({"num_steps": 3, "stack": "no"}, TypeError, "stack must be True or False; got 'no'"),
        ({"num_steps": 3, "policy": Fixed}, TypeError, "policy must be an object, such as Fixed"),
        ({"num_steps": 3, "policy": 1}, TypeError, r"policy must be a callable \(observation, rng\) -> action"),
        (
            {"num_steps": 3, "policy": lambda observation: 0},
            TypeError,
            r"policy must be a callable \(observation, rng\)",
        ),
    ],
)
def test_a_bad_argument_is_named_before_anything_runs(keywords, error, message):
    env = Fixed(ONE, [[0.0]])
    with pytest.raises(error, match=message):
        collect(env, **({"gamma": 0.9, "seed": 0} | keywords))
    assert env.t is None, "reset"


@pytest.mark.parametrize(
    ("env", "action", "message"),
    [
        ("CartPole-v1", 2, r"the policy's action must be in Discrete\(2\); got 2"),
        ("CartPole-v1", [1], r"the policy's action must be in Discrete\(2\); got \[1\]"),
        ("CartPole-v1", 1.0, r"the policy's action must be in Discrete\(2\); got 1.0 of type float"),
        ("Pendulum-v1", 0.5, r"the policy's action must be finite and of shape \(1,\); got 0.5"),
        ("Pendulum-v1", [np.nan], r"the policy's action must be finite and of shape \(1,\); got \[nan\]"),
    ],
)
def test_an_action_that_does_not_fit_is_refused(env, action, message):
    for make in (gym.make(env), SyncVectorEnv([lambda: gym.make(env)] * 2)):
        with pytest.raises(ValueError, match=message):
            collect(make, num_steps=5, gamma=0.9, seed=0, policy=lambda observation, rng: action)


def test_a_model_must_predict_one_action_per_copy_and_have_no_memory():
    class Model:
        result: Any = (np.array([0]), None)

        def predict(self, observation, deterministic):
            return self.result

    model, one = Model(), lambda: Fixed(ONE, [[0.0]])
    with pytest.raises(ValueError, match=r"policy: expected predict to return 2 actions for 2 observations, got array"):
        collect(SyncVectorEnv([one] * 2), num_steps=5, gamma=0.9, seed=0, policy=model)
    model.result = 0, np.zeros(2)
    with pytest.raises(ValueError, match=r"policy: expected one without memory, got a recurrent model"):
        collect(one(), num_steps=5, gamma=0.9, seed=0, policy=model)
    with pytest.raises(ValueError, match=r"policy: expected one without memory, got a recurrent model"):
        collect(FixedPolicy(one(), model), num_steps=5, gamma=0.9, seed=0)
    model.result = 0
    with pytest.raises(TypeError, match=r"policy: expected predict to return \(action, state\), got int"):
        collect(one(), num_steps=5, gamma=0.9, seed=0, policy=model)


def test_a_model_of_single_observations_is_told_how_to_be_passed_for_copies():
    class Single:
        def predict(self, observation, deterministic=True):
            return int(observation[2] > 0), None

    vector = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
    with pytest.raises(
        TypeError, match="policy: predict is given the observations of 3 copies at once; one that takes"
    ):
        collect(vector, num_steps=5, gamma=0.9, seed=0, policy=Single())
    as_said = collect(vector, num_steps=5, gamma=0.9, seed=0, policy=lambda x, rng: Single().predict(x)[0])
    assert len(as_said) == 15


class LostAtTheEnd(gym.Wrapper):
    """Says nothing but NaN of where an episode has terminated."""

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return np.full_like(observation, np.nan) if terminated else observation, reward, terminated, truncated, info


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_model_is_not_asked_about_the_observation_after_a_termination(mode):
    class Model:
        def predict(self, observation, deterministic):
            assert np.isfinite(observation).all()
            return (observation[..., 2] > 0).astype(int), None

    def run(*wrappers):
        env = gym.make_vec("CartPole-v1", 2, "sync", vector_kwargs={"autoreset_mode": mode}, wrappers=wrappers)
        return collect(env, num_steps=120, gamma=0.9, seed=0, policy=Model())

    lost, seen = run(LostAtTheEnd), run()
    assert int((seen.discounts == 0).sum()) > 3
    for name in ("states", "rewards", "discounts"):
        assert torch.equal(getattr(lost, name), getattr(seen, name))
