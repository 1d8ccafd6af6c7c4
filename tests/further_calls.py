"""Public calls with valid arguments beside those of evaluation: measures, control, ground truth, batches, datasets."""

import gymnasium as gym
import numpy as np
import torch

import icrl_envs
from icrl_agents import adaptive, constructions, control, diagnostics, evaluators, ground_truth, kernels, layers
from icrl_agents.collection import collect_episodes
from icrl_agents.compressed import CompressedContexts, state_values
from icrl_agents.context import Context
from tests.calls import (
    CONTEXT,
    DIM,
    KERNEL,
    LINEAR,
    POINTS,
    PROCESS,
    REWARDS,
    TRANSFORMER,
    VALUE,
    Call,
    N,
    fitted,
    values_of,
)

RNG = np.random.default_rng(1)
STATES = len(PROCESS.rewards)
BOYAN = constructions.weighted_softmax_td(kernels.DotProduct(torch.eye(PROCESS.features.shape[1])), 2)
ERRORS = {"values": REWARDS, "targets": REWARDS + 1.0, "weights": np.ones(N)}
SAMPLED = {"process": PROCESS, "context_length": 5, "num_contexts": 4, "rng": np.random.default_rng(0)}
UPDATE = diagnostics.expected_update(PROCESS, KERNEL)
COMPARED = {"value_function": VALUE, "reference": VALUE.at_depth(1), "states": torch.as_tensor(POINTS)}
COMPARED |= {"weights": torch.full((N + 1,), 0.2, dtype=torch.float64)}
COMPRESSED = {
    "points": torch.as_tensor(RNG.normal(size=(2, 3, DIM))),
    "rewards": torch.as_tensor(RNG.normal(size=(2, 3))),
}
COMPRESSED |= {"path": torch.as_tensor([[0, 1, 2, 0], [2, 1, 1, 0]]), "discounts": torch.full((2, 3), 0.5).double()}
MDP = {"transitions": RNG.dirichlet(np.ones(3), size=(3, 2)), "rewards": RNG.normal(size=(3, 2)), "gamma": 0.5}
POLICY = np.array([0, 1, 1])
EXPERIENCE = control.FiniteMDP(**MDP).experience(2, np.random.default_rng(0))
ENV = gym.make("icrl/BoyanChain-v0", num_states=3)
TRUTH = {
    "observations": RNG.normal(size=(8, DIM)),
    "returns": np.arange(8.0)[:, None] + 0.1 * RNG.normal(size=(8, 4)),
    "gamma": 0.5,
    "horizon": 10,
}
KNOWN = ground_truth.GroundTruth(**TRUTH)
VALUES = RNG.normal(size=8)
LONGER = Context(RNG.normal(size=(9, DIM)), RNG.normal(size=9), np.full(9, 0.5), RNG.normal(size=(9, DIM)))


def distance(measure):
    return measure, {"transformer": TRANSFORMER, "construction": TRANSFORMER}


def compressed(**arguments):
    return state_values(TRANSFORMER, CompressedContexts(**arguments))


def of_mdp(**arguments):
    mdp = control.FiniteMDP(**arguments)
    return mdp.optimum().values, mdp.values(POLICY)


def iterated(**arguments):
    return control.policy_iteration(**arguments).action_values


def assessed(**arguments):
    found = control.Critic(evaluators.LSTD(0.1), **arguments).assess(CONTEXT)
    return found.values, found.advantages


def batch(**arguments):
    found = icrl_envs.FiniteBatch(**arguments)
    return found.values(), found.stationary_distributions()


def batch_arguments():
    b = icrl_envs.boyan_chains(2, np.random.default_rng(0), num_states=3)
    return {name: getattr(b, name) for name in ("transition_matrix", "rewards", "features", "start", "gamma")}


def returns_of(**arguments):
    return ground_truth.ground_truth(**arguments).returns


def truth(**arguments):
    found = ground_truth.GroundTruth(**arguments)
    return tuple(ground_truth.true_msve(VALUES, found)), tuple(ground_truth.true_centred_msve(VALUES, found))


def along(**arguments):
    return ground_truth.observed(ENV, ground_truth.states_along(ENV, **arguments))


def episodes(**arguments):
    return [episode.observations for episode in collect_episodes(ENV, **arguments)]


def configured(**arguments):
    return control.PPOConfig(**arguments).gamma


def adapted(**arguments):
    complete = LONGER.states, LONGER.rewards, 0.08 * LONGER.discounts, LONGER.next_states  # returns
    return adaptive.AdaptiveTD(**arguments).fit(Context(*complete))(POINTS)


CALLS: dict[str, Call] = {
    "relative_msve": (diagnostics.relative_msve, ERRORS),
    "relative_centred_msve": (diagnostics.relative_centred_msve, ERRORS),
    "neu": (diagnostics.neu, SAMPLED | {"transformer": BOYAN, "estimator": "conditional"}),
    "mean_updates": (diagnostics.mean_updates, SAMPLED | {"transformer": BOYAN, "batches": 2, "conditional": True}),
    "expected_update": (diagnostics.expected_update, {"source": CONTEXT, "kernel": KERNEL}),
    "sweep": (UPDATE.sweep, {"num_sweeps": 2, "step_size": 0.5, "start": torch.zeros(STATES, dtype=torch.float64)}),
    "errors": (UPDATE.errors, {"num_sweeps": 2, "step_size": 0.5}),
    "error_operator": (UPDATE.error_operator, {"step_size": 0.5}),
    "td_error_operator": (UPDATE.td_error_operator, {"step_size": 0.5}),
    "attention_by_layer": (
        diagnostics.attention_by_layer,
        {"transformer": TRANSFORMER, "contexts": CompressedContexts(**COMPRESSED)},
    ),
    "context_diagonality": (
        diagnostics.context_diagonality,
        {"transformer": TRANSFORMER, "contexts": CompressedContexts(**COMPRESSED)},
    ),
    "attention_distance": (diagnostics.attention_distance, {"transformer": BOYAN, "construction": BOYAN}),
    "value_distance": distance(diagnostics.value_distance),
    "value_row_distance": distance(diagnostics.value_row_distance),
    "sign_pattern": (diagnostics.sign_pattern, {"transformer": TRANSFORMER}),
    "sign_rate": (diagnostics.sign_rate, {"transformers": [TRANSFORMER]}),
    "value_difference": (diagnostics.value_difference, COMPARED),
    "implicit_weight_similarity": (
        diagnostics.implicit_weight_similarity,
        COMPARED | {"value_function": LINEAR, "reference": LINEAR},
    ),
    "sensitivity_similarity": (diagnostics.sensitivity_similarity, COMPARED),
    "CompressedContexts": (compressed, COMPRESSED),
    "OffsetCorrected": (fitted(evaluators.OffsetCorrected), {"evaluator": evaluators.LSTD(0.1)}),
    "AdaptiveTD": (
        adapted,
        {
            "evaluators": [evaluators.WeightedSoftmaxTD(KERNEL, 4)],
            "depths": (2, 4),
            "caution": 1.0,
            "return_weight": 1.0,
        }
        | {"max_folds": 3},
    ),
    "RelevanceTD": (fitted(adaptive.RelevanceTD), {"length_scale": 0.5, "num_sweeps": 2}),
    "default_bank": (lambda **a: len(adaptive.default_bank(**a)), {"num_sweeps": 3}),
    "lifted_features": (
        layers.lifted_features,
        {"states": torch.as_tensor(POINTS), "length_scale": 0.5, "centre": 0.5},
    ),
    "lifted_score": (layers.lifted_score, {"dim": DIM, "symmetric": True}),
    "generalised_advantages": (
        control.generalised_advantages,
        {"context": CONTEXT, "values": torch.zeros(N + 1, dtype=torch.float64), "lambda_": 0.5},
    ),
    "quadratic_features": (control.quadratic_features, {"states": torch.as_tensor(POINTS)}),
    "Critic": (assessed, {"gae_lambda": 0.5, "window": 2, "features": control.quadratic_features, "device": "cpu"}),
    "FiniteMDP": (of_mdp, MDP),
    "mdp.values": (control.FiniteMDP(**MDP).values, {"policy": POLICY}),
    "mdp.action_values": (control.FiniteMDP(**MDP).action_values, {"policy": POLICY}),
    "experience": (lambda **a: control.FiniteMDP(**MDP).experience(**a).rewards, {"visits": 2, "rng": RNG}),
    "policy_iteration": (
        iterated,
        {
            "experience": EXPERIENCE,
            "evaluator": evaluators.LSTD(),
            "gamma": 0.5,
            "features": np.eye(6),
            "max_rounds": 3,
        },
    ),
    "Experience": (
        lambda **a: iterated(experience=control.Experience(**a), gamma=0.5),
        {
            n: getattr(EXPERIENCE, n)
            for n in ("states", "actions", "rewards", "next_states", "num_states", "num_actions")
        },
    ),
    "PPOConfig": (
        configured,
        {
            "rollout_steps": 8,
            "gamma": 0.9,
            "gae_lambda": 0.9,
            "window": 2,
            "learning_rate": 0.1,
            "epochs": 2,
            "batch_size": 4,
        }
        | {"clip": 0.1, "entropy": 0.0, "max_gradient": 0.5, "hidden": (4, 4), "device": "cpu"},
    ),
    "GroundTruth": (truth, TRUTH),
    "horizon": (ground_truth.horizon, {"gamma": 0.5, "missing": 0.1}),
    "nearest": (ground_truth.nearest, {"observations": TRUTH["observations"]}),
    "unexplained_share": (ground_truth.unexplained_share, {"observations": TRUTH["observations"], "truth": KNOWN}),
    "hidden_share": (ground_truth.hidden_share, {"truth": KNOWN, "other": KNOWN}),
    "true_msve": (lambda **a: tuple(ground_truth.true_msve(**a)), {"values": VALUES, "truth": KNOWN}),
    "true_centred_msve": (lambda **a: tuple(ground_truth.true_centred_msve(**a)), {"values": VALUES, "truth": KNOWN}),
    "ground_truth": (
        returns_of,
        {"env": ENV, "snapshots": ground_truth.states_along(ENV, episodes=1, states_per_episode=1, steps=2, seed=0)}
        | {"gamma": 0.5, "continuations": 2, "seed": 0, "missing": 0.1},
    ),
    "states_along": (along, {"episodes": 1, "states_per_episode": 1, "steps": 3, "seed": 0, "before": 2}),
    "collect_episodes": (
        episodes,
        {"seed": 0, "num_steps": 3, "num_episodes": None, "max_episode_steps": 2, "keep_actions": True},
    ),
    "FiniteBatch": (batch, batch_arguments()),
    "repeat": (lambda **a: icrl_envs.FiniteBatch(**batch_arguments()).repeat(**a).values(), {"copies": 2}),
    "loop_chains": (
        values_of(icrl_envs.loop_chains),
        {"count": 2, "rng": np.random.default_rng(0), "num_states": 3, "sparsity": 0.5},
    ),
}
