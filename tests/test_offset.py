"""The constant offset of values: its correction from the context, by plain loops and on chains."""

import copy
import math
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agents import Context, collect, kernels
from icrl_agents.constructions import average_reward_td
from icrl_agents.diagnostics import neu, td_loss
from icrl_agents.divergence import DivergenceWarning
from icrl_agents.evaluators import LSTD, AverageRewardTD, KernelTD, OffsetCorrected, TabularTD, WeightedSoftmaxTD
from icrl_envs import boyan_chain

GAMMA = 0.8


@pytest.fixture(scope="module")
def context():
    chain = gym.make("icrl_envs:icrl/BoyanChain-v0", num_states=5, gamma=GAMMA, task_seed=1)
    return collect(chain, num_steps=60, gamma=GAMMA, seed=0)


@pytest.mark.parametrize(
    "evaluator", [WeightedSoftmaxTD(kernels.RBF(0.8), 6), KernelTD(kernels.Laplace(0.5), 6), TabularTD(6), LSTD(0.1)]
)
def test_the_correction_is_the_equation_at_every_depth(context, evaluator):
    values = evaluator.fit(context)
    corrected = OffsetCorrected(evaluator).fit(context)
    states = torch.eye(5, dtype=torch.float64)
    assert corrected.max_depth == values.max_depth
    for depth in range(values.max_depth + 1):
        errors = []
        for x, r, y in zip(context.states, context.rewards, context.next_states, strict=True):
            v = values.at_depth(depth)
            errors.append(float(r) + GAMMA * float(v(y)) - float(v(x)))
        constant = sum(errors) / len(errors) / (1 - GAMMA)
        expected = values.at_depth(depth)(states) + constant
        torch.testing.assert_close(corrected.at_depth(depth)(states), expected)
    assert float(corrected.td_errors(context).mean()) == pytest.approx(0.0, abs=1e-12)


def test_a_softmax_sweep_leaves_gamma_of_a_constant_and_the_correction_none_of_it():
    states = torch.linspace(0, 1, 9, dtype=torch.float64)[:, None]
    context = Context(states, [2.0] * 9, [GAMMA] * 9, states.roll(1, 0))
    values = WeightedSoftmaxTD(kernels.RBF(0.3), 12).fit(context)
    corrected = values.offset_corrected()
    for depth in range(13):
        left = 2.0 / (1 - GAMMA) * GAMMA**depth
        assert values.at_depth(depth)(states).tolist() == pytest.approx([2.0 / (1 - GAMMA) - left] * 9)
        assert corrected.at_depth(depth)(states).tolist() == pytest.approx([2.0 / (1 - GAMMA)] * 9)


def test_each_context_of_a_batch_has_its_own_correction_and_padding_counts_for_nothing(context):
    short = Context(context.states[:7], context.rewards[:7], context.discounts[:7], context.next_states[:7])
    evaluator = OffsetCorrected(KernelTD(kernels.Laplace(0.5), 3))
    batch = evaluator.fit(Context.stack([context, short]))
    states = torch.eye(5, dtype=torch.float64)
    for i, each in enumerate((context, short)):
        torch.testing.assert_close(batch(states.expand(2, 5, 5))[i], evaluator.fit(each)(states))


def test_terminal_transitions_weigh_in_by_what_a_constant_changes_of_them():
    context = Context([[0.0], [1.0]], [1.0, 3.0], [GAMMA, 0.0], [[1.0], [1.0]])
    corrected = TabularTD(0).fit(context).offset_corrected()
    assert float(corrected([0.0])) == pytest.approx((1.0 + 3.0) / (0.2 + 1.0))
    assert float(corrected.td_errors(context).sum()) == pytest.approx(0.0, abs=1e-12)


def test_differences_effective_sample_sizes_and_depths_stay(context):
    values = WeightedSoftmaxTD(kernels.RBF(0.8), 4).fit(context)
    corrected, states = values.at_depth(2).offset_corrected(), torch.eye(5, dtype=torch.float64)
    assert corrected.depth == 2
    torch.testing.assert_close(
        corrected(states) - corrected(states)[0], values.at_depth(2)(states) - values.at_depth(2)(states)[0]
    )
    torch.testing.assert_close(corrected.effective_sample_size(states), values.effective_sample_size(states))
    again = corrected.offset_corrected()
    torch.testing.assert_close(again(states), corrected(states))


def test_what_has_no_offset_is_refused(context):
    endless = Context(context.states, context.rewards, torch.ones(60), context.next_states)
    with pytest.raises(ValueError, match="expected a transition with γ < 1 in every context"):
        TabularTD(2).fit(endless).offset_corrected()
    with pytest.raises(ValueError, match="offset_corrected: expected a discounted evaluator, got differential values"):
        AverageRewardTD(2).fit(context).offset_corrected()
    with pytest.raises(ValueError, match="td_errors: expected a discounted evaluator, got differential values"):
        AverageRewardTD(2).fit(context).td_errors(context)
    with pytest.raises(ValueError, match="value_function: expected a discounted evaluator, got differential values"):
        td_loss(AverageRewardTD(2).fit(context), context)
    with pytest.raises(ValueError, match="transformer: expected discounted values, got differential ones"):
        neu(
            average_reward_td(3, 2),
            boyan_chain(num_states=3, gamma=0.5),
            context_length=20,
            num_contexts=4,
            rng=np.random.default_rng(0),
        )
    with pytest.raises(TypeError, match=r"evaluator: expected an object with fit\(context\), got 3.14"):
        OffsetCorrected(math.pi)  # type: ignore[arg-type]


@pytest.mark.parametrize("evaluator", [WeightedSoftmaxTD(kernels.RBF(0.8), 4), LSTD()])
def test_a_correction_is_that_of_the_context_at_the_fit(context, evaluator):
    context = copy.deepcopy(context)
    values, states = evaluator.fit(context), torch.eye(5, dtype=torch.float64)
    expected, found = values.offset_corrected()(states), values(states)
    context.rewards.mul_(3).add_(5)
    context.discounts.mul_(0.5)
    context.mask = context.mask & (context.rewards > 6)
    assert torch.equal(values.offset_corrected()(states), expected)
    with warnings.catch_warnings(action="error", category=DivergenceWarning):
        assert torch.equal(values(states), found)
    context.points.mul_(2)
    assert torch.equal(values(states), found)
    with pytest.raises(ValueError, match="context: states changed after it was made"):
        values.offset_corrected()


def test_a_correction_passes_gradients_to_the_rewards(context):
    rewards = context.rewards.clone().requires_grad_()
    fitted = TabularTD(3).fit(Context(context.states, rewards, context.discounts, context.next_states))
    gradient = torch.autograd.grad(fitted.offset_corrected()(context.states[:3]).sum(), rewards)[0]
    assert float(gradient.sum()) == pytest.approx(3 / (1 - GAMMA))  # of a constant more in each reward
