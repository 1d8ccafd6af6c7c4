"""Results do not depend on the unit of states, rewards or weights, nor on how many terms a sum has."""

import math

import numpy as np
import pytest
import torch

from icrl_agents import constructions, diagnostics
from icrl_agents.attention import SoftmaxAttention
from icrl_agents.compressed import SharedSweeps, SlidingWindows
from icrl_agents.context import Context
from icrl_agents.distances import median_distance
from icrl_agents.divergence import DivergenceError
from icrl_agents.evaluators import LSTD, KernelTD, LinearTD, TabularTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, DotProduct, Exponential, Identity, Laplace, Linear, ProductLaplace, ReLU

LINE = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)


def loops(unit=1.0, dtype=torch.float64):
    """Three states that each lead to themselves with rewards 1, 2, 3: worth 2, 4, 6 at γ = 1/2."""
    states = unit * LINE.to(dtype)
    return Context(states, torch.arange(1.0, 4.0).to(dtype), torch.full((3,), 0.5).to(dtype), states)


@pytest.mark.parametrize(
    "evaluator",
    [
        TabularTD(200),
        TabularTD(math.inf),
        WeightedSoftmaxTD(Laplace(0.1), 200),
        constructions.weighted_softmax_td(Laplace(0.1), 200),
        LSTD(),
    ],
)
def test_a_million_visits_of_a_state_lose_no_digits_in_single_precision(evaluator):
    n = 1_000_000
    x = torch.ones(n, 1)
    value = evaluator.fit(Context(x, torch.full((n,), 0.1), torch.full((n,), 0.9), x))([1.0])
    assert value.item() == pytest.approx(1.0, rel=2e-5)


def test_routed_means_of_many_visits_lose_no_digits_where_the_states_are_many_too():
    n, D = 100_000, 700  # so many that the routing is not formed
    rng = np.random.default_rng(0)
    path = np.where(rng.random(n + 1) < 0.9, 0, rng.integers(D, size=n + 1))
    states = torch.as_tensor(rng.normal(size=(D, 1)))[path].float()
    context = Context(states[:-1], torch.full((n,), 0.1), torch.full((n,), 0.5), states[1:])
    assert TabularTD(30).fit(context)([float(states[path == 0][0])]).item() == pytest.approx(0.2, rel=1e-6)


def test_sums_over_a_million_keys_lose_no_digits_in_single_precision():
    keys = torch.linspace(0.0, 1.0, 1_000_000)[:, None]
    attention = SoftmaxAttention(Laplace(1e3)).bind(keys, torch.ones(len(keys), dtype=torch.bool))
    found = attention.expand(keys[:2], torch.ones(len(keys), 1))
    torch.testing.assert_close(found, torch.ones(2, 1), rtol=0, atol=2e-6)


@pytest.mark.parametrize("unit", [1.0, 4e153])
def test_weights_whose_sum_overflows_are_normalised(unit):
    context = loops(unit)
    found = WeightedSoftmaxTD(lambda x, y: torch.relu(x @ y.mT), 50).fit(context)(context.states)
    assert torch.allclose(found, WeightedSoftmaxTD(ReLU(), 50).fit(loops())(LINE))


@pytest.mark.parametrize(("unit", "dtype"), [(1e-163, torch.float64), (1e160, torch.float64), (1e-23, torch.float32)])
@pytest.mark.parametrize(
    "evaluator",
    [
        WeightedSoftmaxTD(ReLU(), 9),
        KernelTD(Linear(), 9),
        KernelTD(ReLU(), 9),
        constructions.kernel_td(Linear(), 9),
        constructions.linear_td(1, 9),
    ],
)
def test_states_whose_squares_leave_the_type_are_refused_by_kernels_of_squares(evaluator, unit, dtype):
    with pytest.raises(ValueError, match=r"context: states of size .* have squares outside of torch"):
        evaluator.fit(loops(unit, dtype))(unit * LINE.to(dtype))


@pytest.mark.parametrize("evaluator", [KernelTD(Linear(), 5), KernelTD(ReLU(), 5), LinearTD(5)])
def test_states_whose_squares_leave_the_type_are_refused_beside_others(evaluator):
    with pytest.raises(ValueError, match=r"context: states of size 3e-30 have squares outside of torch.float32"):
        evaluator.fit(Context.stack([loops(1.0, torch.float32), loops(1e-30, torch.float32)]))


@pytest.mark.parametrize("kernel", [RBF, Laplace, ProductLaplace])
@pytest.mark.parametrize("unit", [1e-300, 1e-165, 1e155, 1e200])
def test_a_median_width_has_the_unit_of_the_states(kernel, unit):
    expected = WeightedSoftmaxTD(kernel("median"), 50).fit(loops())(LINE)
    found = WeightedSoftmaxTD(kernel("median"), 50).fit(loops(unit))(unit * LINE)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


RNG = np.random.default_rng(0)
WALK = torch.as_tensor(RNG.normal(size=(21, 3)))
QUERIES, RHO = torch.as_tensor(RNG.normal(size=(6, 3))), torch.full((6,), 1 / 6, dtype=torch.float64)


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1.0, 1e100])
def test_a_value_function_is_similar_to_itself_whatever_the_unit_of_its_rewards(unit):
    context = Context(WALK[:-1], unit * WALK[:-1, 0], torch.full((20,), 0.9).double(), WALK[1:])
    value = WeightedSoftmaxTD(RBF(0.5), 20).fit(context)
    for measure in (diagnostics.sensitivity_similarity, diagnostics.implicit_weight_similarity):
        assert float(measure(value, value, QUERIES, RHO)) == pytest.approx(1.0)
    tails = KernelTD(RBF(0.5), 20).fit(context)
    assert float(diagnostics.sensitivity_similarity(tails, tails, 4 * QUERIES, RHO)) == pytest.approx(1.0)


@pytest.mark.parametrize("scale", [1e-12, 1e-9, 1.0, 1e9])
def test_distances_to_the_construction_are_up_to_a_positive_scale(scale):
    found = constructions.weighted_softmax_td(DotProduct(scale * torch.eye(3)), 3, step_size=scale)
    for measure in (diagnostics.value_distance, diagnostics.value_row_distance, diagnostics.attention_distance):
        assert measure(found).max() < 1e-6


@pytest.mark.parametrize(
    ("n", "unit", "dtype"),
    [(20_000, 2e-3, np.float32), (2_000, 1e-4, np.float32), (2_000, 1e-13, np.float64), (500, 1e-18, np.float64)],
)
def test_lstd_sees_a_feature_that_is_small_beside_another(n, unit, dtype):
    rng, z = np.random.default_rng(0), np.zeros(n + 1)
    for i in range(n):
        z[i + 1] = 0.9 * z[i] + 0.3 * rng.normal()
    x = np.stack([np.ones(n + 1), unit * z], 1).astype(dtype)
    rewards, gamma = z[:-1].astype(dtype), np.full(n, 0.9, dtype)
    scaled = x.astype(float) / [1.0, unit]
    A = scaled[:-1].T @ (scaled[:-1] - gamma[:, None].astype(float) * scaled[1:])
    expected = scaled[:9] @ np.linalg.solve(A, scaled[:-1].T @ rewards.astype(float))
    found = LSTD().fit(Context(x[:-1], rewards, gamma, x[1:]))(x[:9])
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-4 if dtype == np.float32 else 1e-9)


def test_lstd_gives_the_shortest_weights_whatever_the_units_of_features_that_are_not_told_apart():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(41, 2))
    x = np.concatenate([x, x[:, :1] + 0.3 * x[:, 1:], 1e-3 * x[:, :1]], axis=1)  # rank 2 of 4
    value = LSTD().fit(Context(x[:-1], x[:-1, 0], np.full(40, 0.9), x[1:]))
    A = x[:-1].T @ (x[:-1] - 0.9 * x[1:])
    weights = np.linalg.pinv(A, rcond=1e-10) @ (x[:-1].T @ x[:-1, 0])
    np.testing.assert_allclose(value(np.eye(4)).numpy(), weights, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("unit", [1e-60, 1e39, 1e308])
@pytest.mark.parametrize("measure", [diagnostics.msve, diagnostics.centred_msve, diagnostics.relative_msve])
def test_weights_of_an_error_have_no_unit(measure, unit, dtype):
    values, targets, weights = np.array([1.0, 2.0], dtype), np.array([1.0, 4.0], dtype), np.array([0.5, 1.0])
    assert float(measure(values, targets, unit * weights)) == pytest.approx(float(measure(values, targets, weights)))


@pytest.mark.parametrize(
    "kernel",
    [RBF(1.5), Laplace(1.5), ProductLaplace(0.5), DotProduct(torch.eye(1)), Exponential(), Identity(), Linear()],
)
@pytest.mark.parametrize("bad", [torch.tensor([[0], [1]]), torch.tensor([[0.5]]).half(), np.zeros((2, 1))])
def test_kernels_of_anything_but_floating_tensors_are_refused(kernel, bad):
    with pytest.raises(TypeError, match="states: expected tensors of float32 or float64, got"):
        kernel(bad, bad)


@pytest.mark.parametrize("kernel", [RBF(0.5), Laplace(0.5), ProductLaplace("median")])
def test_kernels_of_states_of_different_dimensions_are_refused(kernel):
    for d in ((1, 3), (3, 1)):
        x, y = (torch.zeros(4, each, dtype=torch.float64) for each in d)
        with pytest.raises(ValueError, match="of one dimension d, got"):
            kernel(x, y)


def test_scores_of_a_window_that_underflow_beside_another_states_are_an_error():
    path, ones = torch.tensor([[0, 1, 0, 1, 0]]), torch.ones(1, 3, dtype=torch.float64)
    windows = SlidingWindows.along(torch.eye(3)[None].double(), ones, path, 0.5 * torch.ones(1, 4).double(), 2)
    scores = np.zeros((1, 3, 3))
    assert np.isfinite(SharedSweeps(scores, [1.0, 1.0, -1.0], windows).values(3)).all()
    scores[..., 2] = 900.0
    with pytest.raises(DivergenceError, match="scores: those of all states of a window underflow"):
        SharedSweeps(scores, [1.0, 1.0, -1.0], windows)


@pytest.mark.parametrize(
    ("others", "expected"), [([[1.0, 0.0]], 4.0), ([[1.0, 1.0], [-1e200, 0.0], [1e200, 0.0]], 6.0)]
)
def test_a_median_width_is_that_of_most_states_however_far_another_one_is(others, expected):
    near = [[1e-200 * k, 0.0] for k in range(10)]  # 9 distances of 1, 8 of 2, 7 of 3, 6 of 4, 5 of 5, 4 of 6, …
    found = median_distance(torch.tensor(near + others, dtype=torch.float64))
    assert float(found) == pytest.approx(expected * 1e-200)
