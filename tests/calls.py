"""Public calls with valid arguments, each of which ``test_refusals.py`` spoils."""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import icrl_envs
from icrl_agents import constructions, diagnostics, evaluators, kernels, layers
from icrl_agents.attention import KernelAttention, SoftmaxAttention
from icrl_agents.collection import collect
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.transformer import InContextTransformer
from icrl_envs.cartpole import random_cartpole

DIM, N = 2, 4
RNG = np.random.default_rng(0)
POINTS, REWARDS = RNG.normal(size=(N + 1, DIM)), RNG.normal(size=N)
CONTEXT = Context.from_episodes([Episode(POINTS, REWARDS)], 0.5)
KERNEL = kernels.RBF(0.5)
VALUE = evaluators.WeightedSoftmaxTD(KERNEL, 3).fit(CONTEXT)
LINEAR = evaluators.LinearTD(3).fit(CONTEXT)
TRANSFORMER = constructions.weighted_softmax_td(KERNEL, 2)
SWEEPS = {"num_sweeps": 2, "step_size": 0.5}
FEATURES = SWEEPS | {"preconditioner": np.eye(DIM)}
LAYERS = {"num_layers": 2, "step_size": 0.5}
PROCESS = icrl_envs.boyan_chain(num_states=3)
CHAIN = {"num_states": 3, "gamma": 0.5, "features": "random", "num_features": 2, "representable": False, "task_seed": 1}
HEAD = torch.full((2 * DIM + 1, 2 * DIM + 1), 0.1, dtype=torch.float64)
FULL = torch.full((DIM + 3, DIM + 3), 0.1, dtype=torch.float64)


def fitted(build):
    """A call that makes an evaluator and asks it about the context's points."""
    return lambda **arguments: build(**arguments).fit(CONTEXT)(POINTS)


def attended(build):
    """A call that makes a kernel and lets both kinds of attention use it."""

    def values(**arguments):
        kernel = build(**arguments)
        return fitted(evaluators.WeightedSoftmaxTD)(kernel=kernel, num_sweeps=2), fitted(evaluators.KernelTD)(
            kernel=kernel, num_sweeps=2
        )

    return values


def of_context(**arguments):
    context = Context(**arguments)
    return evaluators.WeightedSoftmaxTD(KERNEL, 2).fit(context)(context.states), context.returns()[0]


def of_episode(gamma, **arguments):
    return of_context(**parts(Context.from_episodes([Episode(POINTS, REWARDS), Episode(**arguments)], gamma)))


def parts(context):
    return {n: getattr(context, n) for n in ("states", "rewards", "discounts", "next_states", "mask", "contiguous")}


def layer(build):
    return lambda **arguments: InContextTransformer([build(**arguments)], 2).fit(CONTEXT)(POINTS)


def collected(**arguments):
    return collect(gym.make("icrl/BoyanChain-v0", num_states=3), **arguments).points


def values_of(build):
    return lambda **arguments: build(**arguments).values()


def at_states(build):
    return lambda **arguments: build(**arguments).values(np.zeros((2, 2)))


Call = tuple[Callable[..., Any], Mapping[str, Any]]
CALLS: dict[str, Call] = {
    "Context": (of_context, parts(CONTEXT)),
    "Episode": (of_episode, {"observations": POINTS, "rewards": REWARDS, "terminated": False, "gamma": 0.5}),
    "from_episodes": (Context.from_episodes, {"episodes": [Episode(POINTS, REWARDS)], "gamma": 0.5}),
    "concatenate": (Context.concatenate, {"contexts": [CONTEXT, CONTEXT]}),
    "stack": (Context.stack, {"contexts": [CONTEXT, CONTEXT], "padding": "left"}),
    "to": (CONTEXT.to, {"device": "cpu", "dtype": torch.float32}),
    "context.td_errors": (CONTEXT.td_errors, {"values": torch.zeros(N + 1, dtype=torch.float64)}),
    "RBF": (attended(kernels.RBF), {"length_scale": 0.5}),
    "Laplace": (attended(kernels.Laplace), {"length_scale": np.array([0.5, 1.0])}),
    "ProductLaplace": (attended(kernels.ProductLaplace), {"length_scale": "median"}),
    "Exponential": (attended(kernels.Exponential), {"temperature": 2.0}),
    "DotProduct": (attended(kernels.DotProduct), {"matrix": np.eye(DIM)}),
    "WeightedSoftmaxTD": (fitted(evaluators.WeightedSoftmaxTD), SWEEPS | {"kernel": KERNEL, "approximation": None}),
    "KernelTD": (fitted(evaluators.KernelTD), SWEEPS | {"kernel": KERNEL, "approximation": None}),
    "TabularTD": (fitted(evaluators.TabularTD), SWEEPS),
    "LinearTD": (fitted(evaluators.LinearTD), FEATURES),
    "TDLambda": (fitted(evaluators.TDLambda), FEATURES | {"lambda_": 0.5}),
    "ResidualGradient": (fitted(evaluators.ResidualGradient), FEATURES),
    "AverageRewardTD": (fitted(evaluators.AverageRewardTD), FEATURES | {"reward_step_size": 1.0}),
    "LSTD": (fitted(evaluators.LSTD), {"ridge": 0.1}),
    "KernelLSTD": (fitted(evaluators.KernelLSTD), {"kernel": KERNEL, "ridge": 0.1, "normalise": True}),
    "MonteCarlo": (fitted(evaluators.MonteCarlo), {"kernel": KERNEL, "min_tail": 1}),
    "Nystrom": (
        lambda **arguments: fitted(evaluators.KernelTD)(
            kernel=KERNEL, num_sweeps=2, approximation=evaluators.Nystrom(**arguments)
        ),
        {"landmarks": 9, "seed": 1, "sample": 3},
    ),
    "fit": (evaluators.LSTD(0.1).fit, {"context": CONTEXT}),
    "value": (VALUE, {"states": POINTS}),
    "by_depth": (VALUE.by_depth, {"states": POINTS, "depths": [0, 2]}),
    "at_depth": (lambda depth: VALUE.at_depth(depth)(POINTS), {"depth": 1}),
    "effective_sample_size": (VALUE.effective_sample_size, {"states": POINTS}),
    "value.td_errors": (VALUE.td_errors, {"context": CONTEXT}),
    "linear value": (LINEAR, {"states": POINTS}),
    "weighted_softmax_td": (
        fitted(constructions.weighted_softmax_td),
        LAYERS | {"kernel": KERNEL, "form": "dual_head"},
    ),
    "kernel_td": (fitted(constructions.kernel_td), LAYERS | {"kernel": KERNEL, "form": "temporal_shift"}),
    "linear_td": (fitted(constructions.linear_td), LAYERS | {"dim": DIM, "preconditioner": np.eye(DIM)}),
    "td_lambda": (fitted(constructions.td_lambda), LAYERS | {"dim": DIM, "lambda_": 0.5}),
    "residual_gradient": (fitted(constructions.residual_gradient), LAYERS | {"dim": DIM}),
    "average_reward_td": (
        fitted(constructions.average_reward_td),
        LAYERS | {"dim": DIM, "reward_step_size": 0.5},
    ),
    "transformer": (TRANSFORMER, {"context": CONTEXT, "queries": POINTS}),
    "hidden_states": (
        lambda **arguments: list(TRANSFORMER.hidden_states(**arguments)),
        {"context": CONTEXT, "queries": POINTS},
    ),
    "InContextTransformer": (fitted(InContextTransformer), {"blocks": list(TRANSFORMER.blocks), "loops": 2}),
    "TemporalShiftLayer": (
        layer(layers.TemporalShiftLayer),
        {"attention": SoftmaxAttention(KERNEL), "value_weights": (1.0, 1.0, -1.0)},
    ),
    "DualHeadLayer": (
        layer(layers.DualHeadLayer),
        {"attention": KernelAttention(KERNEL), "value_weights": (1.0, 1.0, -1.0), "target_weights": torch.ones(3)},
    ),
    "LinearAttentionLayer": (
        layer(layers.LinearAttentionLayer),
        {"P": HEAD, "Q": HEAD, "prompt": "discounted", "trace_decay": 0.5, "scaling": "none"},
    ),
    "FullAttentionLayer": (layer(layers.FullAttentionLayer), {"V": FULL, "A": FULL, "form": "temporal_shift"}),
    "export": (
        lambda **arguments: layer(layers.export_multihead_attention)(**arguments),
        {"layer": layers.TemporalShiftLayer(SoftmaxAttention(kernels.RBF(0.5))), "dim": DIM},
    ),
    "msve": (diagnostics.msve, {"values": REWARDS, "targets": REWARDS + 1.0, "weights": np.ones(N)}),
    "centred_msve": (diagnostics.centred_msve, {"values": REWARDS, "targets": -REWARDS, "weights": np.ones(N)}),
    "td_loss": (diagnostics.td_loss, {"value_function": VALUE, "context": CONTEXT, "depths": [0, 3]}),
    "attention_matrix": (diagnostics.attention_matrix, {"source": PROCESS, "kernel": KERNEL}),
    "contraction_factor": (
        diagnostics.contraction_factor,
        {"source": CONTEXT, "kernel": KERNEL, "step_size": 0.5},
    ),
    "spectral_radius": (diagnostics.spectral_radius, {"source": PROCESS, "kernel": KERNEL, "step_size": 0.5}),
    "kernel_diagonality": (
        diagnostics.kernel_diagonality,
        {"matrix": torch.eye(3), "mask": torch.ones(3, dtype=torch.bool)},
    ),
    "sufficient_bound": (diagnostics.sufficient_bound, {"diagonality": 0.9, "gamma": 0.5, "step_size": 0.5}),
    "collect": (collected, {"num_steps": 3, "gamma": 0.5, "seed": 0}),
    "boyan_chain": (values_of(icrl_envs.boyan_chain), CHAIN),
    "loop_chain": (values_of(icrl_envs.loop_chain), CHAIN | {"sparsity": 0.5}),
    "boyan_chains": (
        values_of(icrl_envs.boyan_chains),
        {"count": 2, "rng": np.random.default_rng(0), "num_states": 3},
    ),
    "RKHSProcess": (
        at_states(icrl_envs.RKHSProcess),
        {"dim": 2, "kernel": "rbf", "length_scale": 0.5, "num_centers": 3, "gamma": 0.5, "task_seed": 0, "drift": 0.5}
        | {"noise": 0.3},
    ),
    "FiniteProcess": (
        values_of(icrl_envs.FiniteProcess),
        {
            "transition_matrix": PROCESS.transition_matrix,
            "rewards": PROCESS.rewards,
            "features": PROCESS.features,
            "gamma": 0.5,
            "start": PROCESS.start,
        },
    ),
    "random_cartpole": (lambda **arguments: random_cartpole(**arguments).gravity, {"gamma": 0.5, "task_seed": 0}),
}
