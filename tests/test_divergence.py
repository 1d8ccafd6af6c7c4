"""Iterations that do not converge say so: which sweep or layer, how much, and what to change; others are silent."""

import re
import warnings

import numpy as np
import pytest
import torch

from icrl_agents import constructions
from icrl_agents.attention import SoftmaxAttention
from icrl_agents.context import Context
from icrl_agents.diagnostics import kernel_diagonality, spectral_radius
from icrl_agents.diagnostics.expected_update import expected_update
from icrl_agents.divergence import DivergenceError, DivergenceWarning, value_bound
from icrl_agents.episode import Episode
from icrl_agents.evaluators import (
    AverageRewardTD,
    KernelTD,
    LinearTD,
    ResidualGradient,
    TabularTD,
    TDLambda,
    WeightedSoftmaxTD,
)
from icrl_agents.kernels import RBF, DotProduct, Exponential, Linear
from icrl_agents.layers import TemporalShiftLayer
from icrl_agents.transformer import InContextTransformer

GAMMA = 0.9


def wide_features():
    """Eight states of size 100, where attention goes to the longest ones and not to a state itself."""
    rng = np.random.default_rng(4)
    states = 100.0 * rng.normal(size=(8, 2))
    path = rng.integers(8, size=41)
    return Context.from_episodes([Episode(states[path], rng.normal(size=40))], GAMMA)


def exchange():
    """Two states that follow each other: under a wide kernel neither listens to itself enough."""
    return Context([[0.0], [1.0]] * 10, [1.0, -1.0] * 10, [GAMMA] * 20, [[1.0], [0.0]] * 10)


def caught(fit):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fit()
    return [str(warning.message) for warning in found]


@pytest.mark.parametrize("form", ["sweeps", "temporal_shift", "dual_head"])
def test_features_that_are_not_normalised_warn_and_then_raise(form):
    context, kernel = wide_features(), DotProduct(torch.eye(2))

    def evaluator(depth):
        if form == "sweeps":
            return WeightedSoftmaxTD(kernel, depth)
        return constructions.weighted_softmax_td(kernel, depth, form=form)

    bound, unit = float(value_bound(context)), "sweep" if form == "sweeps" else "layer"
    assert caught(lambda: evaluator(3).fit(context)) == []
    (message,) = caught(lambda: evaluator(60).fit(context))
    assert re.match(
        rf"values reach \S+ in 60 {unit}s, beyond r_max/\(1 − γ\) = {bound:.4g}: .* does not contract", message
    )
    with pytest.raises(
        DivergenceError, match=rf"from {unit} \d+ on: .*spectral radius 1, kernel diagonality 0;"
    ) as error:
        evaluator(3_000).fit(context)
    first = int(re.search(rf"from {unit} (\d+) on", str(error.value)).group(1))
    with pytest.warns(DivergenceWarning, match="take a smaller step_size, a narrower kernel, centred or scaled states"):
        value = evaluator(first - 1).fit(context)
    with pytest.warns(
        DivergenceWarning, match=rf"values of these states reach .*, beyond .* = {bound:.4g}, as no policy"
    ):
        assert float(value(context.states).abs().max()) <= 10 * bound


def test_the_message_has_the_measured_radius_and_diagonality():
    context, kernel = exchange(), RBF(0.5)
    assert float(spectral_radius(context, kernel, 1.3)) < 1
    assert caught(lambda: WeightedSoftmaxTD(kernel, 200, 1.3).fit(context)) == []
    (message,) = caught(lambda: WeightedSoftmaxTD(kernel, 12, 1.5).fit(context))
    radius = float(spectral_radius(context, kernel, 1.5))
    diagonality = float(kernel_diagonality(expected_update(context, kernel).attention).minimum)
    assert radius > 1
    assert f"spectral radius {radius:.6g}, kernel diagonality {diagonality:.3g}; more than (1 + γ)/2 = 0.95" in message


def test_too_large_a_step_is_an_error_with_its_sweep_and_never_nan():
    for depth in (30, 3_000):
        with pytest.raises(DivergenceError, match=r"from sweep \d+ on: .*take a smaller step_size"):
            TabularTD(depth, step_size=2.5).fit(exchange())
    for depth, message in ((60, "TD errors have grown more than 1e\\+06-fold"), (3_000, "values are not finite")):
        with pytest.raises(DivergenceError, match=message + r" from sweep \d+ on"):
            KernelTD(RBF(0.1), depth, 1.0).fit(exchange())
        with pytest.raises(DivergenceError, match=message + r" from layer \d+ on"):
            constructions.kernel_td(RBF(0.1), depth, 1.0).fit(exchange())


def counterexample():
    """One transition from x = 1 to x = 2: linear TD diverges at every step size where 2γ > 1."""
    return Context([[1.0]], [1.0], [GAMMA], [[2.0]])


def test_linear_td_that_diverges_by_its_nature_warns_with_its_radius():
    (message,) = caught(lambda: LinearTD(10).fit(counterexample()))
    assert message.startswith("TD errors have grown 198-fold in 10 sweeps: the iteration does not contract")
    assert "(spectral radius 1.8)" in message
    (message,) = caught(lambda: KernelTD(Linear(), 10).fit(counterexample()))
    assert "(spectral radius 1.8)" in message
    (message,) = caught(lambda: constructions.linear_td(1, 10).fit(counterexample()))
    assert "10 layers" in message
    assert "(spectral radius 1.8)" in message
    with pytest.raises(DivergenceError, match=r"more than 1e\+06-fold from sweep \d+ on: .*radius 1.8"):
        LinearTD(50).fit(counterexample())


@pytest.mark.parametrize("depth", [3, 5, 6])
@pytest.mark.parametrize("step_size", [2.0, 3.0, "auto"])
def test_linear_layers_say_what_the_sweeps_say(depth, step_size):
    torch.manual_seed(0)
    states, rewards = torch.randn(2, 31, 2, dtype=torch.float64), torch.randn(2, 30, dtype=torch.float64)
    context = Context(states[:, :-1], rewards, torch.full_like(rewards, GAMMA), 1.3 * states[:, 1:])
    for sweeps, layers in (
        (LinearTD(depth, step_size), constructions.linear_td(2, depth, step_size)),
        (TDLambda(0.7, depth, step_size), constructions.td_lambda(2, depth, 0.7, step_size)),
        (ResidualGradient(depth, step_size), constructions.residual_gradient(2, depth, step_size)),
    ):
        found, expected = (caught(lambda e=each: e.fit(context)) for each in (layers, sweeps))
        assert [text.replace("layer", "sweep") for text in found] == expected


def test_a_step_at_which_the_average_reward_would_overshoot_is_refused():
    context = Context([[1.0], [-1.0]] * 5, [1.0, 0.5] * 5, [GAMMA] * 10, [[-1.0], [1.0]] * 5)
    assert caught(lambda: AverageRewardTD(40, reward_step_size=0.5).fit(context)) == []
    assert float(AverageRewardTD(800, reward_step_size=1.9).fit(context).average_rewards[-1]) == pytest.approx(0.75)
    for step in (2.0, 3.0):
        with pytest.raises(ValueError, match="reward_step_size: expected a positive number below 2"):
            AverageRewardTD(40, reward_step_size=step)


def test_one_context_of_a_batch_is_enough():
    calm = Context([[0.0], [5.0]], [1.0, 1.0], [0.5, 0.0], [[5.0], [0.0]])
    batch = Context.stack([calm, exchange(), calm])
    assert caught(lambda: WeightedSoftmaxTD(RBF(0.5), 12, 1.3).fit(batch)) == []
    (message,) = caught(lambda: WeightedSoftmaxTD(RBF(0.5), 12, 1.5).fit(Context.stack([exchange(), calm])))
    assert "does not contract" in message


@pytest.mark.parametrize("kernel", [RBF(0.3), RBF("median"), Exponential(0.2)])
def test_ordinary_fits_are_silent(kernel):
    rng = np.random.default_rng(1)
    for features in (np.eye(6), rng.normal(size=(6, 2)), np.linspace(-1, 1, 6)[:, None]):
        path = rng.integers(6, size=201)
        for rewards in (np.ones(200), rng.normal(size=200), (path[1:] == 3).astype(float)):
            context = Context.from_episodes([Episode(features[path], rewards)], GAMMA)
            for depth in (1, 2, 7, 40):
                assert caught(lambda d=depth, c=context: WeightedSoftmaxTD(kernel, d).fit(c)) == []
                assert caught(lambda d=depth, c=context: KernelTD(kernel, d).fit(c)) == []
                assert caught(lambda d=depth, c=context: LinearTD(d).fit(c)) == []


def test_layers_that_were_trained_to_something_else_are_judged_by_their_finiteness_alone():
    layer = TemporalShiftLayer(SoftmaxAttention(RBF(0.5)), (1.0, 1.0, 0.5))
    assert layer.step_size is None
    assert caught(lambda: InContextTransformer([layer], 20).fit(exchange())) == []
    with pytest.raises(DivergenceError, match=r"values are not finite from layer \d+ on"):
        InContextTransformer([layer], 5_000).fit(exchange())
    assert TemporalShiftLayer(SoftmaxAttention(RBF(0.5)), (0.3, 0.3, -0.3)).step_size == pytest.approx(0.3)


def test_the_bound_is_that_of_each_context():
    batch = Context.stack(
        [exchange(), Context([[0.0]], [-3.0], [1.0], [[0.0]]), Context([[0.0]], [-3.0], [0.5], [[0.0]])]
    )
    assert value_bound(batch).tolist() == [pytest.approx(10.0), float("inf"), 6.0]
    assert value_bound(Context(np.zeros((0, 1)), [], [], np.zeros((0, 1)))) == 0


def test_a_context_is_warned_of_in_any_batch():
    def walk(seed):
        rng = np.random.default_rng(seed)
        x = np.cumsum(rng.standard_normal((31, 3)) * rng.choice([0.3, 1, 1.5]), 0) * rng.choice([0.3, 0.6, 1])
        x, rewards = x - x.mean(0), rng.standard_normal(30) + rng.choice([0, 1])
        return Context(x[:-1], rewards, np.full(30, rng.choice([0.9, 0.99])), x[1:])

    evaluator, harmless = WeightedSoftmaxTD(DotProduct(torch.eye(3)), 40), walk(52)  # grows for a while, and decays
    assert caught(lambda: evaluator.fit(harmless)) == []
    for batch in ([walk(0)], [walk(0), harmless], [harmless, harmless, walk(0)]):
        (said,) = caught(lambda batch=batch: evaluator.fit(Context.stack(batch)))
        assert "spectral radius 1.06808" in said


def test_an_error_of_one_context_comes_before_a_warning_of_another():
    def walk(seed):
        rng = np.random.default_rng(seed)
        x = np.cumsum(rng.standard_normal((31, 3)) * rng.choice([0.3, 1, 1.5]), 0) * rng.choice([0.3, 0.6, 1])
        x, rewards = x - x.mean(0), rng.standard_normal(30) * rng.choice([0.01, 1]) + rng.choice([0, 1])
        return Context(x[:-1], rewards, np.full(30, rng.choice([0.5, 0.9, 0.99])), x[1:])

    evaluator = WeightedSoftmaxTD(DotProduct(torch.eye(3)), 40)
    for bad in (6, 13, 67):
        for poor in (0, 2, 4, 10, 15, 18, 22, 31):
            with pytest.raises(DivergenceError, match=r"values leave 10 times|TD errors have grown more than"):
                evaluator.fit(Context.stack([walk(poor), walk(bad)]))


def test_an_average_reward_may_move_before_the_values_do():
    context = Context([[1.0], [2.0]], [2.0, -1.0], [GAMMA] * 2, [[2.0], [1.0]])  # Σ R x = 0, so that w₁ = 0
    for fitted in (AverageRewardTD(60, 0.5, 0.5), constructions.average_reward_td(1, 60, 0.5, 0.5)):
        value = fitted.fit(context)
        assert value([1.0]).item() == pytest.approx(-1.5, abs=1e-3)
        assert value.average_rewards[-1].item() == pytest.approx(0.5, abs=1e-3)


def test_values_of_queries_that_no_policy_has_are_warned_of():
    context = Context([[10.0], [30.0]], [1.0, 0.0], [GAMMA] * 2, [[10.0], [30.0]])  # 10 listens to 30 alone
    for fitted in (WeightedSoftmaxTD, constructions.weighted_softmax_td):
        value = fitted(DotProduct(torch.eye(1)), 40).fit(context)
        with pytest.warns(
            DivergenceWarning, match=r"values of these states reach 40, beyond r_max/\(1 − γ\) = 10, as no"
        ):
            assert float(value([-1.0])) == pytest.approx(40.0)
        assert caught(lambda v=value: v([[10.0], [30.0]])) == caught(lambda v=value: v.at_depth(15)([-1.0])) == []
    batch = Context.stack([context, Context([[1.0]], [9.0], [0.0], [[1.0]])])
    with pytest.warns(DivergenceWarning, match="reach 40, beyond"):
        WeightedSoftmaxTD(DotProduct(torch.eye(1)), 40).fit(batch)([[-1.0]])


def test_td_errors_that_grow_hundredfold_are_told_of_whatever_the_radius_where_values_have_no_bound():
    rng, told = np.random.default_rng(1), 0
    for _ in range(300):
        matrix, states = torch.as_tensor(rng.normal(size=(2, 2))), 1.5 * rng.normal(size=(31, 2))
        context = Context.from_episodes([Episode(states, rng.normal(size=30))], 0.5)
        evaluator, kept = KernelTD(DotProduct(matrix), 20), []
        try:
            warned = caught(lambda: kept.append(evaluator.fit(context)))  # noqa: B023
        except DivergenceError:
            continue
        told += bool(warned)
        v = kept[0].by_depth(states)[:, 19].numpy()
        grown = np.abs(context.rewards.numpy() + 0.5 * v[1:] - v[:-1]).max() / float(context.rewards.abs().max())
        assert warned or grown <= 100.0 + 1e-6
    assert told > 0
