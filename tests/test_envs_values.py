"""Values of finite processes to the last digit, and arrays that would be changed in silence."""

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest

from icrl_envs import FiniteBatch, FiniteProcess, RKHSProcess, boyan_chain, loop_chain
from icrl_envs.batches import RKHSBatch
from icrl_envs.elimination import eliminated_stationary


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
        ([np.ma.masked_array([1.0, 2.0], mask=[True, False])], TypeError, "the mask of a masked array would be lost"),
        (np.ma.masked_array([1.0, 2.0], mask=[True, False]), TypeError, "the mask of a masked array would be lost"),
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
    for ask in (batch.stationary_distributions, batch.differential_values):
        with pytest.raises(ValueError, match=r"one closed class of states .* This is process 1 of 2"):
            ask()
    with pytest.raises(ValueError, match="one closed class"):
        apart.stationary_distribution()
    for values in (batch.values()[1], apart.values()):  # each class has its own
        np.testing.assert_allclose(values, exact_values(apart), rtol=1e-12)


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


def test_a_batch_is_one_fixed_thing_and_its_copies_too():
    P, r = np.full((2, 2, 2), 0.5), np.array([[1.0, 2.0], [3.0, 4.0]])
    batch = FiniteBatch(P, r, np.array([np.eye(2), 2 * np.eye(2)]), np.full((2, 2), 0.5), 0.5)
    expected = batch.values()
    shared = FiniteBatch(np.broadcast_to(P[0], P.shape), r, batch.features, batch.start, 0.5)  # a read-only view
    P[:], r[:] = np.eye(2), 0.0
    np.testing.assert_array_equal(shared.values(), expected)
    for each in (batch, copy.deepcopy(batch), pickle.loads(pickle.dumps(batch)), batch.repeat(1)):
        np.testing.assert_array_equal(each.values(), expected)
        for array in (each.transition_matrix, each.rewards, each.features, each.start):
            with pytest.raises(ValueError, match="read-only"):
                array[:] = 0.0


@pytest.mark.parametrize("states", [[2, 0], [0, 2], [-1, 0], [0], 0, [[0, 0]]])
def test_a_state_that_a_process_does_not_have_is_not_taken_from_the_next_one(states):
    batch = FiniteBatch.stack([boyan_chain(num_states=2), boyan_chain(num_states=2, task_seed=1)])
    for call in (batch.observe, lambda states: batch.sample_step(states, np.random.default_rng(0))):
        with pytest.raises(IndexError, match=r"states must be 2 integers in \[0, 1\], one of each process; got"):
            call(np.array(states))


def test_differential_values_that_overflow_are_an_error():
    arrays = {"transition_matrix": [[[0.9, 0.1], [0.1, 0.9]]], "features": [np.eye(2)], "start": [[1, 0]]}
    assert FiniteBatch(**arrays, rewards=[[1e300, -1e300]], gamma=0.5).differential_values()[0] == pytest.approx(
        [5e300, -5e300]
    )
    with pytest.raises(ValueError, match="rewards must have values that float64 holds; some overflow"):
        FiniteBatch(**arrays, rewards=[[1e308, -1e308]], gamma=0.5).differential_values()


@pytest.mark.parametrize("seed", range(20))
def test_states_that_are_not_visited_in_the_long_run_have_probability_0(seed):
    P = np.random.default_rng(seed).dirichlet(np.ones(6), size=6)
    P[0], P[1] = [0.5, 0.5, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]
    process = FiniteProcess(P, np.arange(6.0), np.eye(6), 0.9, np.full(6, 1 / 6))
    for mu in (process.stationary_distribution(), FiniteBatch.stack([process]).stationary_distributions()[0]):
        np.testing.assert_allclose(mu, [2 / 3, 1 / 3, 0, 0, 0, 0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("seed", range(100))
def test_a_state_that_is_left_slowly_has_probability_0_too(seed):
    rng = np.random.default_rng(seed)
    rate, order = 10 ** rng.uniform(-5.5, -4), rng.permutation(5)
    P = (1 - rate) * np.eye(5) + rate * rng.dirichlet(np.ones(5), 5)
    P[:4, 4], P[:4, :4] = 0.0, P[:4, :4] / P[:4, :4].sum(1, keepdims=True)
    process = FiniteProcess(P[order][:, order], np.zeros(5), np.eye(5), 0.9, np.full(5, 0.2))
    for mu in (process.stationary_distribution(), FiniteBatch.stack([process]).stationary_distributions()[0]):
        assert (mu == 0).tolist() == (order == 4).tolist()


@pytest.mark.parametrize("rate", [1e-3, 1e-7, 1e-10, 1e-13])
@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_chains_that_hardly_ever_leave_a_group_of_states_keep_all_digits(rate, first):
    P = np.array([[1 - rate, rate, 0, 0], [0, 0.5, 0.5, 0], [2 * rate, 0.5, 0.5 - 2 * rate, 0], [0.2, 0.3, 0.4, 0.1]])
    order = np.roll(np.arange(4), first)
    r, inverse = np.array([3.0, -1.0, 0.5, 1.0]), np.argsort(order)
    process = FiniteProcess(P[order][:, order], r[order], np.eye(4), 0.9, np.eye(4)[0])
    batch = FiniteBatch.stack([loop_chain(num_states=4), process])
    for mu in (process.stationary_distribution(), batch.stationary_distributions()[1]):
        expected = np.array([2, 1 + 4 * rate, 1, 0]) / (4 + 4 * rate)  # by hand: flows balance at each state
        np.testing.assert_allclose(mu[inverse], expected, rtol=1e-11, atol=0)
    mean, h = r @ expected, batch.differential_values()[1][inverse]
    assert h @ expected == pytest.approx(0.0, abs=1e-12 * np.abs(h).max())
    assert rate * (h[1] - h[0]) == pytest.approx(mean - r[0], rel=1e-9)
    assert 0.5 * (h[2] - h[1]) == pytest.approx(mean - r[1], rel=1e-9, abs=1e-12 * np.abs(h).max())
    near = FiniteProcess(P, r, np.eye(4), 1 - 1e-9, np.eye(4)[0])
    np.testing.assert_allclose(near.values(), exact_values(near), rtol=1e-12)


def test_numpy_may_be_asked_to_raise_where_probabilities_vanish():
    P = np.array([[1 - 1e-170, 1e-170, 0.0], [1e-200, 1 - 1e-200, 0.0], [0.5, 0.5, 0.0]])
    process = FiniteProcess(P, [1.0, 1e-200, 1e-300], np.eye(3), 1 - 1e-9, [1 - 1e-300, 1e-300, 0.0])
    expected = process.values(), eliminated_stationary(P[None])
    with np.errstate(all="raise"):
        assert np.array_equal(process.values(), expected[0])
        assert np.array_equal(eliminated_stationary(P[None]), expected[1])
