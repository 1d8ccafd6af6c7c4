"""Whether the copies of a vector environment run different tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import AsyncVectorEnv

from icrl_agents.collection.copies import environments_of
from icrl_envs.adapter import ProcessEnv
from icrl_envs.comparison import Task, different
from icrl_envs.vector import ProcessVectorEnv


def are_different_tasks(env: Any) -> bool:  # noqa: ANN401 - an environment or a vector environment
    """Returns whether the copies of ``env`` are known to run different tasks."""
    if isinstance(env.unwrapped, ProcessVectorEnv):
        return True
    tasks = _tasks(env)
    return any(different(task, tasks[0]) for task in tasks)


def _tasks(env: Any) -> Sequence[Task | None]:  # noqa: ANN401
    """What each copy of a vector environment runs, where that can be told."""
    inner = env.unwrapped
    if isinstance(inner, AsyncVectorEnv):
        known = inner.call("has_wrapper_attr", "comparable_task")
        return inner.get_attr("comparable_task") if all(known) else [Task(one) for one in known]
    copies: list[Any] = [each.unwrapped for each in environments_of(env)]
    return [
        Task(each.process, each.task_seed) if isinstance(each, ProcessEnv) else getattr(each, "comparable_task", None)
        for each in copies
    ]
