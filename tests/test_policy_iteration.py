"""Policy iteration from in-context evaluation, with the exact optimum beside it."""

import itertools

import numpy as np
import pytest
import torch

from icrl_agents import constructions, kernels
from icrl_agents.control import FiniteMDP, policy_iteration
from icrl_agents.control.finite_mdp import Experience
from icrl_agents.control.policy_iteration import action_value_context, pair_features
from icrl_agents.evaluators import LSTD, KernelLSTD, MonteCarlo, TabularTD

GAMMA = 0.9


def random_mdp(seed):
    rng = np.random.default_rng(seed)
    return FiniteMDP.random(int(rng.integers(2, 21)), int(rng.integers(2, 5)), GAMMA, rng), rng


def empirical(experience):
    """The MDP of observed frequencies, by a plain loop."""
    S, A = experience.num_states, experience.num_actions
    counts, rewards = np.zeros((S, A, S)), np.zeros((S, A))
    for s, a, r, following in zip(
        experience.states, experience.actions, experience.rewards, experience.next_states, strict=True
    ):
        counts[s, a, following] += 1
        rewards[s, a] = r
    return FiniteMDP(counts / counts.sum(-1, keepdims=True), rewards, GAMMA)


@pytest.mark.parametrize("seed", range(5))
def test_the_exact_optimum_is_no_worse_than_any_policy(seed):
    rng = np.random.default_rng(seed)
    mdp = FiniteMDP.random(4, 3, GAMMA, rng, branching=2)
    best = np.full(4, -np.inf)
    for policy in itertools.product(range(3), repeat=4):
        v = np.zeros(4)
        for _ in range(400):
            v = np.array([mdp.rewards[s, a] + GAMMA * mdp.transitions[s, a] @ v for s, a in enumerate(policy)])
        best = np.maximum(best, v)
    np.testing.assert_allclose(mdp.optimum().values, best, atol=1e-10)
    np.testing.assert_allclose(mdp.values(mdp.optimum().policy), best, atol=1e-10)


@pytest.mark.parametrize("seed", range(20))
def test_in_context_iteration_is_exact_iteration_on_what_was_observed(seed):
    mdp, rng = random_mdp(seed)
    experience = mdp.experience(100, rng)
    observed = empirical(experience)
    found = policy_iteration(experience, gamma=GAMMA)
    assert found.converged
    np.testing.assert_allclose(observed.values(found.policy), observed.optimum().values, atol=1e-9)
    np.testing.assert_allclose(found.action_values, observed.optimum().action_values, atol=1e-4)


def optimal(seed):
    mdp, rng = random_mdp(seed)
    found = policy_iteration(mdp.experience(10_000, rng), gamma=GAMMA)
    return np.allclose(mdp.values(found.policy), mdp.optimum().values, atol=1e-9)


def test_most_random_mdps_are_solved_from_samples():
    assert sum(optimal(seed) for seed in range(4)) >= 3


@pytest.mark.slow
def test_95_of_100_random_mdps_are_solved_from_samples():
    assert sum(optimal(seed) for seed in range(100)) >= 95


@pytest.mark.parametrize(
    "evaluator",
    [
        TabularTD(num_sweeps=200),
        LSTD(),
        KernelLSTD(kernels.Identity()),
        constructions.weighted_softmax_td(kernels.Exponential(0.1), num_layers=200),
    ],
    ids=["tabular TD", "LSTD", "kernel LSTD", "softmax transformer"],
)
def test_every_evaluator_will_do(evaluator):
    mdp = FiniteMDP.random(4, 2, GAMMA, np.random.default_rng(0))
    experience = mdp.experience(50, np.random.default_rng(1))
    found = policy_iteration(experience, evaluator, gamma=GAMMA, features=np.eye(8))
    np.testing.assert_array_equal(found.policy, empirical(experience).optimum().policy)


def test_contexts_go_from_pair_to_pair_of_the_policy():
    mdp = FiniteMDP.random(3, 2, GAMMA, np.random.default_rng(0))
    experience, policy = mdp.experience(4, np.random.default_rng(1)), np.array([1, 0, 1])
    context = action_value_context(experience, policy, torch.from_numpy(pair_features(3, 2)), GAMMA)
    np.testing.assert_array_equal(context.states, np.stack([experience.states, experience.actions], axis=-1))
    following = experience.next_states
    np.testing.assert_array_equal(context.next_states, np.stack([following, policy[following]], axis=-1))


class One:
    """An evaluator of one value."""

    def fit(self, context):
        return lambda states: torch.zeros(1)


def test_rounds_are_limited_and_wrong_arguments_named():
    mdp, rng = random_mdp(0)
    experience = mdp.experience(10, rng)
    assert not policy_iteration(experience, gamma=GAMMA, max_rounds=1).converged
    with pytest.raises(ValueError, match=r"features: expected shape \(S·A, d\)"):
        policy_iteration(experience, gamma=GAMMA, features=np.eye(2))
    with pytest.raises(ValueError, match="gamma must be"):
        policy_iteration(experience, gamma=1.0)
    with pytest.raises(TypeError, match="evaluator: expected an object with fit"):
        policy_iteration(experience, "LSTD", gamma=GAMMA)
    with pytest.raises(TypeError, match="evaluator: expected one that bootstraps, got MonteCarlo"):
        policy_iteration(experience, MonteCarlo(kernels.Identity()), gamma=GAMMA)
    with pytest.raises(ValueError, match=r"evaluator: values: expected shape \(54,\) to match the states, got \(1,\)"):
        policy_iteration(experience, One(), gamma=GAMMA)
    with pytest.raises(ValueError, match=r"expected shapes \(S, A, S\)"):
        FiniteMDP(np.eye(2), np.zeros((2, 2)), GAMMA)
    with pytest.raises(ValueError, match=r"each row of transitions must .* sum to 1; row \(0, 0\) has minimum 0"):
        FiniteMDP(np.zeros((2, 1, 2)), np.zeros((2, 1)), GAMMA)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"actions": [0, 3]}, ValueError, "actions: expected shape"),
        ({"states": [-1, 1]}, ValueError, "states: expected shape"),
        ({"next_states": [0, 2]}, ValueError, "next_states: expected shape"),
        ({"states": [0.0, 1.0]}, TypeError, "states: expected integers"),
        ({"actions": [0]}, ValueError, "expected one length"),
        ({"rewards": [1.0, np.nan]}, ValueError, "rewards: expected finite"),
    ],
)
def test_experience_out_of_range_is_refused(changed, error, message):
    given = {"states": [0, 1], "actions": [0, 1], "rewards": [1.0, 7.0], "next_states": [0, 1], **changed}
    with pytest.raises(error, match=message):
        Experience(**given, num_states=2, num_actions=2)


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [("a", TypeError, "features: expected a rectangular array"), (np.full((4, 1), np.nan), ValueError, "features: ")],
)
def test_what_is_no_experience_feature_or_generator_is_named(features, error, message):
    mdp = FiniteMDP.random(2, 2, GAMMA, np.random.default_rng(0))
    with pytest.raises(error, match=message):
        policy_iteration(mdp.experience(2, np.random.default_rng(0)), gamma=GAMMA, features=features)
    with pytest.raises(TypeError, match=r"experience must be an Experience, such as .*; got 3"):
        policy_iteration(3, gamma=GAMMA)
    for draw in (lambda: FiniteMDP.random(3, 2, GAMMA, 0), lambda: mdp.experience(2, 0)):
        with pytest.raises(TypeError, match="rng must be a NumPy generator"):
            draw()


def test_a_pair_that_was_never_tried_is_named():
    with pytest.raises(ValueError, match=r"2 of 4 pairs were never tried, such as action 1 in state 0"):
        policy_iteration(Experience([0, 1], [0, 1], [1.0, 7.0], [0, 1], 2, 2), gamma=0.9)


P = [[[0.5, 0.5], [1, 0]], [[0, 1], [1, 0]]]


@pytest.mark.parametrize("size", [1, 1e-30, 1e200])
def test_an_mdp_of_lists_has_the_optimum_of_its_arrays_whatever_the_size_of_its_rewards(size):
    optimum = FiniteMDP(P, [[size, 0], [0, 2 * size]], GAMMA).optimum()
    assert optimum.policy.tolist() == [0, 1] or optimum.policy.tolist() == [0, 0]
    best = max(
        FiniteMDP(np.array(P), np.array([[1.0, 0.0], [0.0, 2.0]]), GAMMA).values(np.array(policy)).sum()
        for policy in itertools.product(range(2), repeat=2)
    )
    np.testing.assert_allclose(optimum.values.sum(), size * best, rtol=1e-12)


@pytest.mark.parametrize("gamma", [1 - 1e-6, 1 - 1e-9])
def test_rounding_does_not_keep_the_exact_iteration_going(gamma):
    for seed in range(5):
        optimum = FiniteMDP.random(20, 4, gamma, np.random.default_rng(seed)).optimum()
        assert np.isfinite(optimum.values).all()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rewards": [["a", "b"], ["c", "d"]]}, TypeError, "rewards: expected a rectangular array of numbers"),
        ({"gamma": 1 - 1e-12}, ValueError, r"gamma: expected at most 1 - 1e-9, .* got 0\.999999999999"),
        ({"transitions": None}, TypeError, "transitions: expected a rectangular array of numbers"),
        ({"transitions": [[1.0]]}, ValueError, r"expected shapes \(S, A, S\) and \(S, A\), got \(1, 1\) and \(2, 2\)"),
        ({"transitions": np.full((2, 2, 2), np.nan)}, ValueError, "each row of transitions .* has minimum nan"),
        ({"transitions": np.full((2, 2, 2), 0.50001)}, ValueError, "each row of transitions .* sum 1.00002. Divide"),
        ({"rewards": [[1, 0], [0, np.inf]]}, ValueError, "rewards: expected finite numbers"),
    ],
)
def test_an_mdp_of_anything_else_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        FiniteMDP(**{"transitions": P, "rewards": [[1, 0], [0, 2]], "gamma": GAMMA, **change})


@pytest.mark.parametrize("policy", [0, [0], [0, -1], [0, 2], [0.0, 1.0]])
def test_what_is_no_policy_is_refused(policy):
    with pytest.raises(ValueError, match=r"policy: expected shape \(2,\) with integers in 0 … 1, got"):
        FiniteMDP(P, [[1, 0], [0, 2]], GAMMA).values(policy)


def test_values_beyond_the_largest_number_are_an_error():
    with pytest.raises(ValueError, match="rewards: expected values within float64"):
        FiniteMDP(P, np.full((2, 2), 1e308), GAMMA).optimum()


@pytest.mark.parametrize("gamma", [0.9, 1 - 1e-5, 1 - 1e-9])
def test_rows_of_single_precision_are_scaled_to_sum_to_1(gamma):
    assert FiniteMDP([[[1.000001]]], [[1.0]], gamma).values(np.array([0])) == pytest.approx(1 / (1 - gamma), rel=1e-6)
    exact = FiniteMDP.random(6, 2, 0.9, np.random.default_rng(0))
    rounded = exact.transitions.astype(np.float32)
    scaled = rounded / rounded.sum(-1, keepdims=True, dtype=np.float64)
    policy = np.zeros(6, dtype=int)
    found, expected = (FiniteMDP(P, exact.rewards, gamma).values(policy) for P in (rounded, scaled))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_array_equal(FiniteMDP(scaled, exact.rewards, gamma).transitions, scaled)


@pytest.mark.parametrize("gamma", [0.0, 0.98, 0.99, 0.9999])
def test_action_values_are_whole_however_near_1_the_discount_is(gamma):
    rng = np.random.default_rng(0)
    experience = FiniteMDP.random(6, 3, GAMMA, rng).experience(50, rng)
    found, observed = policy_iteration(experience, gamma=gamma), empirical(experience)
    exact = FiniteMDP(observed.transitions, observed.rewards, gamma).optimum()
    np.testing.assert_allclose(found.action_values, exact.action_values, rtol=1e-7)
    np.testing.assert_array_equal(found.policy, exact.policy)


def test_small_values_count_beside_large_ones_elsewhere():
    apart = np.tile(np.eye(2)[:, None], (1, 2, 1))
    optimum = FiniteMDP(apart, [[1e6, 0], [1e-6, 2e-6]], GAMMA).optimum()
    assert optimum.policy.tolist() == [0, 1]
    np.testing.assert_allclose(optimum.values, [1e7, 2e-5])


def test_a_pair_tried_once_beside_one_tried_200_000_times_has_its_own_value():
    mdp = FiniteMDP.random(3, 2, 0.5, np.random.default_rng(0))
    states, actions = np.divmod(np.repeat(np.arange(6), [1, 200_000, 1, 10, 1, 10]), 2)
    next_states = (states + 1) % 3
    found = policy_iteration(Experience(states, actions, mdp.rewards[states, actions], next_states, 3, 2), gamma=0.5)
    turning = np.tile(np.roll(np.eye(3), 1, axis=1)[:, None], (1, 2, 1))
    values = FiniteMDP(turning, mdp.rewards, 0.5).optimum().values
    np.testing.assert_allclose(found.action_values, mdp.rewards + 0.5 * turning @ values, atol=1e-9)
