"""The configuration of the improvement study; importing it imports neither torch nor the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from icrl_agents.execution import ExecutorName, check_execution
from icrl_agents.settings import as_python
from icrl_envs import arguments
from icrl_envs.metaworld.domains import domain_name, noise_scale

MOST_ROUNDS = 1_000
"""Rounds have the streams from 0 on, and the test the one after them."""


@dataclass(frozen=True, kw_only=True)
class ImproveConfig:
    """Improve noisy scripted policies of MetaWorld with advantages from an in-context critic; nothing is trained.

    The policy is a = clip(g π(s) + σ ε), π the domain's script, g = 1 at first, one gain for each dimension of the
    action. Each round collects trajectories, asks a critic (weighted softmax TD with fixed weights) for advantages,
    and moves the gains to where they point. Beside it: returns in place of a critic, and, as a control experiment,
    the critic's advantages shuffled. Policies are evaluated with the same noise, on goals of the test split. Prints
    a table and writes config.json, rows.csv and a figure. An interrupted run goes on where it was.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range; the message names it.
    """

    domains: tuple[str, ...] = ("reach-v3", "plate-slide-v3", "pick-place-v3")
    """MetaWorld v3 domains."""
    noise: str = "high"
    """Policy noise: high, mid, low (standard deviation 1.0, 0.5, 0.1 of the action range [-1, 1]) or a number > 0."""
    seeds: int = 5
    """Number of seeds per domain; each has its own goals and noise."""
    first_seed: int = 1
    """The first of the seeds; the others follow it. The settings below were chosen on the goals of seed 0."""
    rounds: int = 3
    """Rounds of collection and improvement."""
    episodes: int = 45
    """Trajectories collected in each round, with goals of the training split."""
    test_episodes: int = 25
    """Trajectories on which a policy is evaluated, with goals of the test split."""
    steps: int = 200
    """Steps of each trajectory, 1 to 500."""
    gamma: float = 0.97
    """Discount, in [0, 1)."""
    gae_lambda: float = 0.95
    """Lambda of the advantages, in [0, 1]."""
    length_scale: float = 0.1
    """Length scale of the critic's Laplace kernel, in units of the observation, mostly metres."""
    depth: int = 50
    """Number of the critic's layers."""
    folds: int = 3
    """Parts of a round's trajectories; the critic of each is fitted on another."""
    largest_factor: float = 2.0
    """The most by which a round changes a gain, > 1."""
    caution: float = 2.0
    """Advantages this many standard errors from 0 move a gain by 71 % of the most, on a logarithmic scale."""
    executor: ExecutorName = "processes"
    """Where the cells are computed: serial (here), processes (of this machine) or ray (a cluster)."""
    workers: int = 0
    """Processes; 0 for one per core."""
    ray_address: str | None = None
    """Address of a running Ray cluster."""
    device: str = "cpu"
    """Torch device of the critic: cpu, cuda, cuda:1, …"""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("results/improve")
    """Output folder. One that holds another configuration is refused."""

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        for domain in self.domains:
            domain_name(domain)
        if len(self.domains) == 0 or len(set(self.domains)) < len(self.domains):
            raise ValueError("domains: expected at least one, and each once.")
        if self.sigma == 0.0:
            raise ValueError("noise: expected more than 0, since advantages compare actions; got 0.")
        arguments.integer("rounds", self.rounds, 1, MOST_ROUNDS)
        arguments.integer("test_episodes", self.test_episodes, 1)
        arguments.integer("folds", self.folds, 2)
        arguments.integer("episodes", self.episodes, self.folds)
        arguments.integer("steps", self.steps, 1, 500)
        arguments.seeds(self.seeds, self.first_seed)
        arguments.integer("depth", self.depth, 0)
        arguments.discount(self.gamma)
        arguments.real("gae_lambda", self.gae_lambda, 0.0, 1.0)
        arguments.real("length_scale", self.length_scale, 0.0, low_open=True)
        arguments.real("largest_factor", self.largest_factor, 1.0, low_open=True)
        arguments.real("caution", self.caution, 0.0)
        check_execution(self.executor, self.workers, self.ray_address)

    @property
    def sigma(self) -> float:
        """Standard deviation σ of the noise."""
        try:
            return noise_scale(float(self.noise))
        except ValueError:
            return noise_scale(self.noise)
