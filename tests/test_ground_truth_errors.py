"""Errors against ground truth: unbiased, and with the standard error that they really have."""

import math

import numpy as np
import pytest

from icrl_agents.ground_truth import GroundTruth, horizon, true_centred_msve, true_msve


def test_errors_are_free_of_the_noise_of_the_truth_and_know_how_well():
    rng = np.random.default_rng(3)
    values, spread = 3.0 * rng.standard_normal(30), rng.uniform(0.5, 3.0, 30)
    guess = values + 0.7 + 0.5 * rng.standard_normal(30)
    plain, centred = [], []
    for _ in range(1500):
        returns = values[:, None] + spread[:, None] * rng.standard_normal((30, 9))
        truth = GroundTruth(values[:, None], returns, 0.9, 10)
        plain.append(true_msve(guess, truth))
        centred.append(true_centred_msve(guess, truth))
    for measured, exact in ((plain, np.square(guess - values).mean()), (centred, np.var(guess - values))):
        errors = np.array([each.error for each in measured])
        assert errors.mean() == pytest.approx(exact, abs=4 * errors.std() / math.sqrt(1500))
        known = np.sqrt(np.mean([each.standard_error**2 for each in measured]))
        assert known == pytest.approx(errors.std(), rel=0.07)
    noiseless = GroundTruth(values[:, None], np.repeat(values[:, None], 2, 1), 0.9, 10)
    assert true_msve(values + 1, noiseless) == (pytest.approx(1.0), 0.0)
    assert true_centred_msve(values + 1, noiseless) == (pytest.approx(0.0, abs=1e-12), 0.0)
    with pytest.raises(ValueError, match="values: expected one for each of 30 states"):
        true_msve(guess[:3], noiseless)


@pytest.mark.parametrize("measure", [true_msve, true_centred_msve])
def test_errors_of_few_noisy_states_are_never_known_exactly_however_near_the_values(measure):
    rng = np.random.default_rng(3)
    values = rng.normal(size=6)
    found = [measure(values, GroundTruth(values[:, None], values[:, None] + 0.3 * e, 0.9, 10)) for e in drawn(rng)]
    errors = np.array([each.error for each in found])
    covered = np.abs(errors) <= 2 * np.array([each.standard_error for each in found])
    assert min(each.standard_error for each in found) > 0.1 * errors.std()
    assert covered.mean() > 0.85  # of four continuations


def drawn(rng):
    return rng.normal(size=(2_000, 6, 4))


@pytest.mark.parametrize("measure", [true_msve, true_centred_msve])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_value_that_is_no_number_is_refused(measure, wrong):
    with pytest.raises(ValueError, match=f"values: expected finite numbers, got {wrong}"):
        measure([1.0, wrong], GroundTruth(np.zeros((2, 1)), np.ones((2, 3)), 0.9, 10))


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        (np.array([[1.0, np.nan], [1.0, 1.0]]), "returns: expected numbers with finite squares"),
        (np.array([[1.0, 1e200], [1.0, 1.0]]), "returns: expected numbers with finite squares, .* or larger"),
        (np.ones((2, 1)), r"returns: expected two for each state at least, .* got shapes \(2, 1\) and \(2, 1\)"),
        (np.ones((3, 2)), r"got shapes \(3, 2\) and \(2, 1\)"),
        (np.ones(2), r"got shapes \(2,\)"),
    ],
)
def test_ground_truth_of_other_arrays_is_refused(returns, message):
    with pytest.raises(ValueError, match=message):
        GroundTruth(np.zeros((2, 1)), returns, 0.9, 10)


def test_one_state_shows_no_variance_of_values():
    truth = GroundTruth(np.zeros((1, 2)), np.random.default_rng(0).standard_normal((1, 50)), 0.9, 10)
    assert math.isnan(truth.value_variance)
    assert math.isnan(truth.noise_share)


@pytest.mark.parametrize("unit", [1e-125, 1e150])
def test_shares_do_not_depend_on_the_unit_of_returns_and_smaller_ones_are_refused(unit):
    returns = np.random.default_rng(0).standard_normal((5, 9)) + np.arange(5)[:, None]
    expected, truth = (GroundTruth(np.zeros((5, 1)), scale * returns, 0.9, 10) for scale in (1.0, unit))
    assert truth.noise_share == pytest.approx(expected.noise_share, rel=1e-12)
    np.testing.assert_allclose(truth.standard_errors, unit * expected.standard_errors, rtol=1e-12)
    with pytest.raises(ValueError, match="returns: expected numbers of at least 1e-130, or 0"):
        GroundTruth(np.zeros((5, 1)), 1e-140 * returns, 0.9, 10)


def test_the_horizon_is_the_least_also_where_the_logarithms_are_rounded():
    powers = [(gamma / 100, (gamma / 100) ** k) for gamma in range(1, 100) for k in (1, 2, 3, 5, 10, 17)]
    decades = [(gamma / 100, 10.0**-k) for gamma in range(1, 100) for k in range(1, 13)]
    for gamma, missing in powers + decades:
        steps = horizon(gamma, missing)
        assert gamma**steps <= missing
        assert steps == 1 or gamma ** (steps - 1) > missing


@pytest.mark.parametrize("states", [3, 7, 30])
@pytest.mark.parametrize("value", [0.1, 0.9948, 2.38336])
def test_returns_that_are_all_one_number_have_no_variance_at_all(states, value):
    truth = GroundTruth(np.arange(states)[:, None], np.full((states, 10), value), 0.9, 50)
    assert truth.values.tolist() == [value] * states
    assert (truth.return_variance, truth.value_variance, truth.noise_share) == (0.0, 0.0, 0.0)
