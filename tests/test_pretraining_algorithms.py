"""Pretraining towards residual gradient and average reward: losses against plain loops, and what is learnt."""

import dataclasses

import numpy as np
import pytest
import torch

from icrl_agents import PretrainConfig, pretrain
from icrl_agents.compressed import state_values
from icrl_agents.evaluators import AverageRewardTD, LinearTD, ResidualGradient
from icrl_agents.pretraining import losses
from icrl_agents.pretraining.batches import batches, evaluation_batch
from icrl_agents.pretraining.errors import value_error
from icrl_agents.pretraining.model import construction, random_transformer

CONFIG = PretrainConfig(
    form="linear",
    features="random",
    num_states=5,
    num_features=3,
    context_length=30,
    num_layers=3,
    tasks=32,
    steps=300,
    learning_rate=0.01,
    initial_scale=0.3,
    evaluate_every=300,
    evaluation_tasks=64,
)
ALGORITHMS = ("residual_gradient", "average_reward")


def towards(algorithm, **changes):
    return dataclasses.replace(CONFIG, algorithm=algorithm, **changes)


def plain_losses(config, batch, v):
    """The losses of both algorithms from the values at the states, in plain loops."""
    residual = expected_residual = differential = expected_differential = value = 0.0
    r, path, future = batch.contexts.rewards.tolist(), batch.contexts.path.tolist(), batch.future.tolist()
    P, mu, h = batch.transition_matrix.tolist(), batch.stationary.tolist(), batch.values.tolist()
    B, S, g = len(v), len(v[0]), config.gamma
    for b in range(B):
        now, then = future[b]
        seen = sum(r[b][s] for s in path[b][:-1]) / len(path[b][:-1])
        average, mean = (sum(mu[b][s] * x[b][s] for s in range(S)) for x in (r, v))
        residual += (r[b][now] + g * v[b][then] - v[b][now]) ** 2 / B
        differential += (r[b][now] - seen + v[b][then] - v[b][now]) ** 2 / B
        for s in range(S):
            following = sum(P[b][s][t] * v[b][t] for t in range(S))
            expected_residual += mu[b][s] * (r[b][s] + g * following - v[b][s]) ** 2 / B
            expected_differential += mu[b][s] * (r[b][s] - average + following - v[b][s]) ** 2 / B
            value += mu[b][s] * (h[b][s] - v[b][s] + mean) ** 2 / B
    return {
        ("residual_gradient", "td", False): residual,
        ("residual_gradient", "td", True): expected_residual,
        ("average_reward", "td", False): differential,
        ("average_reward", "td", True): expected_differential,
        ("average_reward", "value", False): value,
    }


@pytest.mark.parametrize("case", range(5))
def test_losses_are_those_of_plain_loops(case):
    keys = list(plain_losses(CONFIG, next(batches(CONFIG)), np.zeros((32, 5)).tolist()))
    algorithm, loss, expectations = keys[case]
    config = towards(algorithm, loss=loss, expectations=expectations)
    transformer, batch = random_transformer(config), next(batches(config))
    values = state_values(transformer, batch.contexts).tolist()
    measured = losses.loss_of(config)(transformer, batch).item()
    assert measured == pytest.approx(plain_losses(config, batch, values)[keys[case]], rel=1e-9)


@pytest.mark.parametrize("expectations", [False, True])
def test_the_residual_gradient_does_not_stop_at_the_target_and_the_others_do(expectations):
    config = towards("residual_gradient", expectations=expectations)
    transformer, batch = random_transformer(config), next(batches(config))
    weight = transformer.blocks[0].P
    losses.loss_of(config)(transformer, batch).backward()
    slopes = []
    with torch.no_grad():
        for step in (1e-6, -1e-6):
            weight[0, -1, -1] += step
            slopes.append(losses.loss_of(config)(transformer, batch).item())
            weight[0, -1, -1] -= step
    assert weight.grad[0, -1, -1].item() == pytest.approx((slopes[0] - slopes[1]) / 2e-6, rel=1e-5)
    stopped = losses.loss_of(dataclasses.replace(config, algorithm="td"))(transformer, batch)
    (semi,) = torch.autograd.grad(stopped, weight)
    assert semi[0, -1, -1].item() != pytest.approx(weight.grad[0, -1, -1].item(), rel=1e-2)


def test_differential_values_are_exact_and_solve_their_equation():
    batch = evaluation_batch(towards("average_reward"))
    P, mu, h = (array.numpy() for array in (batch.transition_matrix, batch.stationary, batch.values))
    for b in range(3):
        r = batch.contexts.rewards[b].numpy()
        np.testing.assert_allclose(h[b], r - mu[b] @ r + P[b] @ h[b], atol=1e-12)
        assert mu[b] @ h[b] == pytest.approx(0.0, abs=1e-12)
        relative, excess = np.zeros(5), np.eye(5)
        for _ in range(5000):  # h = lim Σ_t Pᵗ (r − r̄), in Cesàro's sense; these chains have no period
            relative, excess = relative + excess @ (r - mu[b] @ r), P[b] @ excess
        np.testing.assert_allclose(h[b], relative, atol=1e-9)


def test_average_reward_values_are_compared_up_to_a_constant():
    config = towards("average_reward")
    batch = evaluation_batch(config)
    assert value_error(config, batch, batch.values + 7.0) == pytest.approx(0.0, abs=1e-20)
    assert value_error(config, batch, torch.zeros_like(batch.values)) == pytest.approx(1.0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_trained_transformer_comes_close_to_the_construction_of_its_algorithm(algorithm):
    result = pretrain(towards(algorithm))
    first, last = result.rows
    assert last.value_difference < 0.5 * first.value_difference
    assert last.implicit_weight_similarity > 0.8 > first.implicit_weight_similarity
    assert last.value_error < 0.98 * first.value_error
    contexts = evaluation_batch(result.config).contexts
    fitted = result.transformer.fit(contexts.context)(contexts.points)
    torch.testing.assert_close(state_values(result.transformer, contexts), fitted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("algorithm", "reference"),
    [("td", LinearTD), ("residual_gradient", ResidualGradient), ("average_reward", AverageRewardTD)],
)
def test_the_construction_is_that_of_the_algorithm(algorithm, reference):
    built = construction(towards(algorithm))
    contexts = evaluation_batch(CONFIG).contexts
    expected = built.reference.fit(contexts.context)(contexts.points)
    torch.testing.assert_close(state_values(built, contexts), expected, rtol=1e-10, atol=1e-12)
    assert type(built.reference) is reference
