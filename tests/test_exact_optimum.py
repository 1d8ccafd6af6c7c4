"""The exact optimum of MDPs whose rewards have a large constant or a large cost in them."""

import numpy as np
import pytest

from icrl_agents.control import FiniteMDP


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
