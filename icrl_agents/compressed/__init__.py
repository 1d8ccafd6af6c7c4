"""Contexts compressed to their distinct states: exact forward passes whose cost does not grow with their length."""

from icrl_agents.compressed.contexts import CompressedContexts
from icrl_agents.compressed.passes import attention, state_values
from icrl_agents.compressed.sweeps import SharedSweeps
from icrl_agents.compressed.windows import SlidingWindows
from icrl_envs.paths import sample_paths

__all__ = ["CompressedContexts", "SharedSweeps", "SlidingWindows", "attention", "sample_paths", "state_values"]
