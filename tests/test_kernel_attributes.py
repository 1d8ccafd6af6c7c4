"""Kernels of one's own whose attributes ``score`` and ``bind`` are something else than what kernels offer by them."""

import numpy as np
import pytest
import torch
from torch import nn

from icrl_agents import constructions
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import KernelTD, Nystrom, WeightedSoftmaxTD
from icrl_agents.kernels import RBF


def random_context():
    rng = np.random.default_rng(0)
    return Context.from_episodes([Episode(rng.normal(size=(10, 2)), rng.normal(size=9))], 0.9)


class Named(nn.Module):
    """A Gaussian kernel with an attribute of some name, which may be a network that it asks."""

    def __init__(self, **attributes):
        super().__init__()
        for name, attribute in attributes.items():
            setattr(self, name, attribute)
        self.asks = attributes.get("score")

    def forward(self, x, y):
        return RBF(0.5)(*map(self.asks, (x, y))) if isinstance(self.asks, nn.Linear) else RBF(0.5)(x, y)


@pytest.mark.parametrize("score", [False, nn.Linear(2, 2).double(), nn.Bilinear(2, 2, 1).double(), torch.cdist])
def test_a_score_that_is_something_else_is_named_where_softmax_asks_it(score):
    kernel, context = Named(score=score), random_context()
    with pytest.raises((TypeError, ValueError), match="kernel: its score is not the logarithm of what it gives"):
        WeightedSoftmaxTD(kernel, 5).fit(context)
    if score is not torch.cdist:
        plain = KernelTD(kernel.forward, 5).fit(context)
        torch.testing.assert_close(KernelTD(kernel, 5).fit(context)(context.states), plain(context.states))
        KernelTD(kernel, 5, approximation=Nystrom(9)).fit(context)


@pytest.mark.parametrize("bind", [False, nn.Linear(2, 2).double(), lambda keys, mask: keys])
def test_a_bind_that_is_something_else_is_named(bind):
    for evaluator in (WeightedSoftmaxTD, KernelTD):
        with pytest.raises(TypeError, match=r"kernel: its bind is no method \(keys, mask\) that returns a kernel"):
            evaluator(Named(bind=bind), 5).fit(random_context())


def test_a_score_or_bind_of_none_is_none():
    context = random_context()
    for evaluator in (WeightedSoftmaxTD, KernelTD):
        value = evaluator(Named(score=None, bind=None), 5).fit(context)
        torch.testing.assert_close(value(context.states), evaluator(RBF(0.5), 5).fit(context)(context.states))
    transformer = constructions.weighted_softmax_td(Named(score=None), 5)
    expected = constructions.weighted_softmax_td(RBF(0.5), 5)(context, context.states)
    torch.testing.assert_close(transformer(context, context.states), expected)


def test_a_length_scale_that_is_a_property_is_refused_by_name():
    class Softplus(RBF):
        length_scale = property(lambda self: torch.tensor(0.5))  # pyright: ignore[reportAssignmentType]

        def __init__(self):
            torch.nn.Module.__init__(self)

    with pytest.raises(TypeError, match=r"length_scale: a property .* torch\.nn\.utils\.parametrize"):
        Softplus().bind(torch.eye(2))
