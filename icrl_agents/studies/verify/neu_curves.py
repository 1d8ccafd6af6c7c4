"""NEU against the length of the contexts: at the construction, and with perturbed and random weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from icrl_agents.constructions import weighted_softmax_td
from icrl_agents.diagnostics import neu
from icrl_agents.kernels import DotProduct
from icrl_agents.pretraining import PretrainConfig
from icrl_agents.pretraining.model import SHARP_SCORE, random_transformer
from icrl_agents.studies.verify.decay import STATES
from icrl_agents.transformer import InContextTransformer
from icrl_envs import FiniteProcess

LENGTHS = (20, 50, 100, 200, 500, 1000)
DEPTHS = (5, 20, 40, 80)
PERTURBED = ((1.0, 0.7, -1.0), (0.5, 1.0, -1.0), (-1.0, 1.0, -1.0))
"""Value weights on (R, u, v); those of the construction are (1, 1, −1)."""
RANDOM = 2
"""Number of random transformers."""
CONTEXTS = 200


@dataclass(frozen=True)
class Curve:
    """NEU of one transformer against the length of the contexts.

    Args:
        kind: ``"constructed"``, ``"perturbed"`` or ``"random"``.
        depth: L.
        estimates: At each of ``LENGTHS``, of each chain, ``(K, N)``.
    """

    kind: str
    depth: int
    estimates: np.ndarray

    @property
    def medians(self) -> np.ndarray:
        """Medians over the chains, ``(K,)``."""
        return np.median(self.estimates, axis=-1)

    def at(self, length: int) -> float:
        """The median at one of ``LENGTHS``."""
        return float(self.medians[LENGTHS.index(length)])


def measured_curves(chains: Sequence[FiniteProcess]) -> list[Curve]:
    """The construction at each of ``DEPTHS``, then perturbed and random weights at the largest of them."""
    depth = DEPTHS[-1]
    settings = PretrainConfig(num_states=STATES, num_layers=depth, initial_scale=0.3)
    transformers = [("constructed", L, constructed(L)) for L in DEPTHS]
    transformers += [("perturbed", depth, constructed(depth, weights)) for weights in PERTURBED]
    transformers += [("random", depth, random_transformer(replace(settings, seed=i))) for i in range(RANDOM)]
    return [Curve(kind, L, _estimates(transformer, chains)) for kind, L, transformer in transformers]


def constructed(depth: int, weights: tuple[float, float, float] = (1.0, 1.0, -1.0)) -> InContextTransformer:
    """The looped construction, with other value weights where they are given."""
    transformer = weighted_softmax_td(DotProduct(SHARP_SCORE * torch.eye(STATES)), depth)
    with torch.no_grad():
        transformer.blocks[0].get_parameter("value_weights").copy_(torch.tensor(weights))
    return transformer


def _estimates(transformer: InContextTransformer, chains: Sequence[FiniteProcess]) -> np.ndarray:
    def estimate(chain: FiniteProcess, i: int, n: int) -> float:
        rng = np.random.default_rng([i, n])
        return float(neu(transformer, chain, context_length=n, num_contexts=CONTEXTS, rng=rng))

    return np.array([[estimate(chain, i, n) for i, chain in enumerate(chains)] for n in LENGTHS])
