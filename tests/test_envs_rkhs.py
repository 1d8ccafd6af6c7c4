"""Closed forms of the RKHS process against sampling and plain-Python loops."""

import copy
import math
import pickle

import numpy as np
import pytest

from icrl_envs import RKHSProcess
from icrl_envs.batches import RKHSBatch

CASES = {
    "rbf": RKHSProcess(task_seed=1),
    "rbf in 3 dimensions": RKHSProcess(dim=3, length_scale=1.0, num_centers=6, task_seed=2, drift=-0.5, noise=0.7),
    "exponential": RKHSProcess(kernel="exponential", length_scale=2.0, task_seed=3),
    "exponential in 2 dimensions": RKHSProcess(dim=2, kernel="exponential", length_scale=3.0, task_seed=4),
}
processes = pytest.mark.parametrize("process", CASES.values(), ids=CASES)


def value_by_loops(process, state):
    total = 0.0
    for center, coefficient in zip(process.centers.tolist(), process.coefficients.tolist(), strict=True):
        if process.kernel == "rbf":
            distance = sum((s - z) ** 2 for s, z in zip(state, center, strict=True))
            total += coefficient * math.exp(-distance / (2 * process.length_scale**2))
        else:
            total += coefficient * math.exp(
                sum(s * z for s, z in zip(state, center, strict=True)) / process.length_scale
            )
    return total


def assert_mean(samples, expected):
    """The mean over the last axis agrees within five of its standard errors."""
    error = samples.std(axis=-1) / math.sqrt(samples.shape[-1])
    assert (np.abs(samples.mean(axis=-1) - expected) <= 5 * error).all()


@processes
def test_values_equal_the_plain_sum(process):
    states = np.random.default_rng(0).normal(size=(5, process.dim))
    expected = [value_by_loops(process, state) for state in states.tolist()]
    np.testing.assert_allclose(process.values(states), expected, rtol=1e-12)


@processes
def test_expected_values_and_rewards_agree_with_sampling(process):
    rng = np.random.default_rng(0)
    states = rng.normal(0.0, process.stationary_scale, (4, process.dim))
    noise = rng.normal(size=(200_000, process.dim))
    sampled = np.stack([process.values(process.drift * s + process.noise * noise) for s in states])
    assert_mean(sampled, process.expected_values(states))
    assert_mean(process.values(states)[:, None] - process.gamma * sampled, process.rewards(states))


@processes
def test_values_are_the_expected_discounted_rewards(process):
    rng = np.random.default_rng(0)
    start = rng.normal(0.0, process.stationary_scale, process.dim)
    states, returns = np.tile(start, (4000, 1)), np.zeros(4000)
    for t in range(200):
        returns += process.gamma**t * process.rewards(states)
        states = process.drift * states + process.noise * rng.normal(size=states.shape)
    assert_mean(returns, process.values(start[None])[0])


@processes
def test_the_value_has_unit_mean_square_under_the_stationary_law(process):
    states = np.random.default_rng(0).normal(0.0, process.stationary_scale, (200_000, process.dim))
    assert_mean(process.values(states) ** 2, 1.0)


@processes
def test_steps_follow_the_stated_law(process):
    rng = np.random.default_rng(0)
    starts = np.stack([process.sample_start(rng) for _ in range(4000)], axis=-1)
    assert_mean(starts, 0.0)
    assert_mean(starts**2, process.noise**2 / (1 - process.drift**2))
    state = starts[:, 0]
    steps = [process.sample_step(state, rng) for _ in range(4000)]
    noise = np.stack([next_state - process.drift * state for next_state, _, _ in steps], axis=-1)
    assert_mean(noise, 0.0)
    assert_mean(noise**2, process.noise**2)
    assert {reward for _, reward, _ in steps} == {process.rewards(state[None])[0]}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda process: pickle.loads(pickle.dumps(process))])
def test_copies_are_equal_and_read_only(copied):
    process = CASES["rbf"]
    again = copied(process)
    assert again == process
    np.testing.assert_array_equal(again.coefficients, process.coefficients)
    with pytest.raises(ValueError, match="read-only"):
        again.centers[0] = 0.0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dim": 0}, ValueError, "dim must be an integer ≥ 1"),
        ({"kernel": "rfb"}, ValueError, r"kernel must be one of 'rbf', 'exponential'; got 'rfb'. Did you mean 'rbf'\?"),
        ({"length_scale": 0.0}, ValueError, r"length_scale must be a finite number in \(0, inf\)"),
        ({"num_centers": 0}, ValueError, "num_centers"),
        ({"dim": 10**12}, ValueError, "dim and num_centers must have .* got dim=1,000,000,000,000 and num_centers=10"),
        ({"num_centers": 10**6}, ValueError, "dim and num_centers must have"),
        ({"gamma": 1}, ValueError, "gamma"),
        ({"drift": 1.0}, ValueError, r"drift must be a finite number in \(-1, 1\)"),
        ({"noise": 0.0}, ValueError, "noise"),
        ({"task_seed": None}, TypeError, "task_seed"),
        ({"kernel": "exponential", "length_scale": 1e-3}, ValueError, "overflow .* use a larger length_scale"),
        ({"kernel": "exponential", "length_scale": 0.05}, ValueError, "overflow .* use a larger length_scale"),
        ({"length_scale": 1e-160}, ValueError, "vanish .* use a larger length_scale"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        RKHSProcess(**arguments)


@pytest.mark.parametrize(
    ("states", "error", "message"),
    [
        ([[math.nan]], ValueError, "states must be finite; got nan among its entries"),
        ([[0.0], [math.inf]], ValueError, "states must be finite; got inf"),
        ([["0.1"]], TypeError, "states must be an array of real numbers .* got an array of <U3"),
        ([[1j]], TypeError, "got an array of complex128"),
        (np.ma.masked_array([[1.0]], [[True]]), TypeError, "the mask of a masked array would be lost"),
        ([[1e6]], ValueError, "states must have values that float64 holds; some overflow so far from the origin"),
    ],
)
def test_states_without_a_value_are_refused(states, error, message):
    process = RKHSProcess(kernel="exponential", length_scale=2.0)
    for call in (process.values, process.expected_values, process.rewards):
        with pytest.raises(error, match=message):
            call(states)


def test_far_out_an_rbf_is_0_and_no_states_have_no_values():
    process = RKHSProcess(dim=2)
    assert process.rewards([[1e200, 0.0], [0.0, -(2**40)]]).tolist() == [0.0, 0.0]
    assert process.values(np.zeros((0, 2))).shape == (0,)


def test_states_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"states must be an array with 2 axes; got shape \(3,\)"):
        CASES["rbf"].values(np.zeros(3))


def test_numpy_may_be_asked_to_raise_where_numbers_vanish():
    process, rng = RKHSProcess(dim=2, length_scale=0.05), np.random.default_rng(0)
    far = np.linspace(0.0, 3.0, 400)[:, None] * np.ones(2)  # from 1 through subnormal numbers to 0
    expected = process.values(far), process.rewards(far)
    with np.errstate(all="raise"):
        assert np.array_equal(process.values(far), expected[0])
        assert np.array_equal(process.rewards(far), expected[1])
        rewards = [process.sample_step(state, rng)[1] for state in far]
        batch = RKHSBatch([RKHSProcess(dim=2, length_scale=0.05)] * len(far)).sample_step(far, rng)[1]
    np.testing.assert_allclose(rewards, expected[1])
    np.testing.assert_allclose(batch, expected[1])
