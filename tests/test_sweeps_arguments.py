import math

import numpy as np
import pytest
import torch

from icrl_agents import constructions, evaluators
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import KernelTD, TabularTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, Exponential, Linear
from icrl_agents.value_function import DivergenceError

STATES = np.array([[0.5, 0.0], [1.0, -0.5], [0.5, 0.5], [0.5, 0.0], [-1.0, 1.0]])
CONTEXT = Context.from_episodes([Episode(STATES, np.array([1.0, -1.0, 0.5, 2.0]))], 0.9)
QUERIES = [[0.3, -0.2], [0.5, 0.5]]


def close(left, right, tolerance=1e-10):
    torch.testing.assert_close(left, torch.as_tensor(right, dtype=left.dtype), rtol=tolerance, atol=tolerance)


def test_divergence_is_an_error_that_names_the_sweep():
    with pytest.raises(DivergenceError, match=r"values are not finite from sweep \d+ on: .* smaller step_size"):
        TabularTD(3_000, step_size=2.5).fit(CONTEXT)


def test_a_limit_has_one_depth_which_is_said():
    for evaluator in (TabularTD(math.inf), evaluators.LSTD(1.0), evaluators.MonteCarlo(), TabularTD(0)):
        value = evaluator.fit(CONTEXT)
        close(value.at_depth(0)(QUERIES), value(QUERIES), 0)
        for depth in (5, math.inf):
            with pytest.raises(
                ValueError, match=r"depth: .* from 0 to 0, got .*; of num_sweeps=math.inf, .* fit with num"
            ):
                value.at_depth(depth)


def test_the_effective_sample_size_counts_the_transitions_a_value_rests_on():
    context = Context(np.eye(3)[[0, 0, 1, 2]], np.ones(4), np.zeros(4), np.eye(3)[[0, 1, 2, 0]])
    states = np.array([[1.0, 0, 0], [0, 1.0, 0], [0.5, 0.5, 0.5]])
    close(TabularTD(1).fit(context).effective_sample_size(states), [2.0, 1.0, 0.0])
    close(WeightedSoftmaxTD(Exponential(), 1).fit(context).effective_sample_size([0.0, 0.0, 0.0]), 4.0)
    wide = WeightedSoftmaxTD(RBF(100.0), 1).fit(context)
    close(wide.effective_sample_size(states), [4.0] * 3, 1e-3)
    close(KernelTD(RBF(1e-3), 1).fit(context).effective_sample_size(states), [2.0, 1.0, 0.0])


def test_numbers_of_numpy_are_accepted():
    context = CONTEXT
    found = WeightedSoftmaxTD(RBF(np.float32(0.5)), np.int64(3), np.float32(0.5)).fit(context)
    close(found(QUERIES), WeightedSoftmaxTD(RBF(0.5), 3, 0.5).fit(context)(QUERIES), 0)
    close(found.at_depth(np.int64(2))(QUERIES), found.by_depth(QUERIES, [np.int64(2)])[:, 0], 0)


@pytest.mark.parametrize(
    "evaluator", [lambda **k: WeightedSoftmaxTD(RBF(), **k), lambda **k: KernelTD(RBF(), **k), TabularTD]
)
def test_a_bad_argument_is_named(evaluator):
    for sweeps in (-1, 1.5, True, "3", None):
        with pytest.raises(ValueError, match=r"num_sweeps: expected an integer ≥ 0, got"):
            evaluator(num_sweeps=sweeps)
    for step_size in (0, -1.0, math.inf, math.nan, True, "fast", None):
        with pytest.raises(ValueError, match=r"step_size: expected a positive number.*, got"):
            evaluator(num_sweeps=1, step_size=step_size)
    found = evaluator(num_sweeps=2).fit(CONTEXT)
    for depth in (3, -1, 1.0, True, "1"):
        with pytest.raises(ValueError, match=r"depth: expected an integer from 0 to 2, got"):
            found.at_depth(depth)
        with pytest.raises(ValueError, match=r"depth: expected an integer from 0 to 2, got"):
            found.by_depth(QUERIES, [depth])
    with pytest.raises(ValueError, match=r"states: expected shape \(\.\.\., m, 2\), got \(3,\)"):
        found([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"states: expected finite numbers, got nan at index"):
        found([math.nan, 0.0])
    with pytest.raises(TypeError, match=r"states: expected float32 or float64, got torch.int64"):
        found(np.array([1, 2]))
    assert found([1, 2]) == found([1.0, 2.0])


def test_softmax_td_takes_no_automatic_step_and_kernels_must_be_kernels():
    with pytest.raises(ValueError, match=r"step_size: expected a positive number, got 'auto'"):
        WeightedSoftmaxTD(RBF(), 3, "auto")
    for evaluator in (WeightedSoftmaxTD, KernelTD):
        with pytest.raises(TypeError, match=r"kernel: expected a kernel such as RBF\(0.5\) or a callable .* got"):
            evaluator(RBF, 3)
    with pytest.raises(ValueError, match=r"kernel: softmax attention needs κ ≥ 0"):
        WeightedSoftmaxTD(Linear(), 3).fit(CONTEXT)


@pytest.mark.parametrize(
    "evaluator",
    [
        WeightedSoftmaxTD(RBF(), 2),
        KernelTD(RBF(), 2),
        TabularTD(2),
        evaluators.LinearTD(2),
        evaluators.TDLambda(0.5, 2),
        evaluators.ResidualGradient(2),
        evaluators.AverageRewardTD(2),
        evaluators.LSTD(),
        evaluators.KernelLSTD(RBF()),
        evaluators.MonteCarlo(),
        constructions.weighted_softmax_td(RBF(), 2),
        constructions.linear_td(2, 2),
    ],
    ids=lambda evaluator: type(evaluator).__name__,
)
def test_what_is_no_context_is_refused(evaluator):
    for wrong in ([CONTEXT], None, CONTEXT.states):
        with pytest.raises(TypeError, match=r"context: expected a Context, got .*; Context.from_episodes"):
            evaluator.fit(wrong)
