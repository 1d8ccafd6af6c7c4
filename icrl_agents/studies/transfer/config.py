"""The configuration of the transfer study; importing it imports neither torch nor the simulator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from icrl_agents.execution import ExecutorName, check_execution
from icrl_agents.settings import as_python
from icrl_envs import arguments
from icrl_envs.metaworld.domains import DOMAINS, domain_name, noise_scale

REPORTED_DEPTHS = (0, 1, 2, 5, 10, 20, 40)
"""Depths at which TD losses are reported, as far as the transformers are deep enough; the last one always is."""

LARGEST_MISSING_SHARE = 0.05
"""Monte-Carlo returns that lack more than this share of a constant reward's value are no ground truth."""

_CHOICES = {
    "context_split": ("train", "test"),
    "held_out_split": ("train", "test"),
    "observation": ("core", "full", "state"),
    "reward_version": ("v1", "v2"),
    "kernel": ("product_laplace", "laplace", "rbf", "exponential"),
    "form": ("dual_head", "temporal_shift"),
}


@dataclass(frozen=True, kw_only=True)
class TransferConfig:
    """Evaluate policies across MetaWorld domains in context, with one fixed set of weights for all of them.

    For every domain, noise level and seed: collect trajectories of the scripted policy plus noise, fit each
    evaluator on some of them, and measure it on the others, whose goals it has not seen. Prints a table and the
    cells that fail, and writes config.json, rows.csv and two figures. With continuations, value errors are measured
    against the values of some held-out states too, and not against single returns only.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range; the message names it.
    """

    domains: tuple[str, ...] = (
        "pick-place-v3",
        "pick-place-wall-v3",
        "shelf-place-v3",
        "plate-slide-v3",
        "button-press-v3",
    )
    """MetaWorld v3 domains; `all` for all 50."""
    noise: tuple[str, ...] = ("high", "mid", "low")
    """Policy noise: high, mid, low (standard deviation 1.0, 0.5, 0.1 of the action range [-1, 1]) or a number."""
    seeds: int = 3
    """Number of seeds per cell; each draws its own goals, noise and trajectories. Reported: mean ± standard error."""
    first_seed: int = 0
    """The first of the seeds; the others follow it."""
    context_episodes: int = 5
    """Trajectories to fit on."""
    held_out_episodes: int = 5
    """Trajectories to evaluate on."""
    context_split: Literal["train", "test"] = "train"
    """Goals of the trajectories to fit on: of the benchmark's training or test split."""
    held_out_split: Literal["train", "test"] = "test"
    """Goals of the trajectories to evaluate on; the other split's have not been seen."""
    steps: int = 200
    """Steps of each trajectory, 1 to 500."""
    tail: int = 100
    """Value errors count the states with at least this many rewards in their Monte-Carlo return; gamma^tail ≤ 0.05."""
    gamma: float = 0.9
    """Discount, in [0, 1)."""
    observation: Literal["core", "full", "state"] = "core"
    """Features: core (10: hand, gripper, object, goal), full (39) or state (full, mocap position, velocities)."""
    goal_visible: bool = True
    """Whether the features contain the goal; if not, its entries are 0."""
    reward_version: Literal["v1", "v2"] = "v2"
    """MetaWorld's reward function."""
    kernel: Literal["product_laplace", "laplace", "rbf", "exponential"] = "product_laplace"
    """Kernel of the softmax and of the kernel transformer."""
    length_scale: float = 0.1
    """Softmax transformer: length scale in units of the observation, mostly metres (exponential: temperature)."""
    kernel_length_scale: float = 1.0
    """Kernel transformer and kernel LSTD: the same; without the softmax's normaliser, wider kernels do better."""
    form: Literal["dual_head", "temporal_shift"] = "temporal_shift"
    """Layers: two heads, or one head and the Temporal Shift Module; the values are the same."""
    depth: int = 80
    """Number of layers; the adaptive bank's too, a quarter of it is the other depth that it chooses from."""
    ridge: float = 0.001
    """Ridge of the closed-form references LSTD and kernel LSTD."""
    continuations: int = 0
    """Value errors against ground truth as well: returns of each of its states, from exact snapshots; 0 for none."""
    truth_states: int = 5
    """States of each held-out trajectory whose ground truth is taken."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("results/transfer")
    """Output folder. One that holds another configuration is refused; one that holds unfinished work of this one is
    gone on with."""
    cache: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of collected trajectories, reused by later runs; default ~/.cache/icrl/trajectories, on each machine."""
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
        for domain in self.resolved_domains:
            domain_name(domain)
        if len(self.domains) == 0 or len(self.noise) == 0:
            raise ValueError("domains and noise: expected at least one of each, got none.")
        if len(set(self.scales)) < len(self.noise) or len(set(self.domains)) < len(self.domains):
            raise ValueError("domains and noise: expected each once, got a repetition.")
        for name in ("context_episodes", "held_out_episodes", "tail"):
            arguments.integer(name, getattr(self, name), 1)
        arguments.integer("steps", self.steps, 1, 500)
        if self.steps < self.tail:
            raise ValueError(f"tail: expected at most steps = {self.steps}, got {self.tail}; no state would count.")
        arguments.seeds(self.seeds, self.first_seed)
        arguments.integer("depth", self.depth, 0)
        check_execution(self.executor, self.workers, self.ray_address)
        arguments.discount(self.gamma)
        if not isinstance(self.goal_visible, bool):
            raise TypeError(f"goal_visible: expected True or False, got {self.goal_visible!r}.")
        for name, options in _CHOICES.items():
            arguments.choice(name, getattr(self, name), options)
        missing = self.gamma**self.tail
        if missing > LARGEST_MISSING_SHARE:
            enough = math.ceil(math.log(LARGEST_MISSING_SHARE) / math.log(self.gamma))
            raise ValueError(
                f"tail: after {self.tail} rewards, {missing:.0%} of a return at gamma = {self.gamma} is still to come; "
                f"take tail ≥ {enough} and more steps than that (at most 500), or a smaller gamma."
            )
        arguments.real("length_scale", self.length_scale, 0.0, low_open=True)
        arguments.real("kernel_length_scale", self.kernel_length_scale, 0.0, low_open=True)
        arguments.real("ridge", self.ridge, 0.0)
        self._check_truth()

    def _check_truth(self) -> None:
        arguments.integer("truth_states", self.truth_states, 1)
        if arguments.integer("continuations", self.continuations, 0) == 1:
            raise ValueError("continuations: expected 0, or 2 and more for a standard error, got 1.")
        if self.continuations == 0 and self.truth_states != TransferConfig.truth_states:
            raise ValueError(f"truth_states: expected none without continuations, got {self.truth_states}.")
        if self.continuations and self.truth_states > self.steps - self.tail + 1:
            raise ValueError(f"truth_states: expected at most {self.steps - self.tail + 1}, got {self.truth_states}.")

    @property
    def resolved_domains(self) -> tuple[str, ...]:
        """The domains' names, with ``all`` spelled out."""
        return DOMAINS if self.domains == ("all",) else self.domains

    @property
    def scales(self) -> tuple[float, ...]:
        """Standard deviations σ of the noise levels."""
        return tuple(noise_scale(_number(level)) for level in self.noise)

    @property
    def depths(self) -> list[int]:
        """The depths that are reported."""
        return sorted({depth for depth in REPORTED_DEPTHS if depth < self.depth} | {self.depth})


def _number(level: str) -> str | float:
    try:
        return float(level)
    except ValueError:
        return level
