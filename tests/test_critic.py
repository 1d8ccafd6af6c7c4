"""The critic's states: constants of any number, and batches that are its own."""

import math
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from icrl_agents.collection import collect
from icrl_agents.context import Context
from icrl_agents.control import Critic, PPOConfig, ppo
from icrl_agents.control.features import standardising
from icrl_agents.divergence import DivergenceWarning
from icrl_agents.evaluators import LSTD, MonteCarlo, TabularTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, Laplace
from icrl_agents.notices import warn


@pytest.mark.parametrize("n", [500, 3_000, 50_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_constant_single_dimension_is_0_however_many_states_there_are(n, dtype):
    for number in (0.1, 1 / 3, 123.456, 1e-5):
        x = torch.full((n, 1), number, dtype=dtype)
        zeros = torch.zeros(n, dtype=dtype)
        standardised = standardising(Context(x, zeros, zeros, x))
        assert not standardised(x).any()
        assert not standardised(x + 0.1).any()


def test_where_gamma_changes_the_batches_before_are_left_out():
    def batch(gamma, first=0):
        return Context(np.eye(3) + first, np.ones(3), [gamma, gamma, 0.0], np.eye(3)[::-1] + first)

    scheduled, fresh = Critic(LSTD(0.1), window=3), Critic(LSTD(0.1), window=3)
    for gamma in (0.5, 0.5, 0.9):
        scheduled.assess(batch(gamma))
    fresh.assess(batch(0.9))
    ends = Context(np.eye(3), np.ones(3), np.zeros(3), np.eye(3))  # of any γ
    for last in (batch(0.9, first=1), ends):
        assert torch.equal(scheduled.assess(last).values, fresh.assess(last).values)
    assert len(scheduled.state_dict()["batches"]) == 3


def test_gamma_is_the_same_in_batches_of_another_floating_type():
    batch = Context(np.eye(3), np.ones(3), [0.9, 0.9, 0.0], np.eye(3)[::-1])
    critic = Critic(WeightedSoftmaxTD(RBF(1.0), num_sweeps=5), window=2)
    critic.assess(batch)
    for dtype in (torch.float32, torch.float64):
        critic.assess(batch.to(dtype=dtype))
        assert len(critic.state_dict()["batches"]) == 2
    critic.assess(Context(np.eye(3), np.ones(3), np.full(3, 0.95), np.eye(3)[::-1]).to(dtype=torch.float32))
    assert len(critic.state_dict()["batches"]) == 1


def test_a_batch_that_is_written_into_later_has_no_part_in_the_next_assessment():
    first, second = (Context(np.eye(3) + i, np.ones(3), np.full(3, 0.5), np.eye(3)[::-1] + i) for i in range(2))
    expected = Critic(LSTD(0.1), window=2)
    expected.assess(first)
    critic = Critic(LSTD(0.1), window=2)
    critic.assess(first)
    first.rewards.fill_(1e6)
    assert torch.equal(critic.assess(second).values, expected.assess(second).values)
    with pytest.raises(ValueError, match=r"states: expected shape \(m, 3\), got \(1, 4\)"):
        critic(torch.zeros(1, 4))


class Warner:
    """Warns several times, as evaluators of several parts may, and fails where it is told to."""

    fails = False

    def fit(self, context):
        for part in "ab":
            warn(part, DivergenceWarning)
        return LSTD(math.inf if self.fails else 0.1).fit(context)


def test_a_batch_on_which_the_evaluator_warned_counts_once_and_one_that_failed_does_not():
    evaluator = Warner()
    critic, batch = Critic(evaluator), Context(np.eye(3), np.ones(3), np.full(3, 0.5), np.eye(3)[::-1])
    critic.assess(batch)
    assert critic.divergences == 1
    evaluator.fails = True
    with pytest.raises(ValueError, match="ridge"):
        critic.assess(batch)
    assert critic.divergences == 1


@pytest.mark.parametrize(
    "features",
    [
        lambda states: (states - states.mean(0)) / states.std(0),
        nn.BatchNorm1d(3).double(),
        nn.Sequential(nn.Linear(3, 8).double(), nn.Dropout(0.5)),
    ],
    ids=["standardised by the batch", "batch normalisation", "dropout"],
)
def test_features_that_are_no_function_of_each_row_are_refused(features):
    rng = np.random.default_rng(0)
    batch = Context(rng.normal(size=(9, 3)), np.ones(9), np.full(9, 0.5), rng.normal(size=(9, 3)))
    with pytest.raises(ValueError, match=r"features: gives the same states other features .* expected a function of"):
        Critic(LSTD(0.1), features=features).assess(batch)
    if isinstance(features, nn.Module):
        critic = Critic(LSTD(0.1), features=features.eval())
        torch.testing.assert_close(critic.assess(batch).values[:2], critic(batch.states[:2]))


def test_an_encoder_that_is_trained_after_the_fit_is_kept_as_it_was():
    encoder, rng = nn.Linear(3, 4).double(), np.random.default_rng(0)
    batch = Context(rng.normal(size=(9, 3)), np.ones(9), np.full(9, 0.5), rng.normal(size=(9, 3)))
    critic = Critic(LSTD(0.1), features=encoder)
    values = critic.assess(batch).values
    with torch.no_grad():
        encoder.weight.mul_(3.0)
    assert torch.equal(critic(batch.states), values)
    assert any(bool(each.any()) for each in torch.autograd.grad(values.sum(), list(encoder.parameters())))


@pytest.mark.parametrize("features", [None, nn.Linear(3, 2).double()])
def test_a_critic_that_has_assessed_is_pickled(features):
    critic = Critic(LSTD(0.1), features=features)
    critic.assess(Context(np.eye(3), np.ones(3), np.full(3, 0.5), np.eye(3)[::-1]))
    states = torch.eye(3, dtype=torch.float64)
    assert torch.equal(pickle.loads(pickle.dumps(critic))(states), critic(states))


SOLVING = {
    "limit": WeightedSoftmaxTD(Laplace(0.5), math.inf),
    "returns": MonteCarlo(),
    "tabular": TabularTD(2000),
}


@pytest.mark.parametrize("evaluator", SOLVING.values(), ids=SOLVING)
@pytest.mark.parametrize("num_steps", [128, 1024])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_critic_that_solves_its_context_has_no_advantages_and_says_so(evaluator, dtype, num_steps):
    batch = collect(gym.make("CartPole-v1"), num_steps=num_steps, gamma=0.95, seed=0).to(dtype=dtype)
    with pytest.warns(RuntimeWarning, match="evaluator: TD errors of this batch are 0 but for rounding"):
        found = Critic(evaluator).assess(batch)
    assert not bool(found.advantages.any())
    assert float(found.values.max()) > 5.0
    assert bool(Critic(WeightedSoftmaxTD(Laplace(0.5), 20)).assess(batch).advantages.any())


def test_an_actor_does_not_follow_the_rounding_of_a_critic_that_solves_its_context():
    settings, weights = PPOConfig(rollout_steps=128, epochs=1, hidden=(4,)), []

    def keep(steps, actor):
        weights.append(torch.nn.utils.parameters_to_vector(actor.parameters()).detach().clone())

    with pytest.warns(RuntimeWarning, match="evaluator: TD errors of this batch are 0 but for rounding"):
        ppo(gym.make("CartPole-v1"), MonteCarlo(), total_steps=384, seed=0, config=settings, on_update=keep)
    assert len(weights) == 4
    assert all(torch.equal(each, weights[0]) for each in weights)


@pytest.mark.filterwarnings("error")
def test_small_advantages_of_long_single_precision_batches_are_those_of_double_precision():
    n, rng = 16_384, np.random.default_rng(0)
    x = rng.normal(size=(n + 1, 2))
    rewards = 1 + 0.1 * np.tanh(x[:-1, 0]) + 0.05 * rng.normal(size=n)
    batch, critic = Context(x[:-1], rewards, np.full(n, 0.999), x[1:]), Critic(LSTD(1e-3))
    found, expected = (critic.assess(each).advantages for each in (batch.to(dtype=torch.float32), batch))
    assert float(expected.std()) > 0.1  # of values of 1,000, of which 16,384 terms may round by that much
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-3)


def test_after_forgetting_a_batch_of_another_discount_is_the_first_one():
    forgetful, fresh = Critic(LSTD(0.1), window=3), Critic(LSTD(0.1), window=3)
    for gamma in (0.5, 0.9):
        batch = Context(np.eye(3), np.ones(3), [gamma, gamma, 0.0], np.eye(3)[::-1])
        forgetful.forget()
        found = forgetful.assess(batch).values
    assert torch.equal(found, fresh.assess(batch).values)
