"""The configuration of the adaptation study; importing it imports neither torch nor the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from icrl_agents.execution import ExecutorName
from icrl_agents.settings import as_python
from icrl_agents.studies.transfer.config import TransferConfig
from icrl_envs import arguments


@dataclass(frozen=True, kw_only=True)
class AdaptConfig:
    """Compare kernels that adapt to each context with single kernels fixed for all of them, on MetaWorld domains.

    For every domain, noise level and seed: fit a bank of kernels on some trajectories of the scripted policy plus
    noise, mix it by what these trajectories show of themselves, and measure the mixture and each fixed kernel on
    others, whose goals have not been seen. Prints a table and writes config.json, rows.csv and two figures.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range; the message names it.
    """

    domains: tuple[str, ...] = TransferConfig.domains
    """MetaWorld v3 domains; `all` for all 50."""
    noise: tuple[str, ...] = TransferConfig.noise
    """Policy noise: high, mid, low (standard deviation 1.0, 0.5, 0.1 of the action range [-1, 1]) or a number."""
    seeds: int = 3
    """Number of seeds per cell; losses are averaged over them before methods are compared."""
    first_seed: int = 0
    """The first of the seeds; the others follow it."""
    context_episodes: int = 5
    """Trajectories to fit on; with fewer than 3 there is nothing to adapt to, and the default is taken."""
    held_out_episodes: int = 5
    """Trajectories to evaluate on, with goals of the test split."""
    steps: int = 200
    """Steps of each trajectory, 1 to 500."""
    tail: int = 100
    """Value errors count the states with at least this many rewards in their Monte-Carlo return; gamma^tail ≤ 0.05."""
    gamma: float = 0.9
    """Discount, in [0, 1)."""
    depth: int = 80
    """Sweeps of each kernel; a quarter of it is the other depth to choose from."""
    caution: float = 2.0
    """Standard errors by which a mixture must beat the default within the context; 0 trusts the mean."""
    return_weight: float = 1.0
    """Weight of the errors against Monte-Carlo returns beside the TD errors in the choice, both within the context."""
    continuations: int = 0
    """Value errors against ground truth as well: returns of each of its states, from exact snapshots; 0 for none."""
    truth_states: int = 5
    """States of each held-out trajectory whose ground truth is taken."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("results/adapt")
    """Output folder. One that holds another configuration is refused; one that holds unfinished work of this one is
    gone on with."""
    cache: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of collected trajectories, shared with icrl transfer; default ~/.cache/icrl/trajectories."""
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
        arguments.integer("depth", self.depth, 1)
        arguments.real("caution", self.caution, 0.0)
        arguments.real("return_weight", self.return_weight, 0.0)

    @property
    def depths(self) -> tuple[int, ...]:
        """The depths to choose from."""
        return (max(1, self.depth // 4), self.depth)

    def transfer(self) -> TransferConfig:
        """The configuration whose cells and trajectories these are."""
        shared = ("domains", "noise", "seeds", "first_seed", "context_episodes", "held_out_episodes", "steps", "tail")
        truth = ("gamma", "continuations", "truth_states")
        where = ("cache", "executor", "workers", "ray_address", "device")
        return TransferConfig(**{name: getattr(self, name) for name in (*shared, *truth, *where)})
