"""The actor: a stochastic policy on a small network, whose randomness is an argument."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

from icrl_agents.collection.recorder import flattening

HIDDEN_GAIN, OUTPUT_GAIN = math.sqrt(2.0), 0.01
"""Gains of the orthogonal first weights; the small one makes the first policy almost independent of the state."""


class Actor(nn.Module):
    """Policy π(a | x): categorical over discrete actions, diagonal Gaussian over those of a box; in float32.

    It is a policy for ``FixedPolicy`` and ``collect``, which take its most likely actions.

    Args:
        observation_space: Of one environment; any that flattens to a vector, of d numbers.
        action_space: A ``Discrete`` space, or a ``Box`` of floats, to whose bounds actions are clipped.
        hidden: Widths of the hidden layers, with tanh between them.
        generator: Source of the first weights.

    Attributes:
        normalised: Whether it was trained on what ``NormalizeObservation`` makes of observations; None if not known.
        wrappers: Numbers of the wrappers, by name, that changed what it saw or did in training; None if not known.

    Raises:
        TypeError: If a space is of another kind.
        ValueError: If observations are pixels.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        hidden: Sequence[int],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        flattening(observation_space)
        self.observation_space, self.action_space = observation_space, action_space
        self.normalised: bool | None = None
        self.wrappers: Counter[str] | None = None
        if isinstance(action_space, spaces.Discrete):
            size = int(action_space.n)
        elif isinstance(action_space, spaces.Box) and np.issubdtype(action_space.dtype, np.floating):
            size = int(np.prod(action_space.shape))
            self.log_deviation = nn.Parameter(torch.zeros(size, dtype=torch.float32, device="cpu"))
        else:
            raise TypeError(f"action_space: expected Discrete or a Box of floats, got {action_space}.")
        widths = [spaces.flatdim(observation_space), *hidden]
        layers: list[nn.Module] = []
        for width, following in pairwise(widths):
            layers += [_linear(width, following, HIDDEN_GAIN, generator), nn.Tanh()]
        self.network = nn.Sequential(*layers, _linear(widths[-1], size, OUTPUT_GAIN, generator))

    def forward(self, states: Tensor) -> Distribution:
        """π(· | x) of flat states ``(m, d)``."""
        output = self.network(states.float())
        if isinstance(self.action_space, spaces.Discrete):
            return Categorical(logits=output, validate_args=False)
        return Independent(Normal(output, self.log_deviation.exp(), validate_args=False), 1, validate_args=False)

    def sample(self, states: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Actions drawn from π(· | x), integers ``(m,)`` or unclipped numbers ``(m, k)``, and their log π, ``(m,)``."""
        with torch.no_grad():
            policy = self(states)
            if isinstance(policy, Categorical):
                actions = torch.multinomial(policy.probs, 1, generator=generator)[:, 0]
            else:
                noise = torch.randn(policy.mean.shape, generator=generator, dtype=policy.mean.dtype, device="cpu")
                actions = policy.mean + policy.stddev * noise
            return actions, policy.log_prob(actions)

    def fitting(self, actions: Tensor) -> list[Any]:
        """Sampled actions as the space wants them: integers from its start, or arrays within its bounds."""
        space = self.action_space
        if isinstance(space, spaces.Box):
            array = actions.numpy().reshape(-1, *space.shape)
            return list(np.clip(array, space.low, space.high).astype(space.dtype))
        start = int(space.start)  # type: ignore[attr-defined]
        return [start + action for action in actions.tolist()]

    def get_action(self, observation: Any) -> Any:  # noqa: ANN401 - of any space
        """The most likely action at one observation; ValueError of one that is not finite in float32."""
        row = torch.from_numpy(flattening(self.observation_space)(observation)).float()
        if not bool(row.isfinite().all()):
            raise ValueError(f"observation: expected numbers that are finite in float32, got {observation}.")
        with torch.no_grad():
            mode = self(row[None]).mode
        return self.fitting(mode)[0]


def _linear(width: int, following: int, gain: float, generator: torch.Generator) -> nn.Linear:
    layer = cast(
        nn.Linear, nn.utils.skip_init(nn.Linear, width, following, dtype=torch.float32, device="cpu")
    )  # draws nothing globally
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
