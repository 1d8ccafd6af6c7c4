"""What actor-critic loops refuse: actors that diverge, observations that are no numbers, and wrong arguments."""

import gymnasium as gym
import numpy as np
import pytest

from icrl_agents.context import Context
from icrl_agents.control import Critic, PPOConfig, ppo
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
