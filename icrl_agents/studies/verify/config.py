"""The configuration of the verification; importing it does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import tyro

from icrl_agents.settings import as_python
from icrl_envs import arguments

Topic = Literal["constructions", "attention", "convergence", "floor", "fixed-points", "invariances", "rkhs", "neu"]
TOPICS: tuple[Topic, ...] = get_args(Topic)
MOST_CHAINS = 100_000
"""All chains of a claim are in memory at once."""
TAKEN_BY: dict[str, tuple[Topic, ...]] = {
    "chains": ("convergence", "floor", "rkhs"),
    "device": ("constructions", "attention", "floor", "fixed-points", "invariances", "rkhs"),
}
"""Options that some topics alone depend on."""


@dataclass(frozen=True, kw_only=True)
class VerifyConfig:
    """Check every theorem on this machine.

    Prints a table with one row per claim: what, on what, what was measured, its bound and the verdict. Writes
    config.json, rows.csv and a figure for each of the topics convergence, floor and neu. The exit code is 1 if a row
    fails.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range; the message names it.
    """

    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("results/verify")
    """Output folder. One that holds another configuration is refused."""
    topics: tuple[Topic, ...] = TOPICS
    """What to check."""
    chains: int = 128
    """Number of random chains behind each rate and slope, 16 at most for rates of finite contexts; a claim on RKHS
    processes takes the median over an eighth as many, at least 4, one on the expected update over twelve."""
    first_seed: int = 0
    """The first task seed; the others follow it."""
    device: str = "cpu"
    """Torch device of contexts and transformers: cpu, cuda, cuda:1, …; population limits and NEU are of the cpu."""

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        arguments.integer("chains", self.chains, 4, MOST_CHAINS)
        arguments.integer("first_seed", self.first_seed, 0, 2**31)
        for topic in self.topics:
            arguments.choice("topics", topic, TOPICS)
        if not self.topics or len(set(self.topics)) < len(self.topics):
            raise ValueError(f"topics: expected at least one of {', '.join(TOPICS)}, and each once.")
        for name, topics in TAKEN_BY.items():
            if getattr(self, name) != getattr(VerifyConfig, name) and not set(topics) & set(self.topics):
                raise ValueError(f"{name}: {', '.join(self.topics)} would not change with it; leave it out.")
