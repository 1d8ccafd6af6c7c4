"""What actor-critic loops refuse: actors that diverge, observations that are no numbers, and wrong arguments."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from icrl_agents.collection import collect
from icrl_agents.collection.copies import copies_of
from icrl_agents.context import Context
from icrl_agents.control import Critic, PPOConfig, ppo
from icrl_agents.control.actor import Actor
from icrl_agents.control.collector import Collector
from icrl_agents.divergence import DivergenceError
from icrl_agents.evaluators import LSTD

SHORT = PPOConfig(rollout_steps=8, epochs=1, hidden=(4,))


class Broken(gym.ObservationWrapper):
    """Observations are NaN from the fifth on."""

    count = 0

    def observation(self, observation):
        self.count += 1
        return observation if self.count < 5 else np.full_like(observation, np.nan)


class Watched(gym.ActionWrapper):
    """Fails at the first action that is no number."""

    def action(self, action):
        assert np.isfinite(action).all()
        return action


@pytest.mark.parametrize("learning_rate", [10.0, 1e30])
def test_an_actor_that_diverges_is_an_error_before_it_acts(learning_rate):
    config = PPOConfig(rollout_steps=32, epochs=20, hidden=(2,), learning_rate=learning_rate)
    with pytest.raises(DivergenceError, match=r"learning_rate .* is too large"):
        ppo(Watched(gym.make("Pendulum-v1")), LSTD(ridge=1.0), total_steps=2_000, seed=0, config=config)


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1"])
def test_an_observation_that_is_no_number_is_named(id):
    with pytest.raises(ValueError, match=r"env: expected observations that are finite .* after 4 steps"):
        ppo(Broken(gym.make(id)), LSTD(ridge=1.0), total_steps=16, seed=0, config=SHORT)


@pytest.mark.parametrize("name", ["learning_rate", "clip", "max_gradient", "entropy"])
def test_settings_beyond_float32_are_refused(name):
    with pytest.raises(ValueError, match=rf"{name} must be a finite number in .0, 1e\+30\]; got 1e\+300"):
        PPOConfig(**{name: 1e300})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"config": {"gamma": 0.9}}, TypeError, r"config must be a PPOConfig, such as PPOConfig\(gamma=0.9\)"),
        ({"on_update": 3}, TypeError, "on_update must be a callable"),
        ({"seed": 2**70}, ValueError, "seed must be an integer in"),
    ],
)
def test_wrong_arguments_of_ppo_are_named(change, error, message):
    with pytest.raises(error, match=message):
        ppo(gym.make("CartPole-v1"), LSTD(), **{"total_steps": 8, "seed": 0, "config": SHORT, **change})


@pytest.mark.parametrize("features", [lambda states: states[:1], lambda states: states[:, 0], lambda states: None])
def test_features_that_are_not_a_row_for_each_state_are_named(features):
    context = Context([[0.0], [1.0]], [1.0, 2.0], [0.9, 0.0], [[1.0], [2.0]])
    with pytest.raises(ValueError, match=r"features: expected a tensor \(2, f\), a row for each state, got"):
        Critic(LSTD(), features=features).assess(context)


class LostAtTheEnd(gym.Wrapper):
    """Says nothing but NaN of where an episode has terminated."""

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return np.full_like(observation, np.nan) if terminated else observation, reward, terminated, truncated, info


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_an_observation_after_a_termination_is_never_read(mode):
    def rollout(*wrappers):
        env = gym.make_vec("CartPole-v1", 3, "sync", vector_kwargs={"autoreset_mode": mode}, wrappers=wrappers)
        generator = torch.Generator().manual_seed(0)
        actor = Actor(env.single_observation_space, env.single_action_space, (8,), generator)
        return Collector(copies_of(env), seed=1).collect(actor, 60, 0.9, generator)

    lost, seen = rollout(LostAtTheEnd), rollout()
    assert int((seen.context.discounts == 0).sum()) > 3
    for name in ("states", "rewards", "discounts"):
        assert torch.equal(getattr(lost.context, name), getattr(seen.context, name))
    assert torch.equal(lost.actions, seen.actions)


def test_an_observation_that_is_no_number_names_its_copy():
    env = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1"), lambda: Broken(gym.make("CartPole-v1"))])
    with pytest.raises(ValueError, match=r"got \[nan, .*\] in copy 1 after 8 steps"):
        ppo(env, LSTD(ridge=1.0), total_steps=16, seed=0, config=SHORT)


class Paid(gym.Wrapper):
    """Pays the same in each step, whatever it is."""

    def __init__(self, env, reward):
        super().__init__(env)
        self.reward = reward

    def step(self, action):
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, self.reward, terminated, truncated, info


@pytest.mark.parametrize("reward", [None, "1", 1j, np.array([1.0, 2.0]), np.zeros(0)])
def test_a_reward_that_is_no_number_is_named(reward):
    env = Paid(gym.make("CartPole-v1"), reward)
    for run in (
        lambda: ppo(env, LSTD(ridge=1.0), total_steps=16, seed=0, config=SHORT),
        lambda: collect(env, num_steps=5, gamma=0.9, seed=0),
    ):
        with pytest.raises(ValueError, match="env: expected a reward that is one real number, got"):
            run()
    with pytest.raises(ValueError, match="float64 would round the integer 9007199254740993"):
        collect(Paid(env, 2**53 + 1), num_steps=5, gamma=0.9, seed=0)
    for one in (1, True, np.float32(1), np.array([1.0]), torch.tensor(1.0)):
        assert collect(Paid(env, one), num_steps=2, gamma=0.9, seed=0).rewards.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("reward", [np.nan, -np.inf, 1e39])
def test_a_reward_that_is_not_finite_names_copy_and_step(reward):
    env = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1"), lambda: Paid(gym.make("CartPole-v1"), reward)])
    with pytest.raises(
        ValueError, match=r"expected rewards that are finite as float32, got .* in copy 1 after 0 steps"
    ):
        ppo(env, LSTD(ridge=1.0), total_steps=16, seed=0, config=SHORT)
