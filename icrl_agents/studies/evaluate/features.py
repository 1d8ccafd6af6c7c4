"""Features in which distances mean something: observations on the scale of the context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from icrl_agents.episode import Episode
from icrl_agents.magnitudes import resolution

ROUNDING = 1e-12
"""Deviations of a dimension, in units of its largest entry, up to which it counts as constant; float32 allows more."""


class Standardisation:
    """Observations on the scale of a context: z = (x − mean)/deviation in each dimension.

    Dimensions that are 0 or 1 throughout the context stay as they are, since one-hot states are all equally far from
    each other already; a dimension that is constant in it, but for rounding, becomes 0. Units do not matter.

    Args:
        episodes: The context's, whose statistics are taken; their final observations count as well, but for those of
            terminations, which nothing reads and which may be marks.
    """

    def __init__(self, episodes: Sequence[Episode]) -> None:
        read = [each.observations[: len(each) + (not each.terminated)] for each in episodes]
        x = np.concatenate(read).astype(np.float64)
        binary = np.isin(x, (0.0, 1.0)).all(0)
        # In units of a power of two near the largest: squares stay in range, and nothing is rounded.
        self._unit = np.where(binary, 1.0, np.ldexp(1.0, np.frexp(np.abs(x).max(0))[1] - 1))
        rounded = resolution(torch.from_numpy(x))[0].numpy()  # before whole numbers are in units of their own
        x = x / self._unit
        deviation = x.std(0)
        constant = deviation <= np.maximum(ROUNDING, rounded)
        self._mean = np.where(binary, 0.0, x.mean(0))
        self._factor = np.where(binary, 1.0, np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation)))

    def __call__(self, episodes: Sequence[Episode]) -> list[Episode]:
        """The episodes with standardised observations, float64."""
        with np.errstate(invalid="ignore", over="ignore"):  # of what nothing reads
            return [
                replace(e, observations=(e.observations / self._unit - self._mean) * self._factor) for e in episodes
            ]


def shortened(episodes: Sequence[Episode], num_steps: int) -> list[Episode]:
    """The first ``num_steps`` transitions; an episode that is cut there is truncated."""
    kept: list[Episode] = []
    for episode in episodes:
        room = num_steps - sum(map(len, kept))
        if len(episode) <= room:
            kept.append(episode)
        elif room > 0:
            kept.append(Episode(episode.observations[: room + 1], episode.rewards[:room]))
    return kept


def with_constant(episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes with a 1 behind each observation: linear evaluators have no intercept."""
    return [replace(e, observations=np.pad(e.observations, ((0, 0), (0, 1)), constant_values=1.0)) for e in episodes]
