"""Pretraining on trajectories: random contexts of one domain, by semi-gradient TD, with weights that cannot diverge."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import pad

from icrl_agents import kernels
from icrl_agents.attention import SoftmaxAttention
from icrl_agents.constructions import linear_td
from icrl_agents.constructions.linear import DIFFERENCE, STATE
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.layers import TemporalShiftLayer
from icrl_agents.layers.memory import TD_SIGNS
from icrl_agents.studies.matrix.config import MatrixConfig
from icrl_agents.transformer import InContextTransformer
from icrl_agents.value_function import DivergenceError

KERNELS = {"product_laplace": kernels.ProductLaplace, "laplace": kernels.Laplace, "rbf": kernels.RBF}
INITIAL_LENGTH_SCALE, INITIAL_STEP_SIZE, SPREAD = 0.5, 0.3, 0.1
"""Where training starts: far wider than is of use, and alike in all dimensions, up to the spread of the logarithm."""
LARGEST_GRADIENT = 1.0
_WEIGHTS, _BATCHES = 0, 1
"""Streams of the seed: where training starts, and the contexts; the latter are the same for both transformers."""


class Trainable(NamedTuple):
    """A transformer, the numbers that are trained, and the weights that they stand for.

    Args:
        transformer: Its own weights are not read, but for those that ``weights`` leaves out.
        free: The numbers.
        weights: Their values as the transformer's weights, by name.
        learning_rate: Of the numbers.
    """

    transformer: InContextTransformer
    free: list[Tensor]
    weights: Callable[[], Mapping[str, Tensor]]
    learning_rate: float


def softmax_trainable(config: MatrixConfig, dim: int, rng: np.random.Generator) -> Trainable:
    """Temporal-shift layers with one length scale per dimension and a step size, both tied over the layers.

    The numbers are log ℓ, and of the value weights α(1, 1, −1) the logit of α: in (0, 1) a sweep cannot overshoot, for
    the weights of softmax attention sum to 1. Free value weights start small and random, so that no sign is built in.
    """
    scales = torch.tensor(rng.normal(math.log(INITIAL_LENGTH_SCALE), SPREAD, dim)).requires_grad_()
    signs = torch.tensor(TD_SIGNS, dtype=torch.float64)
    if config.value_weights == "free":
        step = torch.tensor(SPREAD * rng.standard_normal(len(signs))).requires_grad_()
    else:
        step = torch.logit(torch.tensor(INITIAL_STEP_SIZE, dtype=torch.float64)).requires_grad_()

    def weights() -> dict[str, Tensor]:
        value_weights = step if config.value_weights == "free" else torch.sigmoid(step) * signs
        return {"blocks.0.attention.kernel.length_scale": scales.exp(), "blocks.0.value_weights": value_weights}

    layer = TemporalShiftLayer(SoftmaxAttention(KERNELS[config.kernel](torch.ones(dim))))
    return Trainable(InContextTransformer([layer], config.depth), [scales, step], weights, config.learning_rate)


def linear_trainable(config: MatrixConfig, dim: int) -> Trainable:
    """Linear TD with a preconditioner C = FFᵀ, tied over the layers, from the identity on.

    Q = [[−Cᵀ, Cᵀ, 0], [0, 0, 0], [0, 0, 0]] as constructed (arXiv 2405.13861, in-context TD). The layer scales the
    features of every context to the largest stable step under this Q. So no C makes it diverge; positive
    semi-definite ones, moreover, served domains that they were not trained on better than all other matrices did.
    """
    factor = torch.eye(dim, dtype=torch.float64).requires_grad_()
    signs = torch.outer(torch.tensor(STATE), torch.tensor(DIFFERENCE)).double()

    def weights() -> dict[str, Tensor]:
        return {"blocks.0.Q": pad(-torch.kron(signs, factor @ factor.mT), (0, 1, 0, 1))[None]}

    return Trainable(linear_td(dim, config.depth), [factor], weights, config.linear_learning_rate)


def pretrained(config: MatrixConfig, episodes: Sequence[Episode], seed: int) -> dict[str, InContextTransformer]:
    """The softmax and the linear transformer, trained on the same contexts, as many of them; frozen.

    Args:
        config: The study's configuration.
        episodes: Trajectories of the source.
        seed: Of the first weights and of the contexts.
    """
    dim = np.asarray(episodes[0].observations).shape[-1]
    trainables = {
        "softmax": softmax_trainable(config, dim, np.random.default_rng([seed, _WEIGHTS])),
        "linear": linear_trainable(config, dim),
    }
    return {
        name: train(config, trainable, episodes, np.random.default_rng([seed, _BATCHES]))
        for name, trainable in trainables.items()
    }


def train(
    config: MatrixConfig, trainable: Trainable, episodes: Sequence[Episode], rng: np.random.Generator
) -> InContextTransformer:
    """Runs Adam on ``semi_gradient_loss`` with a falling learning rate, short gradients and a random depth.

    A depth of its own for each update keeps the weights from being right at one depth alone.
    """
    transformer, optimiser = trainable.transformer, torch.optim.Adam(trainable.free)
    scale = float(np.mean([np.square(episode.rewards).mean() for episode in episodes])) or 1.0
    for update in range(config.updates):
        context, queries = (part.to(config.device) for part in drawn(config, episodes, rng))
        transformer.loops = int(rng.integers(config.min_depth, config.depth, endpoint=True))
        optimiser.param_groups[0]["lr"] = trainable.learning_rate * (1.0 - update / config.updates)
        optimiser.zero_grad()
        with contextlib.suppress(DivergenceError, ValueError):  # the latter where weights are no numbers any more
            values = functional_call(transformer, dict(trainable.weights()), (context, queries.points))
            (semi_gradient_loss(values, queries) / scale).backward()
        if not finite_gradient(trainable.free):
            raise ValueError(f"learning_rate: training diverges at update {update}; take a smaller one.")
        optimiser.step()
    transformer.loops = config.depth
    found = {name: weight.detach() for name, weight in trainable.weights().items()}
    transformer.load_state_dict(found, strict=False)
    return transformer.requires_grad_(False)


def finite_gradient(free: Sequence[Tensor]) -> bool:
    """Shortens the gradient to ``LARGEST_GRADIENT``; returns whether there is one and it is finite."""
    if any(number.grad is None for number in free):
        return False
    return bool(torch.isfinite(torch.nn.utils.clip_grad_norm_(free, LARGEST_GRADIENT)))


def semi_gradient_loss(values: Tensor, queries: Context) -> Tensor:
    """Semi-gradient TD on the queries, mean_k (R_k + γ_k sg[v(x′_k)] − v(x_k))².

    Args:
        values: v at the points of the queries, ``(n + e,)``; its gradient goes through v(x_k) alone.
        queries: The n transitions.
    """
    fixed = values.detach()
    errors = queries.td_errors(fixed) + (fixed - values)[..., : len(queries)]
    return errors.square().mean()


def drawn(config: MatrixConfig, episodes: Sequence[Episode], rng: np.random.Generator) -> tuple[Context, Context]:
    """A context and its queries: random stretches of trajectories that they do not share, in float32."""
    count, order = config.batch_episodes, rng.permutation(len(episodes))
    halves = (order[:count], order[count : 2 * count])
    context, queries = (
        Context.from_episodes([stretch(episodes[i], config.window, rng) for i in half], config.gamma) for half in halves
    )
    return context.to(dtype=torch.float32), queries.to(dtype=torch.float32)


def stretch(episode: Episode, steps: int, rng: np.random.Generator) -> Episode:
    """``steps`` consecutive steps of an episode, as one that was truncated at the last of them."""
    start = int(rng.integers(len(episode.rewards) - steps, endpoint=True))
    return Episode(episode.observations[start : start + steps + 1], episode.rewards[start : start + steps])
