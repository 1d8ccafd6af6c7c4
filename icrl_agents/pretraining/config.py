"""The configuration of pretraining; importing it does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from icrl_agents.settings import as_python
from icrl_envs import arguments

CHAINS = ("boyan", "loop", "cartpole")
FORMS = ("temporal_shift", "dual_head", "linear")
LOSSES = ("td", "mc", "neu", "value")
ALGORITHMS = ("td", "residual_gradient", "average_reward")
MOST_FEATURES = 20_000
"""Weights are d × d, 3.2 GB of float64; more are taken for a slip."""


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """Which transformer is trained on which tasks, and how.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range or contradicts another; the message names it.
    """

    chain: Literal["boyan", "loop", "cartpole"] = "boyan"
    """Task distribution: random Boyan's chains, random ergodic chains, or CartPole with random physics."""
    num_states: int = 10
    """States S of each chain."""
    features: Literal["one_hot", "random"] = "one_hot"
    """Features of the states, fresh for each task: distinct unit vectors in random order, or U(−1, 1)."""
    num_features: int | None = None
    """Dimension d of the features: default S (one-hot, where d ≥ S) or 4 (random)."""
    representable: bool = False
    """Whether rewards are drawn such that the value is linear in the features."""
    gamma: float = 0.9
    """Discount, in [0, 1)."""
    context_length: int = 60
    """Transitions n in each context."""
    num_layers: int = 10
    """Depth L."""
    min_layers: int | None = None
    """With one looped layer: each step draws its depth from here to L, so that no single depth is fitted."""
    form: Literal["temporal_shift", "dual_head", "linear"] = "temporal_shift"
    """Layers: softmax with one head and the Temporal Shift Module, softmax with two heads, or linear attention."""
    parametrisation: Literal["minimal", "full"] = "minimal"
    """Free weights of a softmax layer: the score matrix and the value weights, or all of V and A. P and Q always."""
    trace_decay: float = 0.0
    """λ in [0, 1] of the mask of linear layers, which then train towards TD(λ); 0 is TD(0)."""
    algorithm: Literal["td", "residual_gradient", "average_reward"] = "td"
    """What linear layers train towards. residual_gradient: the td loss keeps the gradient of its target.
    average_reward: two heads over a prompt without γ; losses and values are the differential ones."""
    tied: bool = True
    """Whether one layer is looped; otherwise each has its own weights."""
    loss: Literal["td", "mc", "neu", "value"] = "td"
    """Semi-gradient TD, Monte-Carlo, norm of the expected update, or error against the exact value."""
    expectations: bool = False
    """Whether td and neu sum over the stationary distribution and the next state, where the chain is known."""
    horizon: int = 40
    """Rewards in each Monte-Carlo return."""
    tasks: int = 64
    """Tasks in a step."""
    contexts: int = 1
    """Contexts of each task in a step."""
    windows: int | None = None
    """TD errors of each trajectory in a step: so many contexts, and one more, slide along it, one transition apart,
    and the target is read from the next. By default there is one, and both values are read from the same context."""
    updates: int = 1
    """Steps, each with fresh contexts, before the tasks are drawn anew."""
    steps: int = 3000
    """Steps of Adam."""
    learning_rate: float = 0.01
    """Learning rate of Adam at the first step."""
    decay: bool = True
    """Whether the learning rate falls linearly, to 0 after the last step; otherwise it stays."""
    weight_decay: float = 0.0
    """Weight decay of Adam, added to the gradient."""
    max_norm: float = 1.0
    """Norm at which gradients are clipped."""
    initial_scale: float = 0.02
    """Standard deviation of the initial weights, divided by √D for matrices (D, D)."""
    evaluate_every: int = 100
    """Steps between two rows of measurements."""
    evaluation_tasks: int = 64
    """Held-out tasks of the measurements."""
    precision: Literal["float32", "float64"] = "float64"
    """Floating type of the contexts, hence of the computation; weights are kept in float64."""
    device: str = "cpu"
    """Torch device: cpu, cuda, cuda:1, … Tasks are drawn on the processor, the same for every device."""
    seed: int = 0
    """Seed of the initial weights and of all tasks and contexts."""

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        choices = {"chain": CHAINS, "features": ("one_hot", "random"), "form": FORMS, "loss": LOSSES}
        choices |= {"precision": ("float32", "float64"), "algorithm": ALGORITHMS}
        for name, options in {**choices, "parametrisation": ("minimal", "full")}.items():
            arguments.choice(name, getattr(self, name), options)
        for name in ("context_length", "num_layers", "horizon", "tasks", "contexts", "updates", "evaluation_tasks"):
            arguments.integer(name, getattr(self, name), 1)
        arguments.integer("num_states", self.num_states, 2)
        arguments.integer("steps", self.steps, 0)
        arguments.integer("evaluate_every", self.evaluate_every, 1)
        arguments.integer("seed", self.seed, 0, 2**63 - 1)
        for name in ("representable", "tied", "expectations", "decay"):
            arguments.flag(name, getattr(self, name))
        if not isinstance(self.device, str):
            raise TypeError(f"device: expected the name of a torch device, such as 'cpu', got {self.device!r}.")
        gamma = arguments.discount(self.gamma)
        if self.precision == "float32" and np.float32(gamma) == 1:
            raise ValueError(f"gamma: {gamma!r} would be 1 in float32; take a smaller one, or precision 'float64'.")
        arguments.real("trace_decay", self.trace_decay, 0.0, 1.0)
        for name in ("initial_scale", "weight_decay"):
            arguments.real(name, getattr(self, name), 0.0)
        for name in ("learning_rate", "max_norm"):
            arguments.real(name, getattr(self, name), 0.0, low_open=True)
        self._check_features()
        self._check_combinations()
        self._check_algorithm()
        self._check_windows()
        self._check_effects()

    @property
    def dim(self) -> int:
        """Dimension d of the features."""
        if self.chain == "cartpole":
            return 4
        if self.num_features is not None:
            return self.num_features
        return self.num_states if self.features == "one_hot" else 4

    def _check_features(self) -> None:
        if self.num_features is None:
            arguments.integer("num_states", self.num_states, 2, MOST_FEATURES if self.features == "one_hot" else None)
            return
        if self.chain == "cartpole":
            raise ValueError(
                f"num_features: expected none for cartpole, whose states are seen, got {self.num_features}."
            )
        smallest = self.num_states if self.features == "one_hot" else 1
        arguments.integer("num_features", self.num_features, smallest, MOST_FEATURES)

    def _check_combinations(self) -> None:
        if self.form == "linear" and self.parametrisation == "full":
            raise ValueError("parametrisation: 'full' is for softmax layers; all of P and Q is free already.")
        if self.form != "linear" and self.trace_decay > 0:
            raise ValueError(f"trace_decay: expected form 'linear', whose mask it is, or 0, got form {self.form!r}.")
        if self.chain == "cartpole" and (self.loss == "value" or self.expectations or self.representable):
            raise ValueError(
                "chain: 'cartpole' has no known value or transition matrix; expected loss 'td', 'mc' or 'neu' with "
                "expectations and representable False, or another chain."
            )
        if self.expectations and self.loss not in ("td", "neu"):
            raise ValueError(f"expectations: expected loss 'td' or 'neu', got {self.loss!r}; 'value' always sums.")
        if self.min_layers is not None:
            arguments.integer("min_layers", self.min_layers, 1, self.num_layers)
            if not self.tied:
                raise ValueError("min_layers: expected one looped layer, got tied=False, whose depth is fixed.")
        if self.loss == "neu" and (self.tasks < 2 or (self.contexts > 1 and self.tasks % 2)):
            raise ValueError(
                "tasks: expected an even number for loss 'neu', which multiplies two halves of a step's contexts that "
                f"have tasks of their own, got {self.tasks}."
            )

    def _check_algorithm(self) -> None:
        if self.algorithm == "td":
            return
        losses = ("td",) if self.algorithm == "residual_gradient" else ("td", "value")
        if self.form != "linear" or self.trace_decay > 0 or self.loss not in losses:
            raise ValueError(
                f"algorithm: {self.algorithm!r} expects form 'linear', trace_decay 0 and loss {' or '.join(losses)}, "
                f"got {self.form!r}, {self.trace_decay} and {self.loss!r}."
            )
        if self.algorithm == "average_reward" and self.chain == "cartpole":
            raise ValueError("algorithm: 'average_reward' expects a chain that goes on for ever, got 'cartpole'.")

    def _check_windows(self) -> None:
        if self.windows is None:
            return
        arguments.integer("windows", self.windows, 1)
        if self.loss != "td" or self.expectations or self.algorithm != "td" or self.chain == "cartpole":
            raise ValueError(
                "windows: expected the sampled loss 'td', algorithm 'td' and a chain, whose states come again, got "
                f"loss {self.loss!r}, expectations {self.expectations}, {self.algorithm!r} and {self.chain!r}."
            )

    def _check_effects(self) -> None:
        """Refuses what would change nothing."""
        cartpole = self.chain == "cartpole"
        undiscounted = self.algorithm == "average_reward" and not self.representable
        for name, why in {
            "gamma": undiscounted and "none for average_reward, which discounts nothing",
            "num_states": cartpole and "none for cartpole, whose states are seen",
            "features": cartpole and "none for cartpole, whose states are seen",
            "horizon": self.loss != "mc" and "loss 'mc' beside it, whose returns it cuts",
        }.items():
            if why and getattr(self, name) != getattr(PretrainConfig, name):
                raise ValueError(f"{name}: expected {why}, got {getattr(self, name)!r}.")
        if self.form == "linear" and self.initial_scale == 0:
            raise ValueError("initial_scale: expected one above 0 for form 'linear', which stays at P = Q = 0, got 0.")
        if self.algorithm == "average_reward" and self.gamma == 0:
            raise ValueError("gamma: expected one above 0 for average_reward, whose transitions continue, got 0.")
        if cartpole:  # returns are compared with their mean
            arguments.integer("evaluation_tasks", self.evaluation_tasks, 2)
