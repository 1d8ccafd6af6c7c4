"""Settings that come out of arrays are the numbers that they are."""

import dataclasses
import json

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agents.context import Context
from icrl_agents.control import PPOConfig, ppo
from icrl_agents.evaluators import LSTD, KernelLSTD, Nystrom, TDLambda, WeightedSoftmaxTD
from icrl_agents.ground_truth import ground_truth
from icrl_agents.kernels import RBF
from icrl_agents.pretraining import PretrainConfig, pretrain
from icrl_agents.studies.rkhs.config import RKHSConfig

SMALL = {"steps": 3, "num_layers": 2, "context_length": 6, "num_states": 3, "tasks": 4, "seed": 1, "evaluate_every": 2}
ROWS = np.random.default_rng(0).normal(size=(31, 2))
CONTEXT = Context(ROWS[:-1], np.arange(30.0), np.full(30, 0.9), ROWS[1:])


def test_a_pretraining_takes_numbers_of_numpy_as_those_of_python(tmp_path):
    settings = {"learning_rate": np.float32(0.02), "gamma": np.float32(0.9)}
    given = PretrainConfig(**{name: np.int64(each) for name, each in SMALL.items()}, **settings)
    same = PretrainConfig(**SMALL, **{name: each.item() for name, each in settings.items()})
    assert json.loads(json.dumps(dataclasses.asdict(given))) == json.loads(json.dumps(dataclasses.asdict(same)))
    found, expected = pretrain(given, folder=tmp_path / "run"), pretrain(same)
    np.testing.assert_array_equal([row.loss for row in found.rows], [row.loss for row in expected.rows])
    assert len(found.rows) == 3


def test_a_training_and_evaluators_take_numbers_of_numpy_as_those_of_python():
    sizes = {"rollout_steps": 16, "batch_size": 8, "epochs": 1}
    configs = (
        PPOConfig(**sizes, hidden=(8,)),
        PPOConfig(**{k: np.int64(n) for k, n in sizes.items()}, hidden=(np.int32(8),)),
    )
    env, critic = gym.make("CartPole-v1"), WeightedSoftmaxTD(RBF(1.0), 3)
    actors = [ppo(env, critic, total_steps=32, config=each, seed=0).actor for each in configs]
    for one, other in zip(*(actor.state_dict().values() for actor in actors), strict=True):
        assert torch.equal(one, other)
    for given, same in (
        (LSTD(np.float32(0.25)), LSTD(0.25)),
        (KernelLSTD(RBF(1.0), np.float32(0.25)), KernelLSTD(RBF(1.0), 0.25)),
        (TDLambda(np.float32(0.5), np.int64(3)), TDLambda(0.5, 3)),
        (
            WeightedSoftmaxTD(RBF(1.0), 3, approximation=Nystrom(np.int64(10), seed=np.int64(1))),
            WeightedSoftmaxTD(RBF(1.0), 3, approximation=Nystrom(10, seed=1)),
        ),
    ):
        assert torch.equal(given.fit(CONTEXT)(ROWS), same.fit(CONTEXT)(ROWS))


def test_a_study_takes_numbers_of_numpy_in_tuples_too():
    assert RKHSConfig(dims=(np.int64(1),)) == RKHSConfig(dims=(1,))
    assert all(type(dim) is int for dim in RKHSConfig(dims=(np.int64(1),)).dims)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_ground_truth_does_not_sum_in_the_type_of_gamma(kind):
    env, gamma = gym.make("icrl/BoyanChain-v0", num_states=4), kind(0.99)
    env.reset(seed=0)
    states = [env.unwrapped.get_state()]
    found, expected = (ground_truth(env, states, gamma=each, continuations=2, seed=0) for each in (gamma, float(gamma)))
    np.testing.assert_array_equal(found.returns, expected.returns)
