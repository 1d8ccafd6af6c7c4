"""Executors by name."""

from __future__ import annotations

import importlib.util
import os
from typing import Literal, get_args

from icrl_agents.execution.cluster import Ray, check_address
from icrl_agents.execution.processes import Processes
from icrl_agents.execution.serial import Serial
from icrl_agents.execution.task import Executor
from icrl_envs import arguments

ExecutorName = Literal["serial", "processes", "ray"]
EXECUTORS: tuple[ExecutorName, ...] = get_args(ExecutorName)


def executor(
    name: ExecutorName = "processes", *, workers: int = 0, ray_address: str | None = None, gpus: float = 0.0
) -> Executor:
    """Returns an executor.

    Args:
        name: ``"serial"``: in this process, one after another. ``"processes"``: in processes of this machine.
            ``"ray"``: on a Ray cluster.
        workers: Number of processes, or of cores of a Ray that is started here; 0 for one per core. Neither of this
            process, which is one, nor of a running cluster, which has its own.
        ray_address: Of a running Ray cluster, such as ``"auto"`` or ``"10.0.0.1:6379"``; None starts one here.
        gpus: GPUs that a cell keeps to itself on a Ray cluster.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range or contradicts another, or Ray is not installed or does
            not answer.

    Example:
        >>> dict(executor("serial").map(abs, [-1, 2]))
        {-1: 1, 2: 2}
    """
    check_execution(name, workers, ray_address)
    if name == "ray":
        if ray_address is not None:
            check_address(ray_address)
        return Ray(ray_address, workers, arguments.real("gpus", gpus, 0.0))
    workers = workers or _cores()
    return Serial() if name == "serial" or workers == 1 else Processes(workers)


def _cores() -> int:
    """Cores that this process may use: a batch job or container may have few of a machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_execution(name: object, workers: object, ray_address: object) -> None:
    """Raises what ``executor`` raises for such arguments, without asking for the address."""
    arguments.choice("executor", name, EXECUTORS)
    count = arguments.integer("workers", workers, 0)
    if count > 1 and name == "serial":
        raise ValueError(f"workers: expected none with executor 'serial', which is this process, got {count}.")
    if count > 0 and ray_address is not None:
        raise ValueError(f"workers: expected none beside ray_address, whose cluster has its own, got {count}.")
    if ray_address is not None and name != "ray":
        raise ValueError(f"ray_address: expected executor 'ray' beside it, got {name!r}; leave one of them out.")
    if ray_address is not None and not isinstance(ray_address, str):
        raise TypeError(f"ray_address: expected text such as 'auto' or None, got {ray_address!r}.")
    if name == "ray" and importlib.util.find_spec("ray") is None:
        raise ValueError("executor: 'ray' is not installed here; install it by: pip install 'icrl[ray]'")
