"""The configuration of the transfer matrix; importing it imports neither torch nor the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from icrl_agents.execution import check_execution
from icrl_agents.settings import as_python
from icrl_agents.studies.transfer.config import TransferConfig
from icrl_envs import arguments

FRESH = 1_000
"""Goal sets of the evaluation have this seed or a later one, those of pretraining an earlier one."""

_CHOICES = {
    "kernel": ("product_laplace", "laplace", "rbf"),
    "value_weights": ("step_size", "free"),
    "executor": ("serial", "processes"),
}


@dataclass(frozen=True, kw_only=True)
class MatrixConfig:
    """Pretrain on the high-noise tasks of one domain, freeze, and evaluate on every domain and noise level.

    For every source domain and seed: collect trajectories of the scripted policy under high noise, train a softmax
    transformer and a linear one on them by semi-gradient TD, save their weights, and measure both, frozen, on all
    domains and noise levels, with goals and seeds that pretraining had not. Prints the source × target matrices and
    writes config.json, rows.csv, weights.csv, two figures and the transformers.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range; the message names it.
    """

    domains: tuple[str, ...] = TransferConfig.domains
    """MetaWorld v3 domains, each a source and a target."""
    noise: tuple[str, ...] = TransferConfig.noise
    """Policy noise of the targets: high, mid, low (standard deviation 1.0, 0.5, 0.1) or a number. Sources have high."""
    seeds: int = 5
    """Number of seeds; each pretrains from its own weights on its own goals and is evaluated on goals of its own."""
    first_seed: int = 0
    """The first of the seeds; the others follow it."""
    tasks: int = 20
    """Trajectories to pretrain on, each with a goal of the training split."""
    updates: int = 400
    """Steps of Adam."""
    batch_episodes: int = 3
    """Trajectories of each training context, and as many others as its queries."""
    window: int = 100
    """Steps of each of these trajectories, a random stretch of it."""
    learning_rate: float = 0.05
    """Learning rate of the softmax transformer, in (0, 1], which falls to 0 linearly; of log length scales and the step
    size."""
    linear_learning_rate: float = 0.02
    """The same of the linear transformer, of its preconditioner."""
    kernel: Literal["product_laplace", "laplace", "rbf"] = "product_laplace"
    """Kernel of the softmax, with one trained length scale per dimension."""
    value_weights: Literal["step_size", "free"] = "step_size"
    """Trained value weights of (R, u, v): α(1, 1, -1) with α in (0, 1), or three free numbers."""
    depth: int = 40
    """Number of layers, which share their weights."""
    min_depth: int = 10
    """Pretraining draws the number of layers of each update from here to depth."""
    context_episodes: int = 5
    """Evaluation: trajectories to fit on, with goals of the training split of other goal sets."""
    held_out_episodes: int = 5
    """Evaluation: trajectories to measure on, with goals of the test split."""
    steps: int = 200
    """Steps of each trajectory, 1 to 500."""
    tail: int = 100
    """Value errors count the states with at least this many rewards in their Monte-Carlo return; gamma^tail ≤ 0.05."""
    gamma: float = 0.9
    """Discount, in [0, 1)."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("results/matrix")
    """Output folder. One that holds another configuration is refused; one that holds unfinished work of this one is
    gone on with."""
    cache: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of collected trajectories, shared with icrl transfer; default ~/.cache/icrl/trajectories."""
    executor: Literal["serial", "processes"] = "processes"
    """Where cells are computed: in this process, or in processes of this machine. Rows are equal."""
    workers: int = 0
    """Processes; 0 for one per core."""
    device: str = "cpu"
    """Torch device: cpu, cuda, cuda:1, …"""

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        for name, options in _CHOICES.items():
            arguments.choice(name, getattr(self, name), options)
        self.transfer()
        if self.domains == ("all",):
            raise ValueError("domains: expected names of domains, got 'all'; every domain is a source to pretrain on.")
        arguments.seeds(self.seeds, self.first_seed)
        arguments.integer("seeds", self.seeds, 1, FRESH // 2)
        arguments.integer("first_seed", self.first_seed, 0, FRESH // 2)
        arguments.integer("batch_episodes", self.batch_episodes, 1)
        arguments.integer("tasks", self.tasks, 2 * self.batch_episodes)
        arguments.integer("updates", self.updates, 1)
        arguments.integer("window", self.window, 1, self.steps)
        arguments.integer("depth", self.depth, 1)
        arguments.integer("min_depth", self.min_depth, 1, self.depth)
        arguments.real("learning_rate", self.learning_rate, 0.0, 1.0, low_open=True)
        arguments.real("linear_learning_rate", self.linear_learning_rate, 0.0, 1.0, low_open=True)
        check_execution(self.executor, self.workers, None)

    def transfer(self) -> TransferConfig:
        """The configuration that checks what the two studies share, and names scales and depths."""
        shared = ("domains", "noise", "seeds", "first_seed", "context_episodes", "held_out_episodes", "steps", "tail")
        where = ("gamma", "depth", "cache", "executor", "workers", "device")
        return TransferConfig(**{name: getattr(self, name) for name in (*shared, *where)})
