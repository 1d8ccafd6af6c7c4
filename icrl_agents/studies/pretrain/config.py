"""The configuration of the pretraining study; importing it does not import torch."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from icrl_agents.pretraining.config import PretrainConfig
from icrl_agents.settings import as_python
from icrl_envs import arguments

DEPTH = 60
"""A depth L at which γ^L is small, so that no weight makes up for missing sweeps; deeper loops then work too."""
PRESETS: dict[str, PretrainConfig] = {
    "boyan": PretrainConfig(num_features=20, num_layers=DEPTH, evaluation_tasks=256),
    "boyan-paper": PretrainConfig(
        num_features=40,
        context_length=100,
        num_layers=80,
        min_layers=50,
        steps=10_000,
        evaluation_tasks=256,
    ),
    "loop": PretrainConfig(chain="loop", num_features=20, num_layers=DEPTH, evaluation_tasks=256),
    "cartpole": PretrainConfig(
        chain="cartpole", context_length=40, num_layers=20, precision="float32", steps=1000, evaluate_every=50
    ),
    "full": PretrainConfig(
        num_states=5,
        context_length=30,
        num_layers=5,
        parametrisation="full",
        precision="float32",
        steps=2000,
        evaluation_tasks=256,
    ),
    "linear": PretrainConfig(
        form="linear",
        features="random",
        num_features=4,
        context_length=30,
        num_layers=3,
        tasks=1,
        contexts=64,
        updates=5,
        steps=20_000,
        learning_rate=0.001,
        weight_decay=1e-6,
        initial_scale=0.1,
        evaluate_every=500,
        evaluation_tasks=256,
    ),
}
SEEDS = {"boyan": 3, "boyan-paper": 10, "loop": 3, "cartpole": 3, "full": 3, "linear": 1}


@dataclass(frozen=True, kw_only=True)
class PretrainStudyConfig:
    """Pretrain in-context transformers from small random weights and watch the construction emerge.

    Trains one transformer per seed on fresh random tasks; measures its weights, its attention and its values on
    held-out tasks along the way; then tests it on more states, longer contexts and deeper loops. Prints a table and
    writes config.json, rows.csv, generalisation.csv, three figures and a checkpoint per seed. An interrupted run goes
    on where it was.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range; the message names it.
    """

    preset: tyro.conf.Positional[Literal["boyan", "boyan-paper", "loop", "cartpole", "full", "linear"]] = "boyan"
    """boyan: softmax, 10 states, 60 layers, a minute. boyan-paper: longer contexts and training, 10 seeds. loop: boyan
    on random ergodic chains. cartpole: CartPole with random physics, measured against Monte-Carlo returns. full: all
    weights free. linear: linear attention, 4 features, 3 layers, 4,000 chains."""
    seeds: int | None = None
    """Number of seeds; the preset's own by default (10 for boyan-paper, 1 for linear, 3 for the others)."""
    first_seed: int = 0
    """The first of the seeds; the others follow it."""
    chain: Literal["boyan", "loop"] | None = None
    """Task distribution, if not the preset's. This and what follows is described under icrl_agents.pretraining."""
    form: Literal["temporal_shift", "dual_head", "linear"] | None = None
    """Kind of layer, if not the preset's."""
    parametrisation: Literal["minimal", "full"] | None = None
    """Free weights, if not the preset's."""
    trace_decay: float | None = None
    """λ of linear layers, if not the preset's 0."""
    algorithm: Literal["td", "residual_gradient", "average_reward"] | None = None
    """What linear layers train towards, if not the preset's td."""
    tied: bool | None = None
    """Whether one layer is looped, if not as in the preset."""
    loss: Literal["td", "mc", "neu", "value"] | None = None
    """Loss, if not the preset's."""
    expectations: bool | None = None
    """Whether td and neu sum over queries, if not as in the preset."""
    features: Literal["one_hot", "random"] | None = None
    """Features, if not the preset's."""
    representable: bool | None = None
    """Whether values are linear in the features, if not as in the preset."""
    num_features: int | None = None
    """Dimension of the features, if not the preset's."""
    num_states: int | None = None
    """Number of states, if not the preset's."""
    context_length: int | None = None
    """Transitions in a context, if not the preset's."""
    num_layers: int | None = None
    """Depth, if not the preset's."""
    min_layers: int | None = None
    """Shallowest depth, if not the preset's."""
    windows: int | None = None
    """TD errors of each trajectory in a step, from contexts that slide along it; by default one."""
    steps: int | None = None
    """Steps of training, if not the preset's."""
    learning_rate: float | None = None
    """Learning rate, if not the preset's."""
    weight_decay: float | None = None
    """Weight decay, if not the preset's."""
    tensorboard: bool = False
    """Whether the measurements are also written for TensorBoard into seed_K/; this takes pip install tensorboard."""
    device: str = "cpu"
    """Torch device of the training: cpu, cuda, cuda:1, …"""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Output folder, by default results/pretrain/PRESET. One that holds another configuration is refused."""

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        arguments.choice("preset", self.preset, PRESETS)
        arguments.seeds(1 if self.seeds is None else self.seeds, self.first_seed)
        self._check_cartpole()
        self.trainings()

    @property
    def folder(self) -> Path:
        """The output folder."""
        return Path("results/pretrain") / self.preset if self.out is None else self.out

    def _check_cartpole(self) -> None:
        given = [name for name in ("num_states", "features") if getattr(self, name) is not None]
        if given and (self.chain or PRESETS[self.preset].chain) == "cartpole":
            value = getattr(self, given[0])
            raise ValueError(f"{given[0]}: expected none for cartpole, whose states are seen, got {value}.")

    def trainings(self) -> list[PretrainConfig]:
        """The configuration of each seed's training."""
        names = {field.name for field in dataclasses.fields(PretrainConfig)}
        changes: dict[str, Any] = {
            name: value for name, value in dataclasses.asdict(self).items() if name in names and value is not None
        }
        config = dataclasses.replace(PRESETS[self.preset], **changes)
        count = SEEDS[self.preset] if self.seeds is None else self.seeds
        return [dataclasses.replace(config, seed=self.first_seed + i) for i in range(count)]
