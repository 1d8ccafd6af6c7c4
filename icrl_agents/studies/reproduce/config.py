"""The configuration of a reproduction; importing it does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from icrl_agents.settings import as_python
from icrl_envs import arguments


@dataclass(frozen=True, kw_only=True)
class ReproduceConfig:
    """Run a finished study once more, from what its folder says, and compare the rows.

    Prints a table with one row per column of each file: how many entries differ, by how much, and the verdict. The
    exit code is 1 if one differs by more than the tolerance. Times are not compared.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range; the message names it.
    """

    from_: Annotated[Path, tyro.conf.arg(name="from", metavar="FOLDER")]
    """Folder of the finished run; it is only read."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of the new run and its trajectories; default a temporary one, which is removed afterwards, and
    without what the study itself prints."""
    tolerance: float = 0.0
    """Largest difference of two numbers that are the same, relative to the larger one; 0 asks for equal digits."""
    trust: bool = False
    """Whether code that the folder names may be run: a saved policy, MODEL.zip, or an environment, MODULE:ID."""

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        arguments.real("tolerance", self.tolerance, 0.0)
        if self.out is not None and self.out.resolve().is_relative_to(self.from_.resolve()):
            raise ValueError(
                f"out: {self.out} is in {self.from_}, which is only read; choose another folder with --out."
            )
