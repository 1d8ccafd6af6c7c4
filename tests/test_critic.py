"""The critic's states: constants of any number, and batches that are its own."""

import math
import warnings

import numpy as np
import pytest
import torch

from icrl_agents.context import Context
from icrl_agents.control import Critic
from icrl_agents.control.critic import standardising
from icrl_agents.divergence import DivergenceWarning
from icrl_agents.evaluators import LSTD


@pytest.mark.parametrize("n", [500, 3_000, 50_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_constant_single_dimension_is_0_however_many_states_there_are(n, dtype):
    for number in (0.1, 1 / 3, 123.456, 1e-5):
        x = torch.full((n, 1), number, dtype=dtype)
        zeros = torch.zeros(n, dtype=dtype)
        standardised = standardising(Context(x, zeros, zeros, x))
        assert not standardised(x).any()
        assert not standardised(x + 0.1).any()


def test_a_batch_that_is_written_into_later_has_no_part_in_the_next_assessment():
    first, second = (Context(np.eye(3) + i, np.ones(3), np.full(3, 0.5), np.eye(3)[::-1] + i) for i in range(2))
    expected = Critic(LSTD(0.1), window=2)
    expected.assess(first)
    critic = Critic(LSTD(0.1), window=2)
    critic.assess(first)
    first.rewards.fill_(1e6)
    assert torch.equal(critic.assess(second).values, expected.assess(second).values)
    with pytest.raises(ValueError, match=r"states: expected shape \(m, 3\), got \(1, 4\)"):
        critic(torch.zeros(1, 4))


class Warner:
    """Warns several times, as evaluators of several parts may, and fails where it is told to."""

    fails = False

    def fit(self, context):
        for part in "ab":
            warnings.warn(part, DivergenceWarning, stacklevel=2)
        return LSTD(math.inf if self.fails else 0.1).fit(context)


def test_a_batch_on_which_the_evaluator_warned_counts_once_and_one_that_failed_does_not():
    evaluator = Warner()
    critic, batch = Critic(evaluator), Context(np.eye(3), np.ones(3), np.full(3, 0.5), np.eye(3)[::-1])
    critic.assess(batch)
    assert critic.divergences == 1
    evaluator.fails = True
    with pytest.raises(ValueError, match="ridge"):
        critic.assess(batch)
    assert critic.divergences == 1
