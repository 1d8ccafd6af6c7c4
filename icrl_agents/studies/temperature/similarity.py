"""Similarity of domains: what the kernel that is best in one domain costs in another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from icrl_agents.studies.temperature.summary import FLOOR, Measure, Summary


@dataclass(frozen=True)
class Similarity:
    """Loss in domain j (column) with the kernel chosen in domain i (row), over that with the one chosen in j itself.

    Args:
        ratios: Geometric means over noise levels and seeds, ``(domains, domains)``; 1 means that i's kernel serves j
            as well as its own.
        low: Lower ends of their 95 % intervals, Student's t over seeds; NaN for one seed.
        high: Upper ends.
        chosen: For each domain, the kernel and length scale that it chooses when all seeds are seen; – and NaN where
            none has a finite loss.
    """

    ratios: np.ndarray
    low: np.ndarray
    high: np.ndarray
    chosen: list[tuple[str, float]]


def similarity(summary: Summary, method: str, measure: Measure, kernels: Sequence[str]) -> Similarity:
    """Compares all pairs of domains.

    Each domain chooses the kernel and length scale with the least loss, averaged over its noise levels as logarithms.
    A choice is judged on one seed and made on the others, so that chance gains nothing, not even on its own domain.

    Args:
        summary: Rows of the study.
        method: softmax, kernel or ridge.
        measure: The loss.
        kernels: Kernels to choose from, each at every length scale.
    """
    losses = np.stack([_losses(summary, domain, method, measure, kernels) for domain in summary.domains])
    seeds, logs = len(summary.seeds), []
    for seed in range(seeds):
        others = np.arange(seeds) != seed if seeds > 1 else np.array([True])
        chosen = _choices(losses[:, :, others])
        here = np.log(losses[:, :, seed] + FLOOR).mean(1)
        own = here[np.arange(len(here)), chosen]
        logs.append(np.where(np.isinf(own), math.nan, here[:, chosen].T - np.where(np.isinf(own), 0.0, own)))
    candidates = [(kernel, float(scale)) for kernel in kernels for scale in summary.length_scales]
    mean, half = interval(np.stack(logs))
    best, mean_losses = _choices(losses), losses.mean((1, 2))
    final = [candidates[i] if np.isfinite(mean_losses[j, i]) else ("–", math.nan) for j, i in enumerate(best)]
    return Similarity(np.exp(mean), np.exp(mean - half), np.exp(mean + half), final)


def interval(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the first axis and half of its 95 % interval, t s / √n; NaN for n = 1."""
    n = len(samples)
    if n == 1:
        return samples[0], np.full_like(samples[0], math.nan)
    with np.errstate(invalid="ignore"):  # an infinite loss has no spread
        return samples.mean(0), float(stdtrit(n - 1, 0.975)) * samples.std(0, ddof=1) / math.sqrt(n)


def _losses(summary: Summary, domain: str, method: str, measure: Measure, kernels: Sequence[str]) -> np.ndarray:
    """At least 0, ``(noise levels, seeds, candidates)``."""
    depth = summary.depth(method)
    tables = [
        np.concatenate([summary.column(domain, noise, method, kernel, depth, measure.loss) for kernel in kernels], 1)
        for noise in summary.noise
    ]
    return np.maximum(np.stack(tables), 0.0)


def _choices(losses: np.ndarray) -> np.ndarray:
    """Index of the candidate with the least mean logarithm over noise levels of the mean over seeds, ``(domains,)``."""
    return np.log(losses.mean(2) + FLOOR).mean(1).argmin(1)
