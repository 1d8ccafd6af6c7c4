"""Values of finite processes to the last digit, and arrays that would be changed in silence."""

import copy
from fractions import Fraction

import numpy as np
import pytest

from icrl_envs import FiniteBatch, FiniteProcess, boyan_chain, loop_chain


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
