"""The configuration of the RKHS study; importing it imports no torch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from icrl_agents.execution import ExecutorName, check_execution
from icrl_agents.settings import as_python
from icrl_envs import RKHSProcess, arguments

KernelName = Literal["rbf", "exponential"]
KERNELS: tuple[KernelName, ...] = ("rbf", "exponential")
SCALES = (1e-100, 1e100)
"""Least and largest scale, and multiple of one, whose square is a positive number."""
MOST_NUMBERS = 10**8
"""In all states that are seen and asked about, 0.8 GB; more are taken for a slip."""


@dataclass(frozen=True, kw_only=True)
class RKHSConfig:
    """Recover values that lie in a known RKHS, in context, and compare them with the exact ones.

    For every kernel, dimension and seed: draw a process whose value is a sum of that kernel's functions, run it once,
    and give the transformers the first n steps. Errors are measured in states of the stationary law, against the
    number of steps, the depth, and the length scale of a kernel that is not the value's. Prints tables and writes
    config.json, rows.csv and figures: the recovered values beside the true ones in 1-D and 2-D, and the errors.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range; the message names it.
    """

    kernels: tuple[KernelName, ...] = KERNELS
    """Kernels whose RKHS holds the values: rbf, exp(-|s-z|²/(2 scale²)), and exponential, exp(s·z/temperature)."""
    dims: tuple[int, ...] = (1, 2)
    """Dimensions of the state."""
    length_scale: float = 0.5
    """Length scale of the RBF kernel; each coordinate of the state has standard deviation 0.69."""
    temperature: float = 2.0
    """Temperature of the exponential kernel; well above 0.47, so that values have no heavy tails."""
    gamma: float = 0.9
    """Discount, in [0, 1)."""
    seeds: int = 10
    """Number of seeds, each with a value and a trajectory of its own. Reported: medians with intervals."""
    first_seed: int = 0
    """The first of the seeds; the others follow it."""
    lengths: tuple[int, ...] = (50, 100, 200, 500, 1000)
    """Numbers n of steps in the context; the shorter contexts are the beginnings of the longest."""
    depth: int = 100
    """Number L of layers, where depth is not what varies."""
    depths: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 200, 400)
    """Numbers of layers where it is."""
    ratios: tuple[float, ...] = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    """Scales of the transformers' kernel, as multiples of the length scale or temperature given above."""
    mismatch_length: int = 500
    """Steps in the context where the scale varies."""
    test_states: int = 500
    """States of the stationary law in which values are compared."""
    ridge: float = 0.001
    """Ridge of the closed-form references, kernel LSTD and LSTD."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("results/rkhs")
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
        for name in ("kernels", "dims", "lengths", "depths", "ratios"):
            given = getattr(self, name)
            if len(given) == 0 or len(set(given)) < len(given):
                raise ValueError(f"{name}: expected at least one, each once, got {given!r}.")
        for kernel in self.kernels:
            arguments.choice("kernels", kernel, KERNELS)
        for name, minimum in {"dims": 1, "lengths": 2, "depths": 1}.items():
            for number in getattr(self, name):
                arguments.integer(name, number, minimum)
        for name in ("length_scale", "temperature"):
            arguments.real(name, getattr(self, name), *SCALES)
        for ratio in self.ratios:
            arguments.real("ratios", ratio, *SCALES)
        for name, minimum in {"depth": 1, "mismatch_length": 2, "test_states": 1}.items():
            arguments.integer(name, getattr(self, name), minimum)
        arguments.discount(self.gamma)
        arguments.seeds(self.seeds, self.first_seed)
        arguments.real("ridge", self.ridge, 0.0)
        check_execution(self.executor, self.workers, self.ray_address)
        self._check_size()
        for kernel, dim in itertools.product(self.kernels, self.dims):
            self._check_process(kernel, dim)

    def _check_size(self) -> None:
        states = max(*self.lengths, self.mismatch_length) + self.test_states
        if states * max(self.dims) > MOST_NUMBERS:
            raise ValueError(
                f"dims: expected at most {MOST_NUMBERS:,} numbers in all states of a cell, got {max(self.dims):,} "
                f"dimensions of {states:,} states (--lengths, --mismatch-length and --test-states)."
            )

    def scale(self, kernel: str) -> float:
        """Length scale or temperature of a kernel."""
        return self.length_scale if kernel == "rbf" else self.temperature

    def _check_process(self, kernel: str, dim: int) -> None:
        """Draws the first value of a kernel, in numbers that its scale may make overflow or vanish."""
        option = "length_scale" if kernel == "rbf" else "temperature"
        settings = {"length_scale": self.scale(kernel), "gamma": self.gamma, "task_seed": self.first_seed}
        try:
            RKHSProcess(dim=dim, kernel=kernel, **settings)
        except ValueError as error:
            raise ValueError(str(error).replace("length_scale", option)) from None

    @property
    def reported_depths(self) -> list[int]:
        """All depths that are reported, in order."""
        return sorted({self.depth, *self.depths})
