"""Value errors and TD losses against plain loops, and what they refuse."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from icrl_agents.context import Context, Episode
from icrl_agents.diagnostics import centred_msve, msve, relative_centred_msve, relative_msve, td_loss
from icrl_agents.evaluators import LSTD, LinearTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF
from tests import oracles

MEASURES = {
    msve: oracles.msve,
    centred_msve: oracles.centred_msve,
    relative_msve: lambda v, t, w: oracles.msve(v, t, w) / oracles.msve([0.0] * len(t), t, w),
    relative_centred_msve: lambda v, t, w: oracles.centred_msve(v, t, w) / oracles.centred_msve([0.0] * len(t), t, w),
}
RNG = np.random.default_rng(0)
M = 6
each_measure = pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.__name__)


def close(found, expected, tolerance=1e-12):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), rtol=tolerance, atol=tolerance)


@each_measure
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("targets_batch", [False, True])
@pytest.mark.parametrize("weighted", ["uniform", "shared", "each its own"])
def test_measures_equal_plain_loops(measure, batch, targets_batch, weighted):
    values = RNG.normal(size=(*batch, M))
    targets = 3.0 + RNG.normal(size=(*batch, M) if targets_batch else M)
    rho = {"uniform": None, "shared": RNG.uniform(size=M), "each its own": RNG.uniform(size=(*batch, M))}[weighted]
    found = measure(torch.as_tensor(values), torch.as_tensor(targets), None if rho is None else torch.as_tensor(rho))
    rows = [np.broadcast_to(np.ones(M) if a is None else a, values.shape) for a in (values, targets, rho)]
    rows = zip(*(a.reshape(-1, M).tolist() for a in rows), strict=True)
    assert found.shape == batch
    close(found.flatten(), [MEASURES[measure](*row) for row in rows])
    close(measure(values, targets, rho), found)  # NumPy arrays


@each_measure
def test_the_scale_of_the_weights_does_not_count_and_what_has_none_is_never_read(measure):
    values, targets = RNG.normal(size=4), RNG.normal(size=4)
    counted = np.array([True, False, True, True])
    expected = measure(values[counted], targets[counted])
    for rho in (counted, counted.astype(int), 7.5 * counted):
        close(measure(values, np.where(counted, targets, np.nan), rho), expected)
    close(measure(np.where(counted, values, np.inf), targets, counted), expected)


def test_what_the_measures_are_for():
    values, targets = RNG.normal(size=M), RNG.normal(size=M)
    close(relative_msve(np.zeros(M), targets), 1.0)
    close(relative_centred_msve(np.full(M, 5.0), targets), 1.0)
    close(centred_msve(targets + 100.0, targets), 0.0)
    close(relative_centred_msve(values + 3.0, targets - 4.0), relative_centred_msve(values, targets))
    close(relative_msve(3 * values, 3 * targets), relative_msve(values, targets))


def test_targets_without_a_scale_have_no_relative_error():
    values = RNG.normal(size=(2, M))
    targets = np.stack([np.zeros(M), np.ones(M)])
    found = relative_msve(values, targets)
    assert math.isnan(found[0])
    close(found[1], np.square(values[1] - 1).mean())
    assert math.isnan(relative_msve(np.zeros(M), np.zeros(M)))
    for constant in (0.0, 0.1, 1e6 / 3):
        for targets in (np.full(M, constant), np.full(1001, constant, dtype=np.float32)):
            assert math.isnan(relative_centred_msve(np.arange(float(len(targets))), targets))
    close(relative_centred_msve(np.zeros(2), [1e6, 1e6 + 1e-6]), 1.0)


def test_floating_types_follow_the_arguments():
    single = torch.ones(M)
    assert msve(single, single, torch.ones(M).double()).dtype == torch.float32
    assert msve(single, single.double()).dtype == torch.float64


@each_measure
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            (np.ones((M, 1)), np.ones(M)),
            ValueError,
            r"targets: expected shape \(6, 1\) or \(1,\) to match .* got \(6,\)",
        ),
        (
            (np.ones(M), np.ones((M, 1))),
            ValueError,
            r"targets: expected shape \(6,\) to match the values, got \(6, 1\)",
        ),
        ((np.ones(M), np.ones(M), np.ones(2)), ValueError, r"weights: expected shape \(6,\) .* got \(2,\)"),
        ((np.ones(M), np.ones(M), np.zeros(M)), ValueError, "weights: expected non-negative numbers that are not all"),
        ((np.ones(2), np.ones(2), [2.0, -1.0]), ValueError, "weights: expected non-negative"),
        ((np.ones(2), np.ones(2), [1.0, np.inf]), ValueError, "weights: expected finite numbers, got inf at index"),
        (([np.nan, 1.0], np.ones(2)), ValueError, r"values: expected finite numbers, got nan at index \(0,\)"),
        (([1.0, -np.inf], np.ones(2)), ValueError, r"values: expected finite numbers, got -inf at index \(1,\)"),
        (([1e308, 1.0], [-1e308, 0.0]), ValueError, "values: expected finite numbers after the targets are taken away"),
        ((np.ones(2), [1.0, np.nan]), ValueError, r"targets: expected finite numbers, got nan at index \(1,\)"),
        ((np.ones(0), np.ones(0)), ValueError, r"values: expected shape \(\*batch, m\) with m ≥ 1, got \(0,\)"),
        ((1.0, 1.0), ValueError, r"values: expected shape \(\*batch, m\)"),
        (("good", np.ones(2)), TypeError, "values: expected"),
    ],
)
def test_mistakes_are_named(measure, arguments, error, message):
    with pytest.raises(error, match=message):
        measure(*arguments)


def draw(*lengths, terminated=False):
    return Context.from_episodes(
        [Episode(RNG.normal(size=(n + 1, 2)), RNG.normal(size=n), terminated) for n in lengths], 0.9
    )


CONTEXT, HELD_OUT = draw(7, 4), draw(3, 5, terminated=True)


@pytest.mark.parametrize(
    "evaluator", [WeightedSoftmaxTD(RBF(0.5), 8), LinearTD(8), LSTD()], ids=lambda e: type(e).__name__
)
def test_td_loss_is_the_mean_of_the_squared_td_errors(evaluator):
    fitted = evaluator.fit(CONTEXT)
    depths = [0, 3, 8] if fitted.max_depth else [0]
    for context in (CONTEXT, HELD_OUT):
        expected = []
        for depth in depths:
            now = fitted.at_depth(depth)(context.states).tolist()
            then = fitted.at_depth(depth)(context.next_states).tolist()
            rows = zip(context.rewards.tolist(), context.discounts.tolist(), then, now, strict=True)
            errors = [reward + gamma * v_next - v for reward, gamma, v_next, v in rows]
            expected.append(sum(error**2 for error in errors) / len(errors))
        close(td_loss(fitted, context, depths), expected)
    assert td_loss(fitted, HELD_OUT).shape == (fitted.max_depth + 1,)


@pytest.mark.parametrize("padding", ["left", "right"])
def test_td_loss_of_a_batch_leaves_the_padding_out(padding):
    pairs = [(draw(7, 4), draw(5)), (draw(3), draw(2, 6, terminated=True))]
    evaluator = WeightedSoftmaxTD(RBF(0.5), 8)
    contexts, held_out = ([*part] for part in zip(*pairs, strict=True))
    together = td_loss(evaluator.fit(Context.stack(contexts)), Context.stack(held_out, padding), [0, 4, 8])
    close(together, torch.stack([td_loss(evaluator.fit(context), other, [0, 4, 8]) for context, other in pairs]))


def test_td_loss_of_an_empty_context_is_zero_and_depths_are_checked():
    fitted = WeightedSoftmaxTD(RBF(0.5), 8).fit(CONTEXT)
    empty = Context(np.zeros((0, 2)), [], [], np.zeros((0, 2)))
    close(td_loss(fitted, empty, [0, 8]), [0.0, 0.0])
    with pytest.raises(ValueError, match=r"depths: expected at least one depth, got none"):
        td_loss(fitted, CONTEXT, [])
    with pytest.raises(ValueError, match=r"depth: expected an integer from 0 to 8, got 9"):
        td_loss(fitted, CONTEXT, [9])


@pytest.mark.parametrize("unit", [1e-322, 1e-200, 1e200])
def test_relative_errors_do_not_depend_on_the_unit(unit):
    values, targets = np.array([2.0, 4.0, 3.0]) * unit, np.array([1.0, 4.0, 7.0]) * unit
    for measure in (relative_msve, relative_centred_msve):
        close(measure(values, targets), MEASURES[measure]([2.0, 4.0, 3.0], [1.0, 4.0, 7.0], [1 / 3] * 3), 1e-1)
    assert float(msve(values, targets)) == (math.inf if unit > 1 else 0.0)
    assert float(centred_msve(np.full(3, 5 * unit), np.full(3, 2 * unit))) == 0.0


def test_depths_are_any_iterable_and_a_single_one_is_named():
    context = Context([[0.0]], [1.0], [0.5], [[0.0]])
    value = WeightedSoftmaxTD(RBF(1.0), 3).fit(context)
    assert torch.equal(td_loss(value, context, (depth for depth in (0, 2))), td_loss(value, context, [0, 2]))
    with pytest.raises(TypeError, match="depths: expected a list of integers, got 2"):
        td_loss(value, context, 2)
    for ask in (partial(td_loss, value, context), partial(value.by_depth, [[0.0]])):
        with pytest.raises(TypeError, match="depths: expected a list of integers"):
            ask({0, 2})
