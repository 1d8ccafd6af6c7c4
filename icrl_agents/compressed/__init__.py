"""Contexts compressed to their distinct states: exact forward passes whose cost does not grow with their length."""

from icrl_agents.compressed.contexts import CompressedContexts, sample_paths
from icrl_agents.compressed.passes import attention, state_values

__all__ = ["CompressedContexts", "sample_paths", "attention", "state_values"]
