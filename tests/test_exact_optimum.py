"""The exact optimum of MDPs whose rewards have a large constant or a large cost in them."""

from typing import Any

import numpy as np
import pytest
import torch

from icrl_agents.control import FiniteMDP, policy_iteration
from icrl_agents.control.finite_mdp import improvement


def with_cost(rewards, rng):
    rewards[np.arange(6), rng.integers(0, 4, 6)] = -1e12
    return rewards


@pytest.mark.parametrize(
    "change", [lambda rewards, rng: np.round(rewards, 6) + 1e8, with_cost], ids=["constant", "cost"]
)
def test_small_differences_count_beside_a_large_constant_or_cost(change):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        mdp = FiniteMDP.random(6, 4, 0.99, rng)
        rewards = change(np.round(mdp.rewards, 6), rng)
        found = FiniteMDP(mdp.transitions, rewards, 0.99).optimum().policy
        small = np.where(rewards > 1e7, rewards - 1e8, np.maximum(rewards, -1e4))  # the same choices
        best = np.zeros(6)
        for _ in range(4_000):
            best = (small + 0.99 * mdp.transitions @ best).max(-1)
        np.testing.assert_array_equal(found, (small + 0.99 * mdp.transitions @ best).argmax(-1))


def test_small_differences_count_beside_a_constant_in_a_part_of_the_states():
    parts = np.tile(np.eye(3)[:, None], (1, 2, 1))
    rewards = np.array([[-1.0, -1.0 + 1e-5], [1.0, 1.0 + 1e-5], [0.0, 1e-5]])
    assert FiniteMDP(parts, rewards, 1 - 1e-7).optimum().policy.tolist() == [1, 1, 1]


@pytest.mark.parametrize("gamma", [0.9, 0.999])
@pytest.mark.parametrize("large", [1e10, -1e10], ids=["constant", "cost"])
def test_small_differences_count_in_context_beside_a_large_constant_or_cost(large, gamma):
    change = np.full(3, large * (1.0 - gamma)) if large > 0 else np.array([large, 0.0, 0.0])
    for seed in range(3):
        rng = np.random.default_rng(seed)
        mdp = FiniteMDP.random(4, 3, gamma, rng)
        tried = FiniteMDP(mdp.transitions, mdp.rewards + change, gamma).experience(20, rng)
        counts = np.zeros((4, 3, 4))
        np.add.at(counts, (tried.states, tried.actions, tried.next_states), 1)
        small = mdp.rewards + np.maximum(change - change.max(), -1e4)  # the same choices
        observed = FiniteMDP(counts / 20, small, gamma)
        found = policy_iteration(tried, gamma=gamma)
        assert found.converged
        np.testing.assert_allclose(observed.values(found.policy), observed.optimum().values, rtol=1e-9)


def test_small_differences_count_beside_a_pit_of_large_costs_that_is_avoided():
    for seed in range(200, 260):
        rng = np.random.default_rng(seed)
        mdp = FiniteMDP.random(3, 3, 0.99, rng)
        transitions, rewards = np.zeros((4, 3, 4)), np.full((4, 3), -1e10)
        transitions[:3, :, :3], rewards[:3] = mdp.transitions, mdp.rewards
        transitions[:, 2] = transitions[3] = np.eye(4)[3]  # where one stays
        alone = FiniteMDP(mdp.transitions[:, :2], mdp.rewards[:, :2], 0.99).optimum()
        found = FiniteMDP(transitions, rewards, 0.99).optimum()
        np.testing.assert_array_equal(found.policy[:3], alone.policy)
        np.testing.assert_allclose(found.values[:3], alone.values, rtol=1e-9)


def test_an_action_that_is_better_is_taken_beside_one_whose_gain_is_within_its_rounding():
    gains, margin = np.array([[0.0, 2.0, 1.0]]), np.array([[0.0, 3.0, 0.5]])
    assert improvement(gains, np.array([0]), margin).tolist() == [2]


class Nothing:
    """Infers NaN."""

    def fit(self, context) -> Any:
        return lambda states: torch.full((len(states),), torch.nan)


def test_action_values_that_are_no_numbers_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="evaluator: values: expected finite numbers"):
        policy_iteration(FiniteMDP.random(3, 2, 0.9, rng).experience(3, rng), Nothing(), gamma=0.9)
