"""Models act within the bounds that they were trained with, or are refused."""

import gymnasium as gym
import numpy as np
import pytest

from icrl_agents import collect_episodes
from icrl_envs import FixedPolicy


class Trained:
    """Says in which spaces it was trained, as models of Stable-Baselines3 do; pushes as hard as it can."""

    def __init__(self, env):
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.broadcast_to(self.action_space.high, (*np.shape(observation)[:-1], 1)), state


def test_a_model_whose_actions_had_other_bounds_in_training_is_refused():
    plain = gym.make("Pendulum-v1")
    scaled = gym.wrappers.RescaleAction(plain, np.float32(-1.0), np.float32(1.0))
    for env in (plain, gym.make_vec("Pendulum-v1", 2, vectorization_mode="sync")):
        with pytest.raises(ValueError, match=r"policy: the model was trained with action_space .* wrap this env"):
            collect_episodes(env, num_steps=3, seed=0, policy=Trained(scaled))
    with pytest.raises(ValueError, match="action_space"):
        FixedPolicy(plain, Trained(scaled))
    own = [
        collect_episodes(env, num_steps=9, seed=0, policy=Trained(env))[0].rewards
        for env in (plain, scaled)  # the same torque
    ]
    np.testing.assert_array_equal(*own)


def test_a_model_whose_observations_had_other_bounds_in_training_is_told_of():
    plain = gym.make("Pendulum-v1")
    scaled = gym.wrappers.RescaleObservation(plain, np.float32(-1.0), np.float32(1.0))
    with pytest.warns(UserWarning, match="policy: the model was trained with observation_space"):
        FixedPolicy(plain, Trained(scaled))
    FixedPolicy(plain, Trained(plain))
