"""The configuration of an evaluation; importing it does not import torch."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from icrl_agents.settings import as_python
from icrl_agents.studies.environments import check_policy, keywords
from icrl_envs import arguments

MISSING_SHARE = 0.05
"""Returns that lack more than this share of a constant reward's value are no ground truth."""
FORGOTTEN_SHARE = 0.01
"""By default as many sweeps are made as it takes until γ^L is below this."""
MOST_SWEEPS = 100_000
"""More sweeps than this are made on request only."""


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """Evaluate a policy in any Gymnasium environment in context, against what held-out episodes returned.

    Fits each evaluator on some episodes and compares its values with the Monte-Carlo returns of others. Observations
    are flattened, and standardised by the context's mean and deviation; kernel widths are chosen on the context
    alone, by the returns of one half of its episodes under a fit on the other. Prints a table and writes config.json,
    rows.csv and three figures: calibration, the value along an episode, and effective sample sizes.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range; the message names it.
    """

    env_id: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV_ID")]]
    """Any Gymnasium id whose observations are no pixels, such as CartPole-v1 or icrl/BoyanChain-v0."""
    policy: str = "random"
    """random; scripted (MetaWorld's own, in icrl/MetaWorld-v0); or MODEL.zip, a saved Stable-Baselines3 model, whose
    deterministic actions are taken. Loading
    one unpickles parts of it, which can run any code: name only files that you trust. It sees observations as they
    are: the statistics of a VecNormalize are not in that file."""
    epsilon: float = 0.0
    """Share of the steps with a random action instead of the policy's, 0 to 1."""
    env_args: tuple[str, ...] = ()
    """Arguments of the environment, NAME=VALUE each, such as num_states=20."""
    context_episodes: int = 10
    """Episodes to fit on, at least 2."""
    held_out_episodes: int = 10
    """Episodes to compare with."""
    max_episode_steps: int = 500
    """Length in steps at which an episode is cut as truncated; the environment's own limit holds too."""
    max_transitions: int = 3000
    """Transitions beyond which the context is cut: kernel evaluators hold a square matrix of it."""
    gamma: float = 0.95
    """Discount, in [0, 1)."""
    seeds: int = 3
    """Number of seeds, each with episodes of its own. Reported: mean ± standard error."""
    first_seed: int = 0
    """The first of the seeds; the others follow it."""
    kernel: Literal["laplace", "rbf"] = "laplace"
    """Kernel of all kernel evaluators."""
    depth: int | None = None
    """Number of sweeps; by default as many as it takes until gamma^depth is below 0.01."""
    tail: int | None = None
    """Returns of truncated episodes count with at least this many rewards; by default so many that gamma^tail is below
    0.05."""
    ridge: float = 0.001
    """Ridge of LSTD and kernel LSTD."""
    device: str = "cpu"
    """Torch device of the evaluators: cpu, cuda, cuda:1, …"""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Output folder, by default results/evaluate/ENV_ID. One that holds another configuration is refused."""

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        check_policy(self.policy, self.epsilon)
        keywords(self.env_args)
        minima = {"context_episodes": 2, "held_out_episodes": 1, "max_episode_steps": 1, "max_transitions": 10}
        for name, minimum in {**minima, "depth": 0, "tail": 1}.items():
            if getattr(self, name) is not None:
                arguments.integer(name, getattr(self, name), minimum)
        arguments.seeds(self.seeds, self.first_seed)
        arguments.discount(self.gamma)
        arguments.choice("kernel", self.kernel, ("laplace", "rbf"))
        arguments.real("ridge", self.ridge, 0.0)
        if self.depth is None and self.num_sweeps > MOST_SWEEPS:
            raise ValueError(
                f"gamma: at {self.gamma}, {self.num_sweeps} sweeps would be made; take a smaller gamma, or say how "
                "many are enough with --depth."
            )

    @property
    def folder(self) -> Path:
        """The output folder."""
        return self.out or Path("results/evaluate") / re.sub(r"[^\w.-]+", "-", self.env_id)

    @property
    def num_sweeps(self) -> int:
        """Number of sweeps L."""
        return self._steps_until(FORGOTTEN_SHARE) if self.depth is None else self.depth

    @property
    def min_tail(self) -> int:
        """Rewards that the return of a truncated episode must hold to count."""
        return self._steps_until(MISSING_SHARE) if self.tail is None else self.tail

    def _steps_until(self, share: float) -> int:
        return 1 if self.gamma <= share else math.ceil(math.log(share) / math.log(self.gamma))
