"""Observations on three scales: as they are, standardised, and with the spread of MetaWorld's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from icrl_agents.distances import median_distance
from icrl_agents.episode import Episode
from icrl_agents.studies.evaluate.features import Standardisation

RAW, STANDARDISED, MATCHED = "raw", "standardised", "matched"
SCALES = (RAW, STANDARDISED, MATCHED)
SPREAD = 0.3
"""Median distance between two states of a MetaWorld context, in metres: the frozen kernels were made for it. It is
0.295 over the five domains of the transfer study at three noise levels and two seeds."""

Scale = Callable[[Sequence[Episode]], list[Episode]]


def scale_of(name: str, context: Sequence[Episode]) -> Scale:
    """Returns the map of observations to a scale, by the statistics of the context alone.

    Args:
        name: ``"raw"``; ``"standardised"``, each dimension to mean 0 and deviation 1; or ``"matched"``, that and then
            all to a median distance of 0.3.
        context: Its episodes.
    """
    if name == RAW:
        return list
    standardised = Standardisation(context)
    if name == STANDARDISED:
        return standardised
    states = np.concatenate([episode.observations[:-1] for episode in standardised(context)])
    factor = SPREAD / float(median_distance(torch.as_tensor(states)))
    return lambda episodes: [replace(e, observations=e.observations * factor) for e in standardised(episodes)]


def scaled(scale: Scale, observations: np.ndarray) -> np.ndarray:
    """Single observations ``(m, d)`` on a scale, float64."""
    return scale([Episode(observations, np.zeros(len(observations) - 1))])[0].observations.astype(np.float64)
