"""The configuration of the kernel-temperature study; importing it imports neither torch nor the simulator."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from icrl_agents.execution import ExecutorName
from icrl_agents.settings import as_python
from icrl_agents.studies.transfer.config import TransferConfig
from icrl_envs import arguments

KERNELS = ("product_laplace", "laplace", "rbf", "exponential")
METHODS = ("softmax", "kernel")
LENGTH_SCALES = (0.01, 0.017, 0.03, 0.05, 0.085, 0.14, 0.24, 0.4, 0.7, 1.2, 2.0, 3.4)
SCALES = (1e-100, 1e100)
"""Least and largest length scale, whose square, the exponential's temperature, is a positive number."""

KernelName = Literal["product_laplace", "laplace", "rbf", "exponential"]


@dataclass(frozen=True, kw_only=True)
class TemperatureConfig:
    """Ask which kernel and length scale each MetaWorld domain wants, and whether domains share one.

    For every domain, noise level and seed: fit softmax and kernel TD, and a kernel ridge regression on returns, with
    each kernel of a bank on some trajectories, and measure them on others, whose goals have not been seen. Prints the
    best length scales with their confidence intervals, similarity matrices of the domains, and what the constant offset
    costs; writes config.json, rows.csv and four figures.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range; the message names it.
    """

    domains: tuple[str, ...] = TransferConfig.domains
    """MetaWorld v3 domains; `all` for all 50."""
    noise: tuple[str, ...] = TransferConfig.noise
    """Policy noise: high, mid, low (standard deviation 1.0, 0.5, 0.1 of the action range [-1, 1]) or a number."""
    seeds: int = 3
    """Number of seeds per cell; confidence intervals are over them."""
    first_seed: int = 0
    """The first of the seeds; the others follow it."""
    context_episodes: int = 5
    """Trajectories to fit on, with goals of the training split; at least 2, as one is left out to find a ridge."""
    held_out_episodes: int = 5
    """Trajectories to evaluate on, with goals of the test split."""
    steps: int = 200
    """Steps of each trajectory, 1 to 500."""
    tail: int = 100
    """Value errors count the states with at least this many rewards in their Monte-Carlo return; gamma^tail ≤ 0.05."""
    gamma: float = 0.9
    """Discount, in [0, 1)."""
    observation: Literal["core", "full", "state"] = "core"
    """Features: core (10: hand, gripper, object, goal), full (39) or state (full, mocap position, velocities)."""
    features: Literal["raw", "standardised"] = "raw"
    """raw: as observed; standardised: each divided by its standard deviation in the context, and all by √d."""
    kernels: tuple[KernelName, ...] = KERNELS
    """Kernels of the bank. The exponential's temperature is the square of the length scale."""
    methods: tuple[Literal["softmax", "kernel"], ...] = METHODS
    """softmax: weighted softmax TD; kernel: kernel TD, which does not normalise."""
    length_scales: tuple[float, ...] = LENGTH_SCALES
    """Length scales of the bank, ascending, in units of the features (raw: mostly metres)."""
    depth: int = 80
    """Sweeps; a quarter and a sixteenth of it are measured too."""
    continuations: int = 0
    """Value errors against ground truth as well: returns of each of its states, from exact snapshots; 0 for none."""
    truth_states: int = 5
    """States of each held-out trajectory whose ground truth is taken."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("results/temperature")
    """Output folder. One that holds another configuration is refused; one that holds unfinished work of this one is
    gone on with."""
    cache: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of collected trajectories and of ground truth, shared with icrl transfer; default
    ~/.cache/icrl/trajectories."""
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
        self.transfer()
        arguments.integer("context_episodes", self.context_episodes, 2 if self.steps > self.tail else 3)
        arguments.choice("features", self.features, ("raw", "standardised"))
        for name, options in (("kernels", KERNELS), ("methods", METHODS)):
            chosen = getattr(self, name)
            for each in chosen:
                arguments.choice(name, each, options)
            if len(chosen) == 0 or len(set(chosen)) < len(chosen):
                raise ValueError(f"{name}: expected at least one, each once, got {' '.join(chosen) or 'none'}.")
        scales = [arguments.real("length_scales", scale, *SCALES) for scale in self.length_scales]
        if len(scales) < 3 or any(low >= high for low, high in itertools.pairwise(scales)):
            raise ValueError(f"length_scales: expected three or more, ascending, got {scales}.")
        arguments.integer("depth", self.depth, 1)

    @property
    def depths(self) -> list[int]:
        """The depths that are measured."""
        return sorted({math.ceil(self.depth / 16), math.ceil(self.depth / 4), self.depth})

    def transfer(self) -> TransferConfig:
        """The configuration whose cells and trajectories these are."""
        shared = ("domains", "noise", "seeds", "first_seed", "context_episodes", "held_out_episodes", "steps", "tail")
        truth = ("gamma", "observation", "continuations", "truth_states")
        where = ("cache", "executor", "workers", "ray_address", "device")
        return TransferConfig(**{name: getattr(self, name) for name in (*shared, *truth, *where)})
