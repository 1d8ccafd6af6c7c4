"""Diagnostics of contexts and value functions in single precision."""

import numpy as np
import pytest
import torch

from icrl_agents import diagnostics
from icrl_agents.context import Context
from icrl_agents.diagnostics.expected_update import expected_update
from icrl_agents.episode import Episode
from icrl_agents.evaluators import LSTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF


def test_a_weight_of_a_small_feature_counts_in_single_precision_too():
    rng = np.random.default_rng(0)
    states = (rng.normal(size=(5_001, 2)) * [3e3, 1.0]).astype(np.float32)
    functions = [
        LSTD().fit(
            Context.from_episodes([Episode(states, sign * 10 * states[:-1, 1] + states[:-1, 0] / 1e4)], 0.5).to(
                dtype=torch.float32
            )
        )
        for sign in (1.0, -1.0)
    ]
    asked, weights = torch.as_tensor(states[:-1]), torch.full((5_000,), 1 / 5_000)
    found = diagnostics.implicit_weight_similarity(*functions, asked, weights)
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(-1.0, abs=1e-6)


def test_a_singular_system_is_refused_in_single_precision_too():
    states = np.random.default_rng(0).normal(size=(21, 1))
    context = Context.from_episodes([Episode(states, np.ones(20))], 0.5)
    for each in (context, context.to(dtype=torch.float32)):
        with pytest.raises(ValueError, match="got a singular A M"):
            expected_update(each, RBF(1.0)).limit()


@pytest.mark.parametrize("scale", [0.05, 1.0])
def test_a_weight_of_a_feature_that_is_small_beside_nanoseconds_counts(scale):
    states = np.random.default_rng(0).normal(size=(1_001, 2)) * [1e12, scale]
    functions = [
        LSTD().fit(Context(states, sign * 10 * states[:, 1] / scale + states[:, 0] / 1e12, np.zeros(1_001), states))
        for sign in (1.0, -1.0)
    ]
    asked, weights = torch.as_tensor(states), torch.full((1_001,), 1 / 1_001, dtype=torch.float64)
    assert float(diagnostics.implicit_weight_similarity(*functions, asked, weights)) == pytest.approx(-1.0, abs=1e-6)


def test_of_several_weights_that_fit_alike_the_shortest_are_compared():
    rng = np.random.default_rng(0)
    states = rng.normal(size=(3, 20, 2)) @ (rng.normal(size=(3, 2, 4)) * [1.0, 10.0, 1e3, 0.0])
    states[2] = rng.normal(size=(20, 4))  # where only one does
    context = Context(states, rng.normal(size=(3, 20)), np.zeros((3, 20)), states)
    functions = [WeightedSoftmaxTD(RBF(scale), 3).fit(context) for scale in (0.5, 5.0)]
    asked = torch.as_tensor(states)
    found = diagnostics.implicit_weight_similarity(*functions, asked, torch.full((3, 20), 0.05, dtype=torch.float64))
    for i in range(3):
        w, u = (np.linalg.pinv(states[i]) @ function(asked)[i].numpy() for function in functions)
        assert float(found[i]) == pytest.approx(w @ u / np.linalg.norm(w) / np.linalg.norm(u), abs=1e-9)


def test_features_that_no_state_has_change_no_weight():
    rng = np.random.default_rng(0)
    states = torch.from_numpy(np.stack([np.eye(20)[rng.permutation(20)[:10]] for _ in range(16)]))
    context = Context(states, rng.normal(size=(16, 10)), np.zeros((16, 10)), states)
    functions = [WeightedSoftmaxTD(RBF(scale), 3).fit(context) for scale in (0.5, 5.0)]
    weights = torch.from_numpy(rng.dirichlet(np.full(10, 0.3), 16))
    found = diagnostics.implicit_weight_similarity(*functions, states, weights)
    torch.testing.assert_close(found, torch.cosine_similarity(*(function(states) for function in functions), dim=-1))


def test_a_value_function_that_is_flat_is_similar_to_none():
    states = torch.eye(3, dtype=torch.float64)
    flat = LSTD(0.1).fit(Context(states, torch.zeros(3), torch.full((3,), 0.5), states.roll(1, 0)))
    weights = torch.full((3,), 1 / 3, dtype=torch.float64)
    for measure in (diagnostics.implicit_weight_similarity, diagnostics.sensitivity_similarity):
        assert float(measure(flat, flat, states, weights)) == 0.0


def test_a_value_function_of_one_context_is_compared_with_those_of_a_batch():
    rng = np.random.default_rng(0)
    states = torch.from_numpy(rng.normal(size=(2, 12, 3)))
    rewards, discounts = rng.normal(size=(2, 12)), np.full((2, 12), 0.5)
    alone = [Context(states[i], rewards[i], discounts[i], states[i].flip(0)) for i in (0, 1)]
    first, single = (WeightedSoftmaxTD(RBF(0.7), 3).fit(context) for context in alone)
    values = WeightedSoftmaxTD(RBF(0.7), 3).fit(Context.stack(alone))
    asked, weights = states[0], torch.full((12,), 1 / 12, dtype=torch.float64)
    for measure in (diagnostics.implicit_weight_similarity, diagnostics.sensitivity_similarity):
        expected = torch.stack([measure(each, single, asked, weights) for each in (first, single)])
        torch.testing.assert_close(measure(values, single, asked, weights), expected)
        torch.testing.assert_close(measure(single, values, asked, weights), expected)
