"""The kernels that the default bank adds: the product Laplace kernel, and the one of relevance."""

import math

import numpy as np
import pytest
import torch

from icrl_agents import constructions
from icrl_agents.adaptive import RelevanceTD
from icrl_agents.adaptive.bank import relevant_scales
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import WeightedSoftmaxTD
from icrl_agents.kernels import Laplace, ProductLaplace
from icrl_agents.transformer import InContextTransformer
from tests import oracles

RNG = np.random.default_rng(3)
EPISODES = [Episode(RNG.normal(size=(n + 1, 3)), RNG.normal(size=n)) for n in (8, 5, 6)]
CONTEXT = Context.from_episodes(EPISODES, 0.8)
QUERIES = torch.as_tensor(RNG.normal(size=(4, 3)))
SCALES = [0.7, [0.5, 1.0, 2.0]]


def product_score(scales):
    each = scales if isinstance(scales, list) else [scales] * 3
    return lambda x, y: -sum(abs(a - b) / s for a, b, s in zip(x, y, each, strict=True))


@pytest.mark.parametrize("scales", SCALES, ids=str)
def test_the_product_laplace_kernel_is_that_of_the_loop(scales):
    kernel, score = ProductLaplace(torch.tensor(scales, dtype=torch.float64)), product_score(scales)
    expected = [[math.exp(score(x, y)) for y in CONTEXT.states.tolist()] for x in QUERIES.tolist()]
    np.testing.assert_allclose(kernel(QUERIES, CONTEXT.states), expected, rtol=1e-13)
    torch.testing.assert_close(kernel.score(QUERIES, CONTEXT.states).exp(), kernel(QUERIES, CONTEXT.states))


@pytest.mark.parametrize("scales", SCALES, ids=str)
def test_layers_and_sweeps_with_it_are_those_of_the_loop(scales):
    kernel = ProductLaplace(torch.tensor(scales, dtype=torch.float64))
    names = ("states", "rewards", "discounts", "next_states", "contiguous")
    rows = list(zip(*(getattr(CONTEXT, name).tolist() for name in names), strict=True))
    expected = oracles.softmax_td(rows, product_score(scales), 5, QUERIES.tolist())
    for evaluator in (WeightedSoftmaxTD(kernel, 5), constructions.weighted_softmax_td(kernel, 5)):
        np.testing.assert_allclose(evaluator.fit(CONTEXT).by_depth(QUERIES), expected, atol=1e-12)


def test_it_is_a_product_and_has_a_gradient_and_a_median():
    kernel = ProductLaplace(0.5)
    parts = [kernel(QUERIES[:, [i]], CONTEXT.states[:, [i]]) for i in range(3)]
    torch.testing.assert_close(kernel(QUERIES, CONTEXT.states), parts[0] * parts[1] * parts[2])
    trainable = ProductLaplace(torch.tensor([0.5, 1.0, 2.0])).requires_grad_(True)
    trainable(QUERIES, CONTEXT.states).sum().backward()
    assert trainable.length_scale is not None
    assert trainable.length_scale.grad is not None
    assert (trainable.length_scale.grad > 0).all()
    bound = ProductLaplace("median").bind(CONTEXT.states).length_scale
    assert bound is not None
    assert float(bound) == pytest.approx(oracles.median_distance(CONTEXT.states.tolist()))


def test_it_is_saved_and_read_back_with_a_model(tmp_path):
    model = constructions.weighted_softmax_td(ProductLaplace(torch.tensor([0.5, 1.0, 2.0])), 3)
    model.save_pretrained(tmp_path / "model")
    again = InContextTransformer.from_pretrained(tmp_path / "model")
    assert torch.equal(again.fit(CONTEXT)(QUERIES), model.fit(CONTEXT)(QUERIES))


def test_relevance_is_that_of_a_ridge_regression_of_the_returns():
    x, returns = CONTEXT.states.numpy(), []
    for episode in EPISODES:
        following, backwards = 0.0, []
        for reward in episode.rewards[::-1]:
            following = reward + 0.8 * following
            backwards.append(following)
        returns += backwards[::-1]
    deviation = x.std(0, ddof=1)
    z = (x - x.mean(0)) / deviation
    g = np.array(returns) - np.mean(returns)
    coefficients = np.abs(np.linalg.lstsq(z.T @ z / len(z) + 0.01 * np.eye(3), z.T @ g / len(z), rcond=None)[0])
    rho = coefficients / math.sqrt(np.mean(coefficients**2))
    expected = math.sqrt(3) * deviation / (rho + 0.1)
    np.testing.assert_allclose(relevant_scales(CONTEXT), expected, rtol=1e-10)
    direct = WeightedSoftmaxTD(Laplace(torch.as_tensor(0.4 * expected)), 6).fit(CONTEXT)
    torch.testing.assert_close(RelevanceTD(0.4, 6).fit(CONTEXT)(QUERIES), direct(QUERIES))


def test_dimensions_that_matter_are_the_long_ones_and_constant_ones_do_no_harm():
    x = RNG.normal(size=(200, 3))
    x[:, 2] = 5.0
    context = Context(x, 3 * x[:, 0], np.zeros(200), x)
    scales = relevant_scales(context)
    assert scales[0] < 0.1 * scales[1]
    assert float(scales[2]) == pytest.approx(math.sqrt(3) / 0.1)
    silent = relevant_scales(Context(x, np.zeros(200), np.zeros(200), x))
    assert torch.isfinite(silent).all()
    one = Context(x[:1], [1.0], [0.0], x[:1])
    assert float(RelevanceTD(0.3, 2).fit(one)(x[0])) == pytest.approx(1.0)


@pytest.mark.parametrize(("scale", "sweeps"), [(0.0, 2), (math.nan, 2), (1.0, -1)])
def test_wrong_settings_are_refused(scale, sweeps):
    with pytest.raises(ValueError, match=r"expected|must be"):
        RelevanceTD(scale, sweeps)
