"""Kernels of one's own that are no function of two states, or whose parts contradict each other."""

import numpy as np
import pytest
import torch
from torch import nn

from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import KernelTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF


class Bound(nn.Module):
    """Binds itself, as it is."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).double()

    def bind(self, keys, mask):
        return self

    def forward(self, x, y):
        return RBF(0.5)(self.features(x), self.features(y))


def test_what_a_kernel_binds_for_a_context_is_a_function_of_two_states_too():
    kernel, rng = Bound(), np.random.default_rng(0)
    context = Context.from_episodes([Episode(rng.normal(size=(20, 2)), np.ones(19))], 0.9)
    with pytest.raises(ValueError, match="kernel: gives the same states other numbers"):
        WeightedSoftmaxTD(kernel, 5).fit(context)
    WeightedSoftmaxTD(kernel.eval(), 5).fit(context)


class Deep(RBF):
    """Overrides forward alone, and so keeps the score of states as they are."""

    def __init__(self):
        super().__init__(0.5)
        self.features = nn.Linear(2, 2).double()

    def forward(self, x, y):
        return super().forward(self.features(x), self.features(y))


class Whole(Deep):
    """Overrides the score, which forward exponentiates."""

    forward = RBF.forward

    def score(self, x, y):
        return super().score(self.features(x), self.features(y))

    def _expanded(self, x, y, factor=1.0):
        return None


def test_a_kernel_whose_score_is_not_the_logarithm_of_what_it_gives_is_refused():
    torch.manual_seed(0)
    context = Context.from_episodes([Episode(np.random.default_rng(0).normal(size=(9, 2)), np.ones(8))], 0.9)
    for evaluator in (WeightedSoftmaxTD, KernelTD):
        with pytest.raises(ValueError, match="kernel: its score is not the logarithm of what it gives"):
            evaluator(Deep(), 5).fit(context)
    kernel = Whole()
    plain = WeightedSoftmaxTD(lambda x, y: RBF(0.5)(kernel.features(x), kernel.features(y)), 5).fit(context)
    value = WeightedSoftmaxTD(kernel, 5).fit(context)
    expected = plain(context.states)
    torch.testing.assert_close(value(context.states), expected)
    with torch.no_grad():
        kernel.features.weight.mul_(2.0)
    torch.testing.assert_close(value(context.states), expected)


@pytest.mark.parametrize("inference", [False, True])
def test_a_kernel_that_writes_into_the_states_is_refused(inference):
    states = np.arange(5.0)[:, None] - 2.0
    context, rectified = Context(states, np.ones(5), np.full(5, 0.9), states), nn.ReLU(inplace=True)
    before = context.points.clone()
    with torch.inference_mode(inference), pytest.raises(ValueError, match="kernel: writes into the states"):
        KernelTD(lambda x, y: RBF()(rectified(x), rectified(y)), 5).fit(context)
    assert torch.equal(context.points, before)
