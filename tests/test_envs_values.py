"""Values of finite processes to the last digit, and arrays that would be changed in silence."""

import copy
from fractions import Fraction

import numpy as np
import pytest

from icrl_envs import FiniteBatch, FiniteProcess, RKHSProcess, boyan_chain, loop_chain
from icrl_envs.batches import RKHSBatch


@pytest.mark.parametrize("gamma", [0.9, 1 - 1e-7, 1 - 1e-12, 1 - 2**-53])
@pytest.mark.parametrize("draw", [boyan_chain, loop_chain])
def test_values_keep_their_digits_however_near_1_the_discount_is(gamma, draw):
    process = draw(num_states=5, gamma=gamma)
    expected = exact_values(process)
    np.testing.assert_allclose(process.values(), expected, rtol=1e-13 if gamma > 0.99 else 1e-12)
    np.testing.assert_allclose(FiniteBatch.stack([process, process]).values(), [expected] * 2, rtol=1e-12)


def exact_values(process):
    """(I − γP)⁻¹ r in fractions, by Gauss-Jordan elimination; rows of P over their sums."""
    P = [[Fraction(p) for p in row] for row in process.transition_matrix.tolist()]
    n, gamma = len(P), Fraction(process.gamma)
    rows = [
        [(i == j) - gamma * P[i][j] / sum(P[i]) for j in range(n)] + [Fraction(float(process.rewards[i]))]
        for i in range(n)
    ]
    for i in range(n):
        rows[i] = [number / rows[i][i] for number in rows[i]]
        for j in range(n):
            if j != i:
                rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [float(row[-1]) for row in rows]


def test_rows_that_almost_sum_to_1_are_made_to_and_copies_stay_equal():
    P = np.array([[0.5, 0.5 + 9e-9], [0.2, 0.8]])
    process = FiniteProcess(P, [1, 2], np.eye(2), 1 - 1e-9, [1, 0])
    np.testing.assert_allclose(process.transition_matrix.sum(1), 1.0, rtol=1e-15)
    np.testing.assert_allclose(process.values(), np.full(2, 12 / 7 * 1e9), rtol=1e-7)
    np.testing.assert_array_equal(copy.deepcopy(process).transition_matrix, process.transition_matrix)
    assert not process.transition_matrix.flags.writeable


@pytest.mark.parametrize(
    ("rewards", "error", "message"),
    [
        ([1j, 2], TypeError, "rewards must be an array of real numbers .* got an array of complex128"),
        (["1", "2"], TypeError, "got an array of <U1"),
        (np.ma.masked_array([1.0, 2.0], mask=[True, False]), TypeError, "got a masked array"),
        ([2**53 + 1, 2], ValueError, "rewards must be numbers that float64 holds; got integers beyond"),
    ],
)
def test_what_would_be_changed_in_silence_is_refused(rewards, error, message):
    with pytest.raises(error, match=message):
        FiniteProcess(np.full((2, 2), 0.5), rewards, np.eye(2), 0.9, [1, 0])


def test_values_beyond_the_largest_number_are_an_error():
    process = FiniteProcess(np.full((2, 2), 0.5), [1e308, 1e308], np.eye(2), 0.9, [1, 0])
    with pytest.raises(ValueError, match="rewards must have values that float64 holds; some overflow"):
        process.values()
    apart = FiniteProcess(np.eye(2), [1.0, 2.0], np.eye(2), 1 - 1e-9, [1, 0])
    with pytest.raises(ValueError, match="one closed class"):
        apart.values()


def blocks(*sizes):
    """P of as many closed classes of states."""
    P, at = np.zeros((sum(sizes), sum(sizes))), 0
    for size in sizes:
        P[at : at + size, at : at + size] = np.random.default_rng(size).dirichlet(np.ones(size), size)
        at += size
    return P


@pytest.mark.parametrize("P", [blocks(3, 3), blocks(1, 1), blocks(2, 4), 1e-17 + blocks(3, 3)])
def test_a_batch_has_several_closed_classes_where_its_processes_do(P):
    S = len(P)
    apart = FiniteProcess(P, np.arange(S), np.eye(S), 1 - 1e-9, np.full(S, 1 / S))
    batch = FiniteBatch.stack([loop_chain(num_states=S, gamma=1 - 1e-9), apart])
    for ask in (batch.stationary_distributions, batch.differential_values, batch.values):
        with pytest.raises(ValueError, match=r"one closed class of states .* This is process 1 of 2"):
            ask()
    with pytest.raises(ValueError, match="one closed class"):
        apart.values()


@pytest.mark.parametrize(
    ("processes", "message"),
    [
        ([], "processes must be a list of at least one process; got none"),
        ([boyan_chain(), boyan_chain(gamma=0.5)], r"the same gamma; got 0\.9 at index 0 and 0\.5 at index 1"),
        (
            [boyan_chain(), boyan_chain(num_states=4)],
            r"the same features\.shape; got \(10, 10\) at index 0 and \(4, 4\)",
        ),
        ([RKHSProcess(), RKHSProcess(task_seed=1), RKHSProcess(noise=0.2)], r"the same noise; got 0\.3 .* at index 2"),
        ([RKHSProcess(kernel="exponential", length_scale=2.0), RKHSProcess()], "the same kernel"),
    ],
)
def test_only_processes_of_one_kind_are_a_batch(processes, message):
    batch = RKHSBatch if any(isinstance(process, RKHSProcess) for process in processes) else FiniteBatch.stack
    with pytest.raises(ValueError, match=message):
        batch(processes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transition_matrix": np.ones((1, 2, 2))}, r"each row of transition_matrix .*; row \(0, 0\) has .* sum 2"),
        (
            {"rewards": np.zeros((1, 3))},
            r"rewards must have shape \(1, 2\), by the rows of transition_matrix; got \(1, 3\)",
        ),
        ({"features": np.full((1, 2, 2), np.nan)}, "features must be finite"),
        ({"start": [[0.5, 0.4]]}, "start must be non-negative and sum to 1"),
        ({"gamma": 1.0}, "gamma must be"),
    ],
)
def test_arrays_that_are_no_batch_are_refused(change, message):
    arrays = {"transition_matrix": [np.eye(2)], "rewards": [[1, 2]], "features": [np.eye(2)], "start": [[1, 0]]}
    assert FiniteBatch(**arrays, gamma=0.5).values().tolist() == [[2.0, 4.0]]
    with pytest.raises(TypeError, match="copies must be an integer"):
        FiniteBatch(**arrays, gamma=0.5).repeat(2.0)
    with pytest.raises(ValueError, match=message):
        FiniteBatch(**{**arrays, "gamma": 0.5, **change})


@pytest.mark.parametrize("seed", range(20))
def test_states_that_are_not_visited_in_the_long_run_have_probability_0(seed):
    P = np.random.default_rng(seed).dirichlet(np.ones(6), size=6)
    P[0], P[1] = [0.5, 0.5, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]
    process = FiniteProcess(P, np.arange(6.0), np.eye(6), 0.9, np.full(6, 1 / 6))
    for mu in (process.stationary_distribution(), FiniteBatch.stack([process]).stationary_distributions()[0]):
        np.testing.assert_allclose(mu, [2 / 3, 1 / 3, 0, 0, 0, 0], rtol=1e-12, atol=0)
