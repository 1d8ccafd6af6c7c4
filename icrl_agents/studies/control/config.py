"""The configuration of the control study; importing it does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro

from icrl_agents.execution import ExecutorName, check_execution
from icrl_agents.settings import as_python
from icrl_envs import arguments

CriticName = Literal["softmax", "kernel", "adaptive", "pretrained", "lstd", "none", "learned", "default"]
EnvironmentName = Literal["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCarContinuous-v0"]
CRITICS: tuple[str, ...] = get_args(CriticName)
EVALUATE_EVERY = 2_048
"""Steps between evaluations, up to ``EARLY``; then four times as many."""
EARLY = 20_480
"""Steps of the early phase, over which the area under the curve is taken."""
EPISODES = 20
"""Episodes of an evaluation."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """How PPO is set in an environment, whatever its critic (but for ``default``, which has SB3's own settings).

    Args:
        num_envs: Copies that are stepped together.
        settings: Arguments of PPO off their defaults.
        worst: Return that scores 0, about that of random actions.
        best: Return that scores 1, about the best there is.
        solved: Mean return at which the environment counts as solved.
    """

    num_envs: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    worst: float
    best: float
    solved: float


ENVIRONMENTS: dict[str, Environment] = {
    "CartPole-v1": Environment(
        num_envs=8,
        settings={"n_steps": 128, "learning_rate": 1e-3},
        worst=20.0,
        best=500.0,
        solved=475.0,
    ),
    "Acrobot-v1": Environment(worst=-500.0, best=-75.0, solved=-100.0),
    "Pendulum-v1": Environment(
        num_envs=4,
        settings={"n_steps": 256, "gamma": 0.9, "learning_rate": 1e-3},
        worst=-1250.0,
        best=-150.0,
        solved=-250.0,
    ),
    "MountainCarContinuous-v0": Environment(worst=-30.0, best=95.0, solved=90.0),
}


@dataclass(frozen=True)
class Cell:
    """One training run.

    Args:
        environment: Its id.
        critic: Its critic.
        seed: Of everything random in it.
        steps: Its length, in steps of the environment.
    """

    environment: str
    critic: str
    seed: int
    steps: int

    @property
    def name(self) -> str:
        """What it is, in one line."""
        return f"{self.environment}, {self.critic}, {self.steps:,} steps, seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What is run.

    Args:
        seeds: Number of seeds of each run.
        runs: Critics by environment and length.
    """

    seeds: int
    runs: tuple[tuple[str, int, tuple[str, ...]], ...]


def _distinct(environment: str) -> tuple[str, ...]:
    """The critics that differ there: where nothing is set, ``learned`` is ``default``."""
    return CRITICS if ENVIRONMENTS[environment].settings else tuple(c for c in CRITICS if c != "learned")


PRESETS: dict[str, Preset] = {
    "quick": Preset(seeds=2, runs=(("CartPole-v1", 8_192, ("softmax", "default")),)),
    "standard": Preset(
        seeds=10,
        runs=(
            ("CartPole-v1", EARLY, CRITICS),
            ("Pendulum-v1", 8_192, ("softmax", "adaptive", "pretrained", "learned", "default")),
        ),
    ),
    "full": Preset(seeds=10, runs=tuple((name, 98_304, _distinct(name)) for name in ENVIRONMENTS)),
}


@dataclass(frozen=True, kw_only=True)
class ControlConfig:
    """Train Stable-Baselines3's PPO with in-context critics, and with its own learned one, on control tasks.

    The actor, its first weights, and every setting are the same, and only the critic differs: softmax (weighted
    softmax TD), kernel (kernel TD), adaptive (softmax TD of two widths and several depths, mixed per rollout),
    pretrained (a transformer pretrained on other CartPoles), lstd (LSTD on quadratic features), none (returns as they
    are), learned (a value network); but default is a value network with all of SB3's default settings. Deterministic
    actions are evaluated along the way. Prints a table and writes config.json, rows.csv and a figure. An interrupted
    run goes on where it was. Needs Stable-Baselines3: pip install 'icrl[sb3]'.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range; the message names it.
    """

    preset: tyro.conf.Positional[Literal["quick", "standard", "full"]] = "quick"
    """quick: CartPole, 8,192 steps, 2 seeds, half a minute. standard: 10 seeds; CartPole, every critic, 20,480 steps,
    and Pendulum, five critics, 8,192 steps; half an hour of one core. full: every critic in all four environments for
    98,304 steps, six hours of one core."""
    environments: tuple[EnvironmentName, ...] | None = None
    """Only these environments of the preset."""
    critics: tuple[CriticName, ...] | None = None
    """Only these critics of the preset."""
    seeds: int | None = None
    """Number of seeds; the preset's own by default (2, 10, 10)."""
    first_seed: int = 0
    """The first of the seeds; the others follow it."""
    steps: int | None = None
    """Steps of every run, if not the preset's."""
    executor: ExecutorName = "processes"
    """Where the runs are computed: serial (here), processes (of this machine) or ray (a cluster)."""
    workers: int = 0
    """Processes; 0 for one per core."""
    ray_address: str | None = None
    """Address of a running Ray cluster."""
    device: str = "cpu"
    """Torch device of networks and critics: cpu, cuda, cuda:1, …"""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Output folder, by default results/control/PRESET. One that holds another configuration is refused."""

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        arguments.choice("preset", self.preset, PRESETS)
        for name, given, options in (
            ("environments", self.environments, ENVIRONMENTS),
            ("critics", self.critics, CRITICS),
        ):
            for value in given or ():
                arguments.choice(name, value, options)
            if given is not None and (len(given) == 0 or len(set(given)) < len(given)):
                raise ValueError(f"{name}: expected at least one, each once, got {given!r}.")
        if self.steps is not None:
            arguments.integer("steps", self.steps, 1)
        arguments.seeds(1 if self.seeds is None else self.seeds, self.first_seed)
        check_execution(self.executor, self.workers, self.ray_address)
        self._check_choice()

    def _check_choice(self) -> None:
        """Refuses what the preset does not have, so that nothing asked for is left out in silence."""
        cells = self.cells()
        way = "try the preset 'full'" if self.preset != "full" else "take 'default', which is the same there"
        found = {"environments": {cell.environment for cell in cells}, "critics": {cell.critic for cell in cells}}
        for name, given in (("environments", self.environments), ("critics", self.critics)):
            missing = [each for each in given or () if each not in found[name]]
            if missing:
                raise ValueError(
                    f"{name}: the preset {self.preset!r} has no such run with {', '.join(missing)}; {way}."
                )

    @property
    def folder(self) -> Path:
        """The output folder."""
        return Path("results/control") / self.preset if self.out is None else self.out

    def cells(self) -> list[Cell]:
        """The training runs."""
        preset = PRESETS[self.preset]
        count = preset.seeds if self.seeds is None else self.seeds
        return [
            Cell(environment, critic, self.first_seed + i, self.steps or steps)
            for environment, steps, critics in preset.runs
            if self.environments is None or environment in self.environments
            for critic in critics
            if self.critics is None or critic in self.critics
            for i in range(count)
        ]
