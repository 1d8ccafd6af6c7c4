"""Inputs that make attention or its widths lose their footing: huge, repeated and constant features, narrow types."""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch

import icrl_agents
from icrl_agents import constructions
from icrl_agents.attention import SoftmaxAttention
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import LSTD, KernelTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, DotProduct, Exponential, Laplace

RNG = np.random.default_rng(0)
STATES, REWARDS = RNG.normal(size=(31, 3)), RNG.normal(size=30)
SOURCES = [p for p in Path(icrl_agents.__file__).parents[1].glob("icrl_*/**/*.py") if "tests" not in p.parts]
KERNELS = [RBF(1.0), Laplace(1.0), RBF("median"), Exponential(1.0), DotProduct(torch.eye(3))]


@pytest.mark.parametrize("kernel", KERNELS, ids=range(len(KERNELS)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_near_a_million_give_finite_weights_that_sum_to_one_over_the_context(kernel, dtype):
    keys = torch.as_tensor(1000 * STATES[:30]).to(dtype)
    queries = torch.as_tensor(1000 * STATES[1:] + 300).to(dtype)
    weights = SoftmaxAttention(kernel).bind(keys, torch.ones(30, dtype=torch.bool))(queries)
    assert weights.shape == (30, 30), "one column per key: no query attends to itself or to another query"
    assert bool((weights >= 0).all())
    torch.testing.assert_close(weights.sum(-1), torch.ones(30, dtype=dtype), rtol=1e-5, atol=1e-5)
    context = Context.from_episodes([Episode(1000 * STATES, REWARDS)], 0.5).to(dtype=dtype)
    value = WeightedSoftmaxTD(kernel, 1).fit(context)(queries)
    assert value.dtype == dtype
    assert bool(torch.isfinite(value).all())


def test_half_precision_is_refused_as_a_context():
    context = Context.from_episodes([Episode(STATES, REWARDS)], 0.5)
    for dtype in (torch.bfloat16, torch.float16):
        narrow = torch.as_tensor(STATES).to(dtype)
        with pytest.raises(TypeError, match=f"dtype: expected torch.float32 or torch.float64, got {dtype}"):
            context.to(dtype=dtype)
        with pytest.raises(TypeError, match=f"states: expected float32 or float64, got {dtype}"):
            Context(narrow[:30], REWARDS, np.full(30, 0.5), narrow[1:])


@pytest.mark.parametrize("kernel", [RBF, Laplace])
def test_a_median_width_stays_positive_where_most_states_coincide_and_a_column_is_constant(kernel):
    states = np.concatenate([np.tile(STATES[:1], (29, 1)), STATES[:2]])
    states[:, 1] = 7.0
    context = Context.from_episodes([Episode(states, REWARDS)], 0.9)
    for evaluator in (
        WeightedSoftmaxTD(kernel("median"), 40),
        KernelTD(kernel("median"), 40),
        constructions.weighted_softmax_td(kernel("median"), 40),
    ):
        value = evaluator.fit(context)
        assert bool(torch.isfinite(value(states)).all())
        assert float(value(states[0])) == pytest.approx(float(value(states[5])))


def test_a_constant_column_has_no_part_in_a_difference():
    plain = Context.from_episodes([Episode(STATES, REWARDS)], 0.9)
    with_constant = Context.from_episodes([Episode(np.c_[STATES, np.full(31, 1e3)], REWARDS)], 0.9)
    for evaluator in (WeightedSoftmaxTD(RBF("median"), 20), KernelTD(Laplace(1.0), 20)):
        expected = evaluator.fit(plain)(STATES)
        torch.testing.assert_close(evaluator.fit(with_constant)(np.c_[STATES, np.full(31, 1e3)]), expected)
    assert bool(torch.isfinite(LSTD(1e-6).fit(with_constant)(np.c_[STATES, np.full(31, 1e3)])).all())


def test_nothing_pickled_is_read_anywhere():
    assert len(SOURCES) > 100
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("torch.load", "pickle.load", "pickle.loads", "joblib.load"), path
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert given.get("weights_only", "True") == "True", path
                assert given.get("allow_pickle", "False") == "False", path
                if called == "np.load":
                    assert "allow_pickle" in given, path
