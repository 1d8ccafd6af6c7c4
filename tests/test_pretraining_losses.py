"""Pretraining losses against plain loops and finite differences."""

import math

import pytest
import torch

from icrl_agents.compressed import state_values
from icrl_agents.pretraining import PretrainConfig, losses
from icrl_agents.pretraining.batches import batches
from icrl_agents.pretraining.model import random_transformer


def tiny(**changes):
    return PretrainConfig(num_states=4, context_length=12, num_layers=3, tasks=6, initial_scale=0.5, **changes)


def first_batch(config):
    return next(iter(batches(config)))


def plain_losses(config, batch, v):
    """Every loss but neu from the values at the states, in plain loops."""
    td = expected = value = mc = 0.0
    r, path = batch.contexts.rewards.tolist(), batch.future.tolist()
    P, mu, exact = batch.transition_matrix.tolist(), batch.stationary.tolist(), batch.values.tolist()
    B, S, g = len(v), len(v[0]), config.gamma
    for b in range(B):
        now, then = path[b][0], path[b][1]
        td += (r[b][now] + g * v[b][then] - v[b][now]) ** 2 / B
        returns = math.fsum(g**i * r[b][s] for i, s in enumerate(path[b][:-1]))
        mc += (returns - v[b][now]) ** 2 / B
        for s in range(S):
            following = math.fsum(P[b][s][t] * v[b][t] for t in range(S))
            expected += mu[b][s] * (r[b][s] + g * following - v[b][s]) ** 2 / B
            value += mu[b][s] * (exact[b][s] - v[b][s]) ** 2 / B
    return {"td": td, "expected td": expected, "value": value, "mc": mc}


@pytest.mark.parametrize("form", [{}, {"form": "linear"}, {"parametrisation": "full"}], ids=["shift", "linear", "full"])
def test_losses_are_those_of_plain_loops(form):
    config = tiny(loss="mc", horizon=7, **form)
    transformer, batch = random_transformer(config), first_batch(config)
    expected = plain_losses(config, batch, state_values(transformer, batch.contexts).tolist())
    measured = {
        "td": losses.td_loss,
        "expected td": losses.expected_td_loss,
        "value": losses.value_loss,
        "mc": losses.monte_carlo_loss,
    }
    assert {name: loss(transformer, batch).item() for name, loss in measured.items()} == pytest.approx(
        expected, rel=1e-10
    )


def test_the_td_gradient_stops_at_the_target():
    config = tiny()
    transformer, batch = random_transformer(config), first_batch(config)
    losses.td_loss(transformer, batch).backward()
    weight = transformer.blocks[0].value_weights

    def loss_with(shifted, target):
        with torch.no_grad():
            before = weight.clone()
            weight.copy_(shifted)
            v = state_values(transformer, batch.contexts)
            weight.copy_(before)
        now, then = batch.future[:, :1], batch.future[:, 1:2]
        reward = batch.contexts.rewards.gather(1, now)
        return (reward + config.gamma * target.gather(1, then) - v.gather(1, now)).square().mean()

    frozen = state_values(transformer, batch.contexts).detach()
    for i in range(3):
        step = torch.zeros(3, dtype=torch.float64)
        step[i] = 1e-6
        slope = (loss_with(weight + step, frozen) - loss_with(weight - step, frozen)) / 2e-6
        assert weight.grad[i].item() == pytest.approx(slope.item(), rel=1e-5)
