"""The evaluator that serves as a critic where none is named."""

from __future__ import annotations

from icrl_agents.evaluators import WeightedSoftmaxTD
from icrl_agents.kernels import Laplace

LENGTH_SCALE, NUM_SWEEPS = 0.5, 100


def default_evaluator() -> WeightedSoftmaxTD:
    """Weighted softmax TD with a Laplace kernel of ℓ = 0.5 standard deviations of each dimension, 100 sweeps.

    The Gaussian kernel of the same width does as well, but its sweeps do not quite contract at γ = 0.99.
    """
    return WeightedSoftmaxTD(Laplace(LENGTH_SCALE), NUM_SWEEPS)
