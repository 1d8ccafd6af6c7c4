"""Interquartile means over seeds, with bootstrap intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RESAMPLES = 1000
ENDS = (0.025, 0.975)
"""Of the 95 % intervals."""


@dataclass(frozen=True, eq=False)
class Band:
    """An interquartile mean and its confidence interval, each of the shape that was asked for.

    Args:
        centre: Interquartile mean.
        low: Lower end of the 95 % interval.
        high: Upper end; not finite where samples are not in more than 2.5 % of the resamples' middle halves.
    """

    centre: np.ndarray
    low: np.ndarray
    high: np.ndarray


def interquartile_mean(samples: np.ndarray) -> np.ndarray:
    """Mean of the middle half along the first axis, the samples at its ends counted in part.

    What lies outside that half is not read, infinities neither; NaN counts as larger than every number.

    Args:
        samples: ``(n, …)`` with n ≥ 1.

    Returns:
        ``(…)``.
    """
    ordered = np.sort(samples, axis=0)
    n = len(ordered)
    edges = np.arange(n + 1) / n
    share = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0.0, None)
    middle = share > 0.0
    return np.tensordot(share[middle] / share.sum(), ordered[middle], axes=1)


def bootstrap_band(strata: list[np.ndarray], rng: np.random.Generator) -> Band:
    """Interquartile mean of all samples, with the percentile interval of a stratified bootstrap.

    Each resample draws, with replacement, as many seeds from every stratum as it has.

    Args:
        strata: One array ``(seeds, …)`` per condition.
        rng: Source of the resamples.
    """
    draws = []
    for _ in range(RESAMPLES):
        chosen = [stratum[rng.integers(len(stratum), size=len(stratum))] for stratum in strata]
        draws.append(interquartile_mean(np.concatenate(chosen)))
    with np.errstate(invalid="ignore"):  # between two infinities
        low, high = np.quantile(np.nan_to_num(draws, nan=np.inf, posinf=np.inf, neginf=-np.inf), ENDS, axis=0)
    return Band(interquartile_mean(np.concatenate(strata)), low, high)
