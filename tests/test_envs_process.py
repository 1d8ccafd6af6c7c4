"""Finite processes against plain-Python loops."""

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl_envs import FiniteBatch, FiniteProcess, boyan_chain, loop_chain

CHAINS = {"boyan": boyan_chain, "loop": loop_chain}
VALID = {
    "transition_matrix": np.array([[0.5, 0.5], [1.0, 0.0]]),
    "rewards": np.array([1.0, 0.0]),
    "features": np.eye(2),
    "gamma": 0.9,
    "start": np.array([1.0, 0.0]),
}


def value_by_iteration(P, r, gamma, sweeps):
    """The fixed point of v = r + γPv by plain loops."""
    v = [0.0] * len(r)
    for _ in range(sweeps):
        v = [r[s] + gamma * sum(P[s][u] * v[u] for u in range(len(r))) for s in range(len(r))]
    return v


def distribution_by_iteration(P, steps):
    """The distribution after many steps, averaged over time, by plain loops."""
    S = len(P)
    mu = [1.0 / S] * S
    total = [0.0] * S
    for step in range(steps):
        mu = [sum(mu[u] * P[u][s] for u in range(S)) for s in range(S)]
        if step >= steps // 2:
            total = [total[s] + mu[s] for s in range(S)]
    return [x / sum(total) for x in total]


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("task_seed", [0, 1])
def test_values_and_stationary_distribution_equal_iteration(chain, task_seed):
    process = chain(num_states=6, task_seed=task_seed)
    P, r = process.transition_matrix.tolist(), process.rewards.tolist()
    np.testing.assert_allclose(process.values(), value_by_iteration(P, r, 0.9, 400), atol=1e-12)
    np.testing.assert_allclose(process.stationary_distribution(), distribution_by_iteration(P, 2000), atol=1e-10)


@settings(deadline=None, max_examples=40)
@given(
    chain=st.sampled_from(list(CHAINS.values())),
    num_states=st.integers(2, 20),
    gamma=st.floats(0.0, 0.999),
    representable=st.booleans(),
    features=st.sampled_from(["one_hot", "random"]),
    task_seed=st.integers(0, 2**40),
)
def test_equations_hold_on_any_chain(chain, num_states, gamma, representable, features, task_seed):
    process = chain(
        num_states=num_states, gamma=gamma, representable=representable, features=features, task_seed=task_seed
    )
    P, v, mu = process.transition_matrix, process.values(), process.stationary_distribution()
    np.testing.assert_allclose(v, process.rewards + gamma * P @ v, atol=1e-10)
    np.testing.assert_allclose(mu @ P, mu, atol=1e-12)
    assert mu.min() > 0
    assert mu.sum() == pytest.approx(1, abs=1e-12)
    assert (process.transition_matrix >= 0).all()
    np.testing.assert_allclose(P.sum(axis=1), 1, atol=1e-12)
    assert process.start.sum() == pytest.approx(1)


def test_values_are_solved_accurately_on_500_states():
    process = loop_chain(num_states=500, gamma=0.999)
    v = process.values()
    assert np.abs(process.rewards + 0.999 * process.transition_matrix @ v - v).max() < 1e-9


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda process: pickle.loads(pickle.dumps(process))])
def test_processes_are_read_only_and_so_are_their_copies(copied):
    source = {name: np.array(value) if name != "gamma" else value for name, value in VALID.items()}
    original = FiniteProcess(**source)
    source["rewards"][0] = 99.0
    assert original.rewards[0] == 1.0
    for process in (original, copied(original)):
        for name in ("transition_matrix", "rewards", "features", "start"):
            np.testing.assert_array_equal(getattr(process, name), VALID[name])
            with pytest.raises(ValueError, match="read-only"):
                getattr(process, name)[0] = 0.0
        with pytest.raises(AttributeError):
            process.gamma = 0.5


def test_cumulative_probabilities_are_read_only_and_there_is_no_state_before_the_first():
    process = boyan_chain()
    for array in (process.cumulative_transitions, process.cumulative_start):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0
    for call in (process.observe, lambda state: process.sample_step(state, np.random.default_rng(0))):
        with pytest.raises(IndexError, match=r"state must be an integer in \[0, 9\]; got -1"):
            call(-1)


def test_observations_are_fresh_copies():
    process = FiniteProcess(**VALID)
    process.observe(0)[:] = 7.0
    np.testing.assert_array_equal(process.observe(0), [1.0, 0.0])


def test_steps_have_the_frequencies_of_the_matrix():
    process = loop_chain(num_states=5, task_seed=2)
    rng = np.random.default_rng(0)
    counts, state = np.zeros((5, 5)), process.sample_start(rng)
    for _ in range(20_000):
        next_state, reward, terminated = process.sample_step(state, rng)
        assert (reward, terminated) == (process.rewards[state], False)
        counts[state, next_state] += 1
        state = next_state
    P, visits = process.transition_matrix, counts.sum(axis=1, keepdims=True)
    assert (counts[P == 0] == 0).all()
    assert (np.abs(counts - visits * P) <= 4.5 * np.sqrt(visits * P * (1 - P)) + 1e-9).all()


def test_starts_have_the_frequencies_of_the_start_distribution():
    process = boyan_chain(num_states=6, task_seed=1)
    rng = np.random.default_rng(0)
    counts = np.bincount([process.sample_start(rng) for _ in range(20_000)], minlength=6)
    p = process.start
    assert (np.abs(counts - 20_000 * p) <= 4.5 * np.sqrt(20_000 * p * (1 - p))).all()


@pytest.mark.parametrize(("uniform", "state"), [(0.0, 1), (np.nextafter(1.0, 0.0), 10)])
def test_states_of_probability_zero_are_never_drawn(uniform, state):
    class Extreme(np.random.Generator):
        def random(self):
            return uniform

    row = [0.0] + [0.1] * 10 + [0.0]  # its plain cumulative sum ends below 1
    process = FiniteProcess(np.array([row] * 12), np.zeros(12), np.eye(12), 0.9, np.array(row))
    rng = Extreme(np.random.PCG64(0))
    assert process.sample_start(rng) == state
    assert process.sample_step(0, rng)[0] == state


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"transition_matrix": np.eye(3)}, ValueError, r"rewards must have shape \(3,\).*got \(2,\)"),
        ({"transition_matrix": np.ones((2, 3)) / 3}, ValueError, r"transition_matrix must have shape \(2, 2\)"),
        ({"transition_matrix": np.ones((2, 2))}, ValueError, "each row of transition_matrix .* row 0 .* sum 2"),
        ({"transition_matrix": [[1.5, -0.5], [1, 0]]}, ValueError, "each row of transition_matrix .* minimum -0.5"),
        ({"transition_matrix": [0.5, 0.5]}, ValueError, "transition_matrix must be a non-empty array with 2 axes"),
        ({"rewards": [1.0, np.nan]}, ValueError, "rewards must be finite; got nan"),
        ({"rewards": ["a", "b"]}, TypeError, "rewards must be an array of real numbers"),
        ({"features": np.eye(3)}, ValueError, r"features must have shape \(2, d\)"),
        ({"features": np.ones((2, 0))}, ValueError, "features must be a non-empty array"),
        ({"start": [0.5, 0.4]}, ValueError, "start must be non-negative and sum to 1; .* sum 0.9"),
        ({"gamma": 1.0}, ValueError, "gamma must be .* never ends is infinite: use a discount below 1"),
        ({"gamma": "0.9"}, TypeError, "gamma must be .* of type str"),
    ],
)
def test_what_is_not_a_process_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        FiniteProcess(**(VALID | change))


def test_an_ambiguous_stationary_distribution_is_an_error():
    process = FiniteProcess(np.eye(2), np.zeros(2), np.eye(2), 0.9, np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="one closed class of states"):
        process.stationary_distribution()


def test_transient_states_have_no_stationary_probability():
    process = FiniteProcess(np.array([[0.5, 0.5], [0.0, 1.0]]), np.zeros(2), np.eye(2), 0.9, np.array([1.0, 0.0]))
    np.testing.assert_allclose(process.stationary_distribution(), [0.0, 1.0], atol=1e-15)


def test_rare_states_have_every_digit_of_their_stationary_probability():
    birth, death = 1e-3, 0.5
    P = np.diag(np.full(11, birth), 1) + np.diag(np.full(11, death), -1)
    P += np.diag(1.0 - P.sum(1))
    expected = (birth / death) ** np.arange(12)
    process = FiniteProcess(P, np.zeros(12), np.eye(12), 0.9, np.eye(12)[0])
    for found in (process.stationary_distribution(), FiniteBatch.stack([process]).stationary_distributions()[0]):
        np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-12)


def _by_fractions(P, r):
    """Stationary distribution and differential values in exact arithmetic, the diagonal of P as what rows lack."""
    S, P = len(P), [[Fraction(p) for p in row] for row in P.tolist()]
    for i in range(S):
        P[i][i] = 1 - sum(P[i][:i] + P[i][i + 1 :])
    system = [[Fraction(i == j) - P[j][i] for j in range(S)] + [Fraction(0)] for i in range(S - 1)]
    mu = _solved([*system, [Fraction(1)] * (S + 1)])
    mean = sum(m * Fraction(x) for m, x in zip(mu, r.tolist(), strict=True))
    b = [Fraction(x) - mean for x in r.tolist()]
    h = _solved([[Fraction(i == j) - P[i][j] + mu[j] for j in range(S)] + [b[i]] for i in range(S)])
    return np.array(mu, dtype=float), np.array(h, dtype=float)


def _solved(rows):
    for i in range(len(rows)):
        pivot = next(k for k in range(i, len(rows)) if rows[k][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        rows = [
            row if k == i else [x - row[i] * y for x, y in zip(row, rows[i], strict=True)] for k, row in enumerate(rows)
        ]
    return [row[-1] for row in rows]


@pytest.mark.parametrize("seed", range(30))
def test_constants_in_rewards_and_rare_states_cost_no_digits(seed):
    rng = np.random.default_rng(seed)
    groups = rng.permutation(4) < 2
    P = rng.dirichlet(np.ones(4), 4) * np.where(groups == groups[:, None], 1.0, 10 ** rng.uniform(-10, -1))
    P[:, 0] *= 10 ** rng.uniform(-7, 0)
    P /= P.sum(1, keepdims=True)
    r = 1e8 + 1e-3 * rng.normal(size=4)
    process = FiniteProcess(P, r, np.eye(4), 0.9, np.eye(4)[0])
    mu, h = _by_fractions(P, r)
    batch = FiniteBatch.stack([process])
    for found in (process.stationary_distribution(), batch.stationary_distributions()[0]):
        np.testing.assert_allclose(found, mu, rtol=1e-8)
    np.testing.assert_allclose(batch.differential_values()[0], h, rtol=0, atol=1e-9 * np.abs(h).max())


@pytest.mark.parametrize("rare", [0.0, 1e-9])
@pytest.mark.parametrize("seed", range(20))
def test_a_large_reward_of_a_rare_state_costs_the_differential_values_of_the_others_no_digits(rare, seed):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(4), 4)
    P[:2, 2:] *= 10 ** rng.uniform(-9, 0)
    P[1:, 0] *= rare
    P /= P.sum(1, keepdims=True)
    r = 1e-3 * rng.normal(size=4) + [1e8, 0, 0, 0]
    h = _by_fractions(P, r)[1]
    found = FiniteBatch.stack([FiniteProcess(P, r, np.eye(4), 0.9, np.eye(4)[0])]).differential_values()[0]
    np.testing.assert_allclose(found[1:], h[1:], rtol=0, atol=1e-9 * np.abs(h[1:]).max())


@pytest.mark.parametrize("rate", [1e-300, 5e-310, 1e-320])
def test_states_that_are_visited_once_in_1e300_steps_have_a_probability(rate):
    P = np.array([[0.5, 0.5, 0.0], [rate, 1.0, 0.0], [0.3, 0.3, 0.4]])
    process = FiniteProcess(P, np.zeros(3), np.eye(3), 0.9, np.eye(3)[0])
    for found in (process.stationary_distribution(), FiniteBatch.stack([process]).stationary_distributions()[0]):
        np.testing.assert_array_equal(found, [2 * rate, 1.0, 0.0])
