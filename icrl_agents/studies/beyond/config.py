"""The configuration of the study beyond MetaWorld; importing it imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from icrl_agents.execution import ExecutorName, check_execution
from icrl_agents.settings import as_python
from icrl_envs import arguments

ProcessName = Literal[
    "cartpole-random",
    "cartpole-lean",
    "pendulum-random",
    "pendulum-energy",
    "acrobot-random",
    "acrobot-pump",
    "mountaincar-random",
    "mountaincar-pump",
    "boyan-one-hot",
    "boyan-random",
    "loop-one-hot",
    "loop-random",
]
PROCESSES: tuple[ProcessName, ...] = ProcessName.__args__  # pyright: ignore[reportAttributeAccessIssue]
CHAINS = {"boyan": "icrl/BoyanChain-v0", "loop": "icrl/LoopChain-v0"}
"""Their true values are exact; those of all other processes are measured."""
OF_CHAINS, OF_SIMULATORS = ("num_states",), ("states", "continuations", "missing")
"""Settings of no effect where there is no chain, and where there is nothing else."""


@dataclass(frozen=True, kw_only=True)
class BeyondConfig:
    """Evaluate policies outside MetaWorld in context, with the weights that evaluate them in MetaWorld.

    For every process and seed: fit each evaluator on one set of episodes, and compare its values with the true ones
    in states of others: exact for the chains, means of many continuations from the same simulator state elsewhere.
    Observations are given as they are, standardised, and standardised to the spread that MetaWorld's have. Prints
    tables and writes config.json, rows.csv and a figure.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range; the message names it.
    """

    processes: tuple[ProcessName, ...] = PROCESSES
    """Gymnasium's CartPole-v1, Pendulum-v1, Acrobot-v1 and MountainCar-v0, each under random actions and under a
    simple policy with a fifth of random actions; random chains, their states one-hot or with 4 random features."""
    gamma: float = 0.9
    """Discount, in [0, 1)."""
    seeds: int = 6
    """Number of seeds, each with episodes (and chains) of its own. Reported: medians with intervals."""
    first_seed: int = 0
    """The first of the seeds; the others follow it."""
    context_steps: int = 500
    """Transitions to fit on."""
    held_out_steps: int = 500
    """Transitions to evaluate on."""
    episode_steps: int = 200
    """Length at which an episode is cut as truncated."""
    states: int = 40
    """States of the held-out episodes whose true value is measured; of the chains it is all of them."""
    continuations: int = 12
    """Continuations from each of these states, whose mean return is taken for the true value."""
    missing: float = 0.001
    """Share of a constant reward's value that lies behind the end of a continuation."""
    num_states: int = 10
    """States of the chains."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("results/beyond")
    """Output folder. One that holds another configuration is refused; one that holds unfinished work of this one is
    gone on with."""
    executor: ExecutorName = "processes"
    """Where cells are computed: in this process, in processes of this machine, or on a Ray cluster. Rows are equal."""
    workers: int = 0
    """Processes; 0 for one per core. With ray: cores of the Ray that is started here."""
    ray_address: str | None = None
    """Address of a running Ray cluster, such as auto or 10.0.0.1:6379; by default one is started on this machine."""
    device: str = "cpu"
    """Torch device of the evaluators: cpu, cuda, cuda:1, …"""

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        if len(self.processes) == 0 or len(set(self.processes)) < len(self.processes):
            raise ValueError(f"processes: expected at least one, each once, got {self.processes!r}.")
        for name in self.processes:
            arguments.choice("processes", name, PROCESSES)
        minima = {"context_steps": 2, "held_out_steps": 1, "episode_steps": 1, "continuations": 2, "num_states": 2}
        for name, minimum in minima.items():
            arguments.integer(name, getattr(self, name), minimum)
        self._check_kinds()
        arguments.real("missing", self.missing, 0.0, 1.0, low_open=True, high_open=True)
        arguments.discount(self.gamma)
        arguments.seeds(self.seeds, self.first_seed)
        check_execution(self.executor, self.workers, self.ray_address)

    def _check_kinds(self) -> None:
        """Refuses what has no effect on the processes that were chosen."""
        kinds = {name.startswith(tuple(CHAINS)) for name in self.processes}
        arguments.integer("states", self.states, 2, self.held_out_steps if False in kinds else None)
        for kind, idle, what in ((True, OF_CHAINS, "chains"), (False, OF_SIMULATORS, "measured values")):
            for name in idle if kind not in kinds else ():
                if (value := getattr(self, name)) != getattr(BeyondConfig, name):
                    raise ValueError(f"{name}: expected none, since these processes have no {what}, got {value}.")
