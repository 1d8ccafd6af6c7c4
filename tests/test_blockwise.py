"""Kernel matrices that do not fit: the same values and gradients, block by block."""

import numpy as np
import pytest
import torch

from icrl_agents import blockwise, constructions
from icrl_agents.attention import SoftmaxAttention
from icrl_agents.blockwise import BlockwiseMatrix
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import KernelTD, LinearTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, Exponential, Laplace

RNG = np.random.default_rng(0)


def draw(*lengths):
    return Context.from_episodes([Episode(RNG.normal(size=(n + 1, 2)), RNG.normal(size=n)) for n in lengths], 0.9)


CONTEXT = draw(60, 30)
BATCH = Context.stack([CONTEXT, draw(7)])
QUERIES = torch.as_tensor(RNG.normal(size=(50, 2)))
EVALUATORS = [
    WeightedSoftmaxTD(RBF(0.3), 20),
    WeightedSoftmaxTD(Laplace("median"), 20, 0.5),
    KernelTD(Exponential(4.0), 20, 0.001),
    KernelTD(RBF(0.3), 20),
    LinearTD(20),
    constructions.weighted_softmax_td(RBF(0.3), 20, form="dual_head"),
    constructions.kernel_td(Laplace(0.3), 20),
]


@pytest.fixture
def tiny(monkeypatch):
    """Blocks of a few rows, and no matrix of more than one of them."""

    def shrink():
        monkeypatch.setattr(blockwise, "BLOCK", 4_000)
        monkeypatch.setattr(blockwise, "FEWEST_ROWS", 1)
        monkeypatch.setattr(blockwise, "LARGEST_MATRIX", 4_000)

    return shrink


@pytest.mark.parametrize("context", [CONTEXT, BATCH], ids=["one", "batch"])
@pytest.mark.parametrize("evaluator", EVALUATORS, ids=lambda e: type(e).__name__)
def test_values_are_those_of_the_whole_matrix(evaluator, context, tiny):
    expected = evaluator.fit(context).by_depth(QUERIES)
    tiny()
    torch.testing.assert_close(evaluator.fit(context).by_depth(QUERIES), expected, rtol=1e-12, atol=1e-12)


def test_gradients_are_those_of_the_whole_matrix(tiny):
    def gradients():
        kernel, queries = RBF(0.3).requires_grad_(True), QUERIES.clone().requires_grad_(True)
        rewards = CONTEXT.rewards.clone().requires_grad_(True)
        context = Context(CONTEXT.states, rewards, CONTEXT.discounts, CONTEXT.next_states)
        loss = WeightedSoftmaxTD(kernel, 5).fit(context)(queries).square().sum()
        return torch.autograd.grad(loss, [*kernel.parameters(), queries, rewards])

    expected = gradients()
    tiny()
    for found, right in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-11, atol=1e-11)


def test_no_more_than_a_block_of_rows_is_ever_made(tiny):
    tiny()
    sizes = []

    def kernel(x, y):
        sizes.append(x[..., 0].numel() * y[..., 0].numel() * x.element_size())
        return torch.exp(-torch.cdist(x, y))

    attention = SoftmaxAttention(kernel).bind(CONTEXT.states, CONTEXT.mask)
    assert isinstance(attention.over(CONTEXT.points), BlockwiseMatrix)
    WeightedSoftmaxTD(kernel, 3).fit(CONTEXT)(QUERIES)
    KernelTD(kernel, 3).fit(CONTEXT)(QUERIES)
    assert max(sizes) <= 4_000


def test_empty_products_have_their_shape(tiny):
    tiny()
    value = WeightedSoftmaxTD(RBF(0.3), 3).fit(CONTEXT)
    assert value(QUERIES[:0]).shape == (0,)
    empty = Context(np.zeros((0, 2)), [], [], np.zeros((0, 2)))
    assert not WeightedSoftmaxTD(RBF(0.3), 3).fit(empty)(QUERIES).any()
