"""What evaluators read along trajectories: the memory of the automatic step, and sums over long horizons."""

import subprocess
import sys

import pytest
import torch

from icrl_agents.context import Context
from icrl_agents.eligibility import eligibility_traces

MEASURED = """
import resource, torch
from icrl_agents.eligibility import largest_reach
rows = torch.rand(20_000, 3, generator=torch.Generator().manual_seed(0))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
largest_reach(rows, rows)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts KiB, as Linux does")
def test_the_step_of_many_distinct_states_does_not_take_a_matrix_of_them_in_memory():
    megabytes = float(subprocess.run([sys.executable, "-c", MEASURED], check=True, capture_output=True).stdout)
    assert megabytes < 200


@pytest.mark.parametrize("gamma", [0.999, 0.9999, 0.99999])
def test_returns_and_traces_over_long_horizons_keep_the_digits_of_single_precision(gamma):
    n = 50_000
    generator = torch.Generator().manual_seed(0)
    states, rewards = torch.rand(n + 1, 1, generator=generator), torch.rand(n, generator=generator)
    context = Context(states[:-1], rewards, torch.full((n,), gamma), states[1:])
    discount, returns, traces = float(context.discounts[0]), [0.0], [0.0]
    for reward, state in zip(reversed(rewards.tolist()), states[:-1, 0].tolist(), strict=True):
        returns.append(reward + discount * returns[-1])
        traces.append(state + discount * traces[-1])
    expected = torch.tensor(returns[:0:-1], dtype=torch.float64)
    torch.testing.assert_close(context.returns()[0].double(), expected, rtol=2e-7, atol=0)
    found = eligibility_traces(context, context.states, 1.0)[:, 0].double()
    torch.testing.assert_close(found, torch.tensor(traces[1:], dtype=torch.float64), rtol=2e-6, atol=0)
