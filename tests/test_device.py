"""Every device gives the same results, and one that is not there is refused before anything is written.

The simulated accelerator finds tensors of two devices in one operation on machines that have only one.
"""

import contextlib
import dataclasses
import math
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agents import Context, constructions, kernels
from icrl_agents.adaptive import AdaptiveTD, default_bank
from icrl_agents.command_line import STUDIES, main
from icrl_agents.control import Critic, PPOConfig, ppo, quadratic_features
from icrl_agents.control.improvement import cross_fitted_advantages
from icrl_agents.control.rollout import Rollout
from icrl_agents.diagnostics import attention_distance, expected_update, value_distance
from icrl_agents.episode import Episode
from icrl_agents.evaluators import (
    LSTD,
    KernelLSTD,
    KernelTD,
    LinearTD,
    MonteCarlo,
    Nystrom,
    TabularTD,
    WeightedSoftmaxTD,
)
from icrl_agents.layers import export_multihead_attention
from icrl_agents.pretraining import PretrainConfig, pretrain
from icrl_agents.pretraining.batches import batches
from icrl_agents.pretraining.losses import loss_of
from icrl_agents.pretraining.measurements import Measurements
from icrl_agents.pretraining.model import random_transformer
from icrl_envs import boyan_chain
from tests.accelerator import DEVICE, Accelerator

TOLERANCE = 1e-9
no_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CUDA = pytest.param("cuda", marks=[pytest.mark.gpu, no_cuda])
EVALUATORS = {
    "softmax TD": WeightedSoftmaxTD(kernels.Laplace(0.5), 20),
    "softmax TD, median": WeightedSoftmaxTD(kernels.RBF("median"), 20),
    "softmax TD, limit": WeightedSoftmaxTD(kernels.Laplace(0.5), math.inf),
    "softmax TD, approximate": WeightedSoftmaxTD(kernels.RBF(4.0), 20, approximation=Nystrom(30)),
    "kernel TD": KernelTD(kernels.RBF(0.5), 20),
    "kernel LSTD": KernelLSTD(kernels.Laplace(0.5), 1e-3),
    "Monte-Carlo": MonteCarlo(kernels.ProductLaplace(0.5), 5),
    "tabular TD": TabularTD(20),
    "adaptive TD": AdaptiveTD(default_bank(8), (2, 8)),
    "linear TD": LinearTD(5),
    "LSTD": LSTD(1e-3),
    "softmax transformer": constructions.weighted_softmax_td(kernels.Exponential(1.0), 8),
    "dual-head transformer": constructions.weighted_softmax_td(kernels.DotProduct(torch.eye(3)), 8, form="dual_head"),
    "kernel transformer": constructions.kernel_td(kernels.RBF(0.5), 8),
    "linear transformer": constructions.linear_td(3, 5),
    "average-reward transformer": constructions.average_reward_td(3, 5),
}
TRAININGS = {
    "td": {},
    "dual head": {"form": "dual_head"},
    "full": {"parametrisation": "full"},
    "neu": {"loss": "neu"},
    "mc": {"loss": "mc", "horizon": 3},
    "value": {"loss": "value", "chain": "loop"},
    "windows": {"windows": 3},
    "cartpole": {"chain": "cartpole"},
    "linear": {"form": "linear"},
    "average reward": {"form": "linear", "algorithm": "average_reward"},
}


@pytest.fixture(params=["cpu", DEVICE, CUDA])
def device(request):
    """The processor, the simulated accelerator, and a real one."""
    with Accelerator() if request.param == DEVICE else contextlib.nullcontext():
        yield request.param


def context(repeats=False, n=40, seed=0):
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(n + 1, 3))
    states = states[rng.integers(0, 6, n + 1)] if repeats else states
    cuts = [0, n // 4, n // 2, n]
    return Context.from_episodes([Episode(states[i : j + 1], rng.normal(size=j - i)) for i, j in pairwise(cuts)], 0.9)


def assert_equal(found, expected, device):
    assert found.device.type == torch.device(device).type
    torch.testing.assert_close(found.detach().cpu(), expected.detach(), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.filterwarnings("ignore:context. no return in it is complete:RuntimeWarning")
@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("name", EVALUATORS)
def test_values_are_the_same_on_every_device(device, name, repeats):
    evaluator, here = EVALUATORS[name], context(repeats)
    there = here.to(device)
    expected, found = evaluator.fit(here), evaluator.fit(there)
    assert_equal(found.by_depth(there.states), expected.by_depth(here.states), device)
    if found.average_rewards is None:
        assert_equal(found.td_errors(there), expected.td_errors(here), device)
    if isinstance(evaluator, torch.nn.Module):
        assert_equal(evaluator(there, there.states), evaluator(here, here.states), device)


@pytest.mark.parametrize("name", TRAININGS)
def test_losses_gradients_and_measurements_of_pretraining_are_the_same_on_every_device(device, name):
    sizes = {"context_length": 12, "num_layers": 3, "tasks": 4, "evaluation_tasks": 3, "initial_scale": 0.3}
    if name != "cartpole":
        sizes["num_states"] = 4
    found, expected = (_trained_once(PretrainConfig(device=d, **sizes, **TRAININGS[name])) for d in (device, "cpu"))
    for tensor, other in zip(found[0], expected[0], strict=True):
        assert_equal(tensor, other, device)
    numbers = [[value for value in dataclasses.astuple(row) if not math.isnan(value)] for _, row in (found, expected)]
    np.testing.assert_allclose(*numbers, rtol=1e-7, atol=1e-7)


def _trained_once(config):
    """Loss and gradients of the first step, and a row of measurements before it."""
    transformer = random_transformer(config)
    row = Measurements(config)(transformer, 0, 0.0)
    loss = loss_of(config)(transformer, next(iter(batches(config))))
    return [loss, *torch.autograd.grad(loss, list(transformer.parameters()))], row


@pytest.mark.parametrize("features", [None, quadratic_features])
def test_a_critic_computes_on_its_device_and_answers_where_it_is_asked(device, features):
    evaluator = WeightedSoftmaxTD(kernels.Laplace(0.5), 20)
    reference, moved, following = (
        Critic(evaluator, window=2, features=features, device=d) for d in (None, device, None)
    )
    for seed in (0, 1):
        batch = context(seed=seed)
        expected, found = reference.assess(batch), moved.assess(batch)
        there = following.assess(batch.to(device))
        for name in ("values", "advantages", "returns"):
            assert_equal(getattr(found, name), getattr(expected, name), "cpu")
            assert_equal(getattr(there, name), getattr(expected, name), device)
    assert_equal(moved(batch.states), reference(batch.states), "cpu")


def test_a_rollout_of_states_on_a_device_is_a_context_there(device):
    rng = np.random.default_rng(0)
    found, expected = Rollout(2), Rollout(2)
    trajectory = torch.from_numpy(rng.normal(size=(6, 2, 3)))
    for t, (states, following) in enumerate(pairwise(trajectory)):
        step = rng.normal(size=2), np.array([t == 2, False]), np.array([False, t == 3])
        expected.add(states, step[0], following, *step[1:])
        found.add(states.to(device), step[0], following.to(device), *step[1:])
    for name in ("points", "rewards", "discounts", "contiguous"):
        assert_equal(getattr(found.context(0.9), name), getattr(expected.context(0.9), name), device)


def test_cross_fitted_advantages_are_the_same_on_every_device(device):
    rng = np.random.default_rng(0)
    episodes = [Episode(rng.normal(size=(9, 3)), rng.normal(size=8)) for _ in range(4)]
    evaluator = constructions.weighted_softmax_td(kernels.Laplace(0.5), 8)
    settings = {"gamma": 0.9, "lambda_": 0.9, "folds": 2}
    found = cross_fitted_advantages(episodes, evaluator, device=device, **settings)
    np.testing.assert_allclose(found, cross_fitted_advantages(episodes, evaluator, **settings), rtol=0, atol=TOLERANCE)


@pytest.mark.gpu
@no_cuda
@pytest.mark.parametrize(("first", "second"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_training_goes_on_on_another_device(tmp_path, first, second):
    sizes = {"num_states": 4, "context_length": 12, "num_layers": 3, "tasks": 4, "steps": 6}
    pretrain(PretrainConfig(device=first, **sizes), folder=tmp_path, until=3)
    losses = pretrain(PretrainConfig(device=second, **sizes), folder=tmp_path).losses
    torch.testing.assert_close(losses, pretrain(PretrainConfig(**sizes)).losses, rtol=TOLERANCE, atol=TOLERANCE)


def test_the_state_of_a_training_says_nothing_of_its_device(tmp_path):
    sizes = {"num_states": 4, "context_length": 12, "num_layers": 3, "tasks": 4, "steps": 2}
    done = pretrain(PretrainConfig(**sizes), folder=tmp_path)
    again = pretrain(PretrainConfig(device="cpu:0", **sizes), folder=tmp_path)  # another name of the same
    assert torch.equal(again.losses, done.losses)


@pytest.mark.parametrize("study", [name for name, (kind, _) in STUDIES.items() if hasattr(kind, "device")])
@pytest.mark.parametrize("unknown", ["abacus", "cuda:99", DEVICE])
def test_a_device_that_is_not_there_is_one_line_and_nothing_is_written(study, unknown, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if study == "control":
        pytest.importorskip("stable_baselines3")
    assert main([study, *(["CartPole-v1"] if study == "evaluate" else []), "--device", unknown]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"icrl: device: '{unknown}' is not available here")
    assert printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_functions_refuse_a_device_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="device: 'abacus'"):
        pretrain(PretrainConfig(device="abacus"), folder=tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
    with pytest.raises(ValueError, match="device: 'abacus'"):
        Critic(LSTD(), device=PPOConfig(device="abacus").device)


@pytest.mark.filterwarnings("ignore:context. no return in it is complete:RuntimeWarning")
@pytest.mark.parametrize("n", [40, 300])
@pytest.mark.parametrize("name", EVALUATORS)
def test_a_default_device_of_torch_other_than_the_contexts_changes_nothing(name, n):
    evaluator, here = EVALUATORS[name], context(n == 300, n)
    expected = evaluator.fit(here).by_depth(here.states)
    with torch.device("meta"):
        found = evaluator.fit(here).by_depth(here.states)
    assert torch.equal(found, expected)


def test_a_default_device_of_torch_changes_no_training():
    pretraining = {"num_states": 4, "context_length": 12, "num_layers": 3, "tasks": 4, "steps": 2}
    chain, env = boyan_chain(num_states=5), gym.make("Pendulum-v1")
    options = {"total_steps": 16, "seed": 0, "config": PPOConfig(rollout_steps=8)}
    steps_stay = tuple(map(int, torch.__version__.split(".")[:2])) > (2, 8)  # Adam's before went to the default device
    found = []
    for device in ("cpu", "meta"):
        with torch.device(device):
            constructed = constructions.linear_td(5, 3)
            update = expected_update(chain, kernels.RBF(0.5))
            softmax = constructions.weighted_softmax_td(kernels.RBF(0.5), 2, form="temporal_shift")
            exported = export_multihead_attention(softmax.blocks[0], 3)
            found.append(
                [
                    pretrain(PretrainConfig(**pretraining)).losses,
                    *(ppo(env, LSTD(1.0), **options).actor.parameters() if steps_stay else ()),
                    update.errors(3),
                    update.error_operator(),
                    value_distance(constructed),
                    attention_distance(constructed),
                    *exported.parameters(),
                ]
            )
    for tensor, other in zip(*found, strict=True):
        assert torch.equal(tensor, other)
