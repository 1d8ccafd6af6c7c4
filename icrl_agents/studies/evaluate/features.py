"""Features in which distances mean something: observations on the scale of the context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from icrl_agents.episode import Episode


class Standardisation:
    """Observations on the scale of a context: z = (x − mean)/deviation in each dimension.

    Dimensions that are 0 or 1 throughout the context stay as they are, since one-hot states are all equally far from
    each other already; a dimension that is constant in it becomes 0.

    Args:
        episodes: The context's, whose statistics are taken; their final observations count as well.
    """

    def __init__(self, episodes: Sequence[Episode]) -> None:
        x = np.concatenate([episode.observations for episode in episodes]).astype(np.float64)
        binary = np.isin(x, (0.0, 1.0)).all(0)
        deviation = x.std(0)
        constant = deviation <= 1e-12 * np.maximum(1.0, np.abs(x).max(0))
        self._mean = np.where(binary, 0.0, x.mean(0))
        self._factor = np.where(binary, 1.0, np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation)))

    def __call__(self, episodes: Sequence[Episode]) -> list[Episode]:
        """The episodes with standardised observations, float64."""
        return [replace(e, observations=(e.observations - self._mean) * self._factor) for e in episodes]


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
