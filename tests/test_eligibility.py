"""What linear evaluators read from a context: the memory of their automatic step."""

import subprocess
import sys

import pytest

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
