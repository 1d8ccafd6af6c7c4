"""What InContextPPO's critic takes for states: encoded pictures of one encoder, and vectors that are not rounded."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from icrl_agents.context import Context
from icrl_agents.control import Critic, PPOConfig, ppo
from icrl_agents.evaluators import WeightedSoftmaxTD
from icrl_agents.kernels import Laplace

pytest.importorskip("stable_baselines3")

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

from icrl_agents.integrations.sb3 import InContextPPO

SMALL = {"n_steps": 64, "batch_size": 32, "n_epochs": 3, "device": "cpu", "seed": 0}
EVALUATOR = WeightedSoftmaxTD(Laplace(0.5), num_sweeps=20)


class Pictures(gym.Env):
    """A bright square somewhere, worth its column; nine steps an episode."""

    observation_space, action_space = spaces.Box(0, 255, (1, 36, 36), np.uint8), spaces.Discrete(2)

    def look(self):
        self.at = int(self.np_random.integers(30))
        picture = np.zeros((1, 36, 36), np.uint8)
        picture[:, 10:16, self.at : self.at + 6] = 255
        return picture

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.look(), {}

    def step(self, action):
        self.t += 1
        return self.look(), self.at / 30, self.t == 9, False, {}


class Offset(gym.Env):
    """A walk in double precision, far from the origin."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (1,), np.float64), spaces.Discrete(2)
    offset = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = 0, 0
        return np.array([self.offset]), {}

    def step(self, action):
        self.x, self.t = self.x + int(self.np_random.integers(-2, 3)), self.t + 1
        return np.array([self.offset + self.x / 64]), float(self.x > 0), False, self.t == 20, {}


class Far(Offset):
    offset = 2.0**24


class Clock(Offset):
    """The walk in whole numbers, such as of a clock, which float32 rounds to multiples of 128."""

    observation_space = spaces.Box(-(2**62), 2**62, (1,), np.int64)
    start = 0

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return (observation * 64).astype(np.int64) + self.start, info

    def step(self, action):
        observation, *rest = super().step(action)
        return (observation * 64).astype(np.int64) + self.start, *rest


class LateClock(Clock):
    start = 2**31


class Watches(Clock):
    """The same beside another box."""

    observation_space = spaces.Dict({"clock": Clock.observation_space, "other": spaces.Box(-1, 1, (1,))})

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return {"clock": observation, "other": np.zeros(1, np.float32)}, info

    def step(self, action):
        observation, *rest = super().step(action)
        return {"clock": observation, "other": np.zeros(1, np.float32)}, *rest


class LateWatches(Watches):
    start = 2**31


class Dropped(BaseFeaturesExtractor):
    """A small encoder with what differs between training and evaluation."""

    def __init__(self, space):
        super().__init__(space, 4)
        layers = nn.Flatten(), nn.Linear(36 * 36, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.network = nn.Sequential(*layers)

    def forward(self, pictures):
        return self.network(pictures)


@pytest.mark.parametrize("kwargs", [{}, {"features_extractor_class": Dropped}])
def test_queries_are_encoded_as_the_states_of_the_fit_were(kwargs):
    model = InContextPPO("CnnPolicy", Pictures(), EVALUATOR, learning_rate=1e-2, policy_kwargs=kwargs, **SMALL)
    model.learn(64)
    with torch.no_grad():
        values = model.policy.predict_values(torch.as_tensor(model.rollout_buffer.observations)).numpy()
    np.testing.assert_allclose(values, model.rollout_buffer.values, rtol=1e-3, atol=1e-3)


def test_a_window_of_pictures_of_several_encoders_is_refused():
    with pytest.raises(ValueError, match="window: expected 1 with a feature extractor that is trained, got 2"):
        InContextPPO("CnnPolicy", Pictures(), EVALUATOR, window=2, **SMALL)


@pytest.mark.parametrize("makes", [(Offset, Far), (Clock, LateClock)])
def test_states_in_double_precision_lose_no_digits_to_an_offset(makes):
    found = []
    for make in makes:
        values = []

        class Keep(BaseCallback):
            def _on_step(self):
                return True

            def _on_rollout_end(self, values=values):
                values.append(self.model.rollout_buffer.values.copy())

        model = InContextPPO("MlpPolicy", make(), EVALUATOR, **SMALL)
        model.learn(64, callback=Keep())
        states = torch.as_tensor(model.rollout_buffer.observations)
        with torch.no_grad():
            np.testing.assert_allclose(model.policy.predict_values(states), values[0], rtol=1e-5)
        found.append(values[0])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    assert found[0].std() > 0.1


@pytest.mark.parametrize("makes", [(Offset, Far), (Clock, LateClock), (Watches, LateWatches)])
def test_the_critic_of_ppo_gets_double_precision_and_its_actor_single(makes, monkeypatch):
    contexts = []
    assess = Critic.assess
    monkeypatch.setattr(Critic, "assess", lambda self, batch: contexts.append(batch) or assess(self, batch))
    for make in makes:
        ppo(make(), EVALUATOR, total_steps=64, seed=0, config=PPOConfig(rollout_steps=64))
    near, far = contexts
    assert isinstance(near, Context)
    offset = far.states[0] - near.states[0]
    assert offset[0] >= 2**24
    assert torch.equal(near.states, far.states - offset)
    assert near.dtype == torch.float64


def test_a_cut_without_a_final_observation_is_named():
    model = InContextPPO("MlpPolicy", Offset(), EVALUATOR, **SMALL)
    venv = model.get_env()
    original = venv.step_wait

    def step_wait():
        observations, rewards, dones, infos = original()
        return (
            observations,
            rewards,
            dones,
            [{k: v for k, v in i.items() if k != "terminal_observation"} for i in infos],
        )

    venv.step_wait = step_wait
    with pytest.raises(ValueError, match=r"env: copy 0 cut an episode short .* without a terminal_observation"):
        model.learn(64)


class Doubles(Offset):
    """Observations in double precision of a space in single, as many environments give them."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


@pytest.mark.parametrize("stack", [1, 2])
def test_observations_of_another_type_than_their_space_are_those_of_the_space(stack):
    env = DummyVecEnv([Doubles])
    model = InContextPPO("MlpPolicy", VecFrameStack(env, stack) if stack > 1 else env, EVALUATOR, **SMALL)
    model.learn(128)
    states = torch.as_tensor(model.rollout_buffer.observations)
    with torch.no_grad():
        assert torch.equal(model.policy.predict_values(states.double()), model.policy.predict_values(states))


def test_an_encoder_that_is_not_trained_serves_any_window():
    class Frozen(Dropped):
        def __init__(self, space):
            super().__init__(space)
            self.network = nn.Sequential(nn.Flatten(), nn.Linear(36 * 36, 4)).requires_grad_(False)

    kwargs = {"features_extractor_class": Frozen}
    InContextPPO("CnnPolicy", Pictures(), EVALUATOR, window=2, policy_kwargs=kwargs, **SMALL).learn(128)
