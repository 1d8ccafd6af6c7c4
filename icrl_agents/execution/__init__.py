"""One task over many cells: in this process, in local processes, or on a Ray cluster, with the same results.

Importing this does not import torch.
"""

from icrl_agents.execution.choice import EXECUTORS, ExecutorName, check_execution, executor
from icrl_agents.execution.task import Executor

__all__ = ["EXECUTORS", "Executor", "ExecutorName", "check_execution", "executor"]
