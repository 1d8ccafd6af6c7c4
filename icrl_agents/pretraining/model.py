"""Transformers with small random weights, ready to be trained."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from icrl_agents.attention import SoftmaxAttention
from icrl_agents.constructions import average_reward_td, linear_td, residual_gradient, td_lambda, weighted_softmax_td
from icrl_agents.kernels import RBF, DotProduct, Identity
from icrl_agents.layers import DualHeadLayer, FullAttentionLayer, LinearAttentionLayer, TemporalShiftLayer
from icrl_agents.pretraining.config import PretrainConfig
from icrl_agents.prompt import MEMORY
from icrl_agents.transformer import InContextTransformer

SHARP_SCORE = 8.0
_DEPTHS = 2
"""Stream of the seed from which depths are drawn."""


def random_transformer(config: PretrainConfig) -> InContextTransformer:
    """Returns a transformer whose weights are small and random, so that neither signs nor diagonals are built in.

    All of its parameters require gradients. They are drawn on the processor, then moved to ``config.device``.
    """
    generator = torch.Generator().manual_seed(config.seed)
    count = 1 if config.tied else config.num_layers
    blocks = [_layer(config, generator) for _ in range(count)]
    transformer = InContextTransformer(blocks, config.num_layers // count)
    return transformer.to(config.device).requires_grad_(True)


def loops_of(config: PretrainConfig, step: int) -> int:
    """How often the blocks are applied in training step ``step``."""
    if config.min_layers is None:
        return config.num_layers if config.tied else 1
    rng = np.random.default_rng(np.random.SeedSequence(config.seed, spawn_key=(_DEPTHS, step)))
    return int(rng.integers(config.min_layers, config.num_layers, endpoint=True))


def construction(config: PretrainConfig) -> InContextTransformer:
    """Returns the constructed transformer that ``config`` trains towards, of the same form and depth.

    Softmax layers attend to equal states: nearly only, with a score of 8 · 1{s = s′}, where features are one-hot, and
    exactly only otherwise; in CartPole, where no state comes twice, to near ones, by an RBF of the median length
    scale. Linear layers take the largest stable step.
    """
    d, L = config.dim, config.num_layers
    if config.form == "linear":
        if config.trace_decay > 0:
            return td_lambda(d, L, config.trace_decay).to(config.device)
        draws = {"td": linear_td, "residual_gradient": residual_gradient, "average_reward": average_reward_td}
        return draws[config.algorithm](d, L).to(config.device)
    if config.chain == "cartpole":
        kernel = RBF("median")
    else:
        kernel = DotProduct(SHARP_SCORE * torch.eye(d, device="cpu")) if config.features == "one_hot" else Identity()
    return weighted_softmax_td(kernel, L, form=config.form).to(config.device)


def _layer(config: PretrainConfig, generator: torch.Generator) -> nn.Module:
    def normal(*shape: int) -> Tensor:
        scale = config.initial_scale / math.sqrt(shape[-1]) if len(shape) > 1 else config.initial_scale
        return scale * torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")

    d = config.dim
    if config.form == "linear":
        average = config.algorithm == "average_reward"
        heads, D = (2, 2 * d + 2) if average else (1, 2 * d + 1)
        prompt = "average_reward" if average else "discounted"
        P, Q = normal(heads, D, D), normal(heads, D, D)
        return LinearAttentionLayer(P, Q, prompt=prompt, trace_decay=config.trace_decay)
    if config.parametrisation == "full":
        heads = 2 if config.form == "dual_head" else 1
        shape = heads, d + MEMORY, d + MEMORY
        return FullAttentionLayer(normal(*shape), normal(*shape), form=config.form)
    attention, weights = SoftmaxAttention(DotProduct(normal(d, d))), normal(MEMORY)
    if config.form == "dual_head":
        return DualHeadLayer(attention, weights, normal(MEMORY))
    return TemporalShiftLayer(attention, weights)
