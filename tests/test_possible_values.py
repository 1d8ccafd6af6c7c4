"""Values that are asked for and that no policy has, or that none was seen to have, are told of."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agents import Context, collect
from icrl_agents.divergence import DivergenceWarning
from icrl_agents.evaluators import MonteCarlo, TabularTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF
from icrl_agents.value_function import Evaluator


def test_values_far_below_0_are_warned_of_where_every_reward_is_1_and_far_above_where_every_one_is_a_cost():
    env = gym.make("CartPole-v1")
    context, unseen = (collect(env, num_episodes=n, gamma=0.95, seed=n) for n in (10, 50))
    scale = context.states.std(0)
    scaled = Context(context.states / scale, context.rewards, context.discounts, context.next_states / scale)
    costs = Context(scaled.states, -scaled.rewards, scaled.discounts, scaled.next_states)
    values = WeightedSoftmaxTD(RBF(1.0), 400).fit(scaled)
    with pytest.warns(DivergenceWarning, match="reach -.*, beyond 0, though rewards are of the other sign"):
        assert float(values(unseen.states / scale).min()) < -5
    with pytest.warns(DivergenceWarning, match=r"reach \d.*, beyond 0, though rewards are of the other sign"):
        WeightedSoftmaxTD(RBF(1.0), 400).fit(costs)(unseen.states / scale)
    assert float(WeightedSoftmaxTD(RBF(0.25), 100).fit(scaled)(unseen.states / scale).min()) > -5  # without a word


@pytest.mark.parametrize("evaluator", [TabularTD(50), MonteCarlo()], ids=["tabular", "Monte-Carlo"])
def test_a_state_that_was_visited_but_for_rounding_to_single_precision_is_told_of(evaluator: Evaluator):
    grid = np.arange(10, dtype=np.float32)[:, None] / np.float32(10)
    context = Context(grid[:-1].astype(float), np.ones(9), np.full(9, 0.9), grid[1:].astype(float))
    values = evaluator.fit(context)
    with pytest.warns(
        UserWarning, match="a state of the context but for rounding, so that they are none that was visited"
    ):
        assert float(values([0.3])) == 0
    assert float(values(grid[3])) > 1
    assert values(torch.tensor([[0.5], [0.35]])).tolist() == [pytest.approx(float(values(grid[5]))), 0]


@pytest.mark.parametrize("evaluator", [TabularTD(50), MonteCarlo()], ids=["tabular", "Monte-Carlo"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "asked", [np.arange(-0.3, 0.7, 0.1), np.append(0, np.cumsum([0.1] * 6))], ids=["arange", "sum"]
)
def test_a_state_that_was_visited_but_for_rounding_of_sums_is_told_of(evaluator: Evaluator, dtype: type, asked):
    grid = np.stack([np.arange(-3, 7, dtype=dtype) / dtype(10), np.full(10, 1e6, dtype)], -1)
    values = evaluator.fit(Context(grid[:-1], np.ones(9, dtype), np.full(9, 0.9, dtype), grid[1:]))
    rounded = np.stack([asked.astype(dtype), np.full(len(asked), 1e6, dtype)], -1)
    hidden = 0 if dtype == np.float32 and bool(np.isin(rounded[:, 0], grid[:, 0]).all()) else 1
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        values(rounded)
    assert len([each for each in heard if "but for rounding" in str(each.message)]) == hidden
    values(grid + np.array([1e-3, 0], dtype))  # others altogether


def test_a_state_asked_for_in_single_precision_that_was_visited_in_double_is_told_of():
    grid = np.arange(10)[:, None] / 10
    values = TabularTD(50).fit(Context(grid[:-1], np.ones(9), np.full(9, 0.9), grid[1:]))
    with pytest.warns(
        UserWarning, match="a state of the context but for rounding, so that they are none that was visited"
    ):
        assert float(values(grid[3].astype(np.float32))) == 0
    assert float(values(grid[5].astype(np.float32))) > 1  # 0.5 is the same in both
