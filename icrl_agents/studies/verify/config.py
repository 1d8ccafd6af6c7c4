"""The configuration of the verification; importing it does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import tyro

from icrl_envs import arguments

Topic = Literal["constructions", "attention", "convergence", "floor", "fixed-points", "invariances", "rkhs", "neu"]
TOPICS: tuple[Topic, ...] = get_args(Topic)
MOST_CHAINS = 100_000
"""All chains of a claim are in memory at once."""


@dataclass(frozen=True, kw_only=True)
class VerifyConfig:
    """Check every theorem on this machine.

    Prints a table with one row per claim: what, on what, what was measured, its bound and the verdict. Writes
    config.json, rows.csv and three figures. The exit code is 1 if a row fails.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range; the message names it.
    """

    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("results/verify")
    """Output folder. One that holds another configuration is refused."""
    topics: tuple[Topic, ...] = TOPICS
    """What to check."""
    chains: int = 128
    """Number of random chains behind each rate and slope; an RKHS claim takes the median over a quarter of them,
    one on the expected update over twelve."""
    first_seed: int = 0
    """The first task seed; the others follow it."""
    device: str = "cpu"
    """Torch device: cpu, cuda, cuda:1, …"""

    def __post_init__(self) -> None:
        """Checks the arguments."""
        arguments.integer("chains", self.chains, 4, MOST_CHAINS)
        arguments.integer("first_seed", self.first_seed, 0, 2**31)
        if not self.topics or len(set(self.topics)) < len(self.topics):
            raise ValueError(f"topics: expected at least one of {', '.join(TOPICS)}, and each once.")
