"""A model acts in the wrappers that it was trained in, or it is warned that it does not."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.vector import SyncVectorEnv

from icrl_agents import collect
from icrl_agents.control import PPOConfig, ppo
from icrl_agents.evaluators import TabularTD
from icrl_envs import FixedPolicy

pytest.importorskip("stable_baselines3")

from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecCheckNan, VecEnvWrapper, VecMonitor

UNITS = np.float32([1, 1, 20, 1])


def raw():
    return gym.make("CartPole-v1")


class Scaled(gym.ObservationWrapper):
    """Observations in other units."""

    def observation(self, observation):
        return observation * UNITS


class Flipped(gym.ActionWrapper):
    """The other action."""

    def action(self, action):
        return 1 - action


class Paid(gym.RewardWrapper):
    """Rewards alone are others."""

    def reward(self, reward):
        return 2.0 * reward


class VecScaled(VecEnvWrapper):
    """Observations and rewards in other units."""

    units, pay = UNITS, 1.0

    def reset(self):
        return self.venv.reset() * self.units

    def step_wait(self):
        observations, rewards, dones, infos = self.venv.step_wait()
        return observations * self.units, rewards * self.pay, dones, infos


class VecPaid(VecScaled):
    """Rewards alone are others."""

    units, pay = np.float32(1), 2.0


def transformed(env):
    return wrappers.TransformObservation(env, lambda x: x * UNITS, env.observation_space)


def model_of(env, algorithm=PPO):
    settings = {"n_steps": 8, "batch_size": 8} if algorithm is PPO else {"learning_starts": 4}
    return algorithm("MlpPolicy", env, device="cpu", seed=0, **settings).learn(8)


def steps(env, model):
    return collect(env, gamma=0.9, seed=0, num_steps=3, policy=model)


@pytest.mark.parametrize("algorithm", [PPO, DQN])
@pytest.mark.parametrize("around", [Scaled, Flipped, transformed])
def test_a_model_and_its_environment_are_in_the_same_wrappers_or_it_is_told_of(around, algorithm):
    name = type(around(raw())).__name__
    model = model_of(around(raw()), algorithm)
    for env in (raw(), SyncVectorEnv([raw] * 2), Paid(raw())):
        with pytest.warns(UserWarning, match=f"policy: {name} changes .* in the model's own environment, and is not"):
            steps(env, model)
    with pytest.warns(UserWarning, match=f"policy: {name} changes observations or actions in this one, and is not"):
        FixedPolicy(around(raw()), model_of(raw(), algorithm))
    for env in (around(raw()), Paid(around(raw())), SyncVectorEnv([lambda: around(raw())] * 2)):
        steps(env, model)


def test_an_actor_of_ppo_knows_its_wrappers():
    settings = {"total_steps": 8, "seed": 0, "config": PPOConfig(rollout_steps=8, batch_size=4)}
    actor = ppo(transformed(raw()), TabularTD(num_sweeps=1), **settings).actor
    with pytest.warns(UserWarning, match="policy: TransformObservation changes observations or actions"):
        steps(raw(), actor)
    steps(transformed(raw()), actor)
    envs = SyncVectorEnv([raw] * 2)
    steps(wrappers.vector.TransformObservation(envs, lambda x: x * UNITS), actor)


def test_wrappers_of_a_vec_env_are_told_of_where_they_changed_observations():
    model = model_of(VecScaled(DummyVecEnv([raw])))
    with pytest.warns(UserWarning, match="policy: VecScaled changes observations or actions"):
        steps(raw(), model)
    steps(Scaled(raw()), model)  # which may stand for it
    steps(raw(), model_of(VecPaid(DummyVecEnv([raw]))))


def test_wrappers_that_change_no_observation_or_action_are_not_told_of(tmp_path):
    def limited():
        env = wrappers.RecordEpisodeStatistics(wrappers.TimeLimit(Paid(raw()), 50))
        return wrappers.DtypeObservation(wrappers.FlattenObservation(env), np.float32)

    for own in (raw(), limited(), make_vec_env(limited, 2), VecCheckNan(VecMonitor(DummyVecEnv([limited])))):
        model = model_of(own)
        for env in (raw(), limited(), SyncVectorEnv([limited] * 2), gym.make("CartPole-v1", disable_env_checker=True)):
            steps(env, model)
    model.save(tmp_path / "model")
    steps(transformed(raw()), PPO.load(tmp_path / "model", device="cpu"))  # which does not know


def test_of_environments_in_workers_nothing_is_known():
    workers = SubprocVecEnv([raw], start_method="fork")
    try:
        steps(transformed(raw()), model_of(workers))
    finally:
        workers.close()
