"""The configuration of a collection; importing it does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from icrl_agents.settings import as_python
from icrl_agents.studies.environments import check_policy, keywords
from icrl_envs import arguments


@dataclass(frozen=True, kw_only=True)
class CollectConfig:
    """Run a policy in any Gymnasium environment and keep what it did, as an npz file or as a Minari dataset.

    Prints how many episodes there are and what they earned. Python reads the file with
    `icrl_agents.load_episodes(FILE)`, the dataset with `icrl_agents.Context.from_minari(ID, gamma)`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range; the message names it.
    """

    env_id: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV_ID")]]
    """Any Gymnasium id, such as CartPole-v1, icrl/BoyanChain-v0 or module:Id-v0."""
    policy: str = "random"
    """random; scripted (MetaWorld's own, in icrl/MetaWorld-v0); or MODEL.zip, a saved Stable-Baselines3 model, whose
    deterministic actions are taken. Loading
    one unpickles parts of it, which can run any code: name only files that you trust. It sees observations as they
    are: the statistics of a VecNormalize are not in that file."""
    epsilon: float = 0.0
    """Share of the steps with a random action instead of the policy's, 0 to 1."""
    env_args: tuple[str, ...] = ()
    """Arguments of the environment, NAME=VALUE each, such as num_states=20."""
    num_episodes: int | None = None
    """Number of episodes; either this or --num-steps."""
    num_steps: int | None = None
    """Number of steps, at which the last episode is cut as truncated."""
    max_episode_steps: int | None = None
    """Length in steps at which an episode is cut as truncated; the environment's own limit holds too."""
    seed: int = 0
    """Of the environment and, as an independent stream, of the policy."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE.npz")] = None
    """The file to write; either this or --minari. One that exists is refused."""
    minari: Annotated[str | None, tyro.conf.arg(metavar="DATASET_ID")] = None
    """The Minari dataset to write, such as cartpole/random-v0, where Minari looks for it ($MINARI_DATASETS_PATH or
    ~/.minari/datasets). One that exists is refused."""

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        check_policy(self.policy, self.epsilon)
        keywords(self.env_args)
        for name in ("num_episodes", "num_steps", "max_episode_steps"):
            if getattr(self, name) is not None:
                arguments.integer(name, getattr(self, name), 1)
        arguments.integer("seed", self.seed, 0)
        for names in (("num_episodes", "num_steps"), ("out", "minari")):
            if sum(getattr(self, name) is not None for name in names) != 1:
                options = " and ".join("--" + name.replace("_", "-") for name in names)
                raise ValueError(f"expected exactly one of {options}.")
        if self.out is not None and self.out.suffix != ".npz":
            raise ValueError(f"out: expected a file named *.npz, got {self.out}.")
