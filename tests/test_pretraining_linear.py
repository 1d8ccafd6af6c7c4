"""Linear attention pretrained with the mask of TD(λ): against its formula in plain loops, and what it learns."""

import dataclasses
from itertools import pairwise

import pytest
import torch

from icrl_agents import PretrainConfig, pretrain
from icrl_agents.compressed import state_values
from icrl_agents.pretraining.batches import evaluation_batch
from icrl_agents.pretraining.model import construction

CONFIG = PretrainConfig(
    form="linear",
    trace_decay=0.6,
    features="random",
    num_states=5,
    num_features=3,
    representable=True,
    context_length=30,
    num_layers=3,
    tasks=32,
    steps=300,
    learning_rate=0.01,
    initial_scale=0.3,
    evaluate_every=300,
    evaluation_tasks=16,
)


@pytest.fixture(scope="module")
def trained():
    return pretrain(CONFIG)


def plain_values(P, Q, layers, contexts, row, gamma, lambda_):
    """Z ← Z + (1/n) P Z M Zᵀ Q Z entry by entry, M_ki = (γλ)^{k−i} for keys i ≤ k; minus the last entry of a query."""
    points, path = contexts.points[row].tolist(), contexts.path[row].tolist()
    rewards, n, d = contexts.rewards[row].tolist(), len(contexts), len(points[0])
    Z = [[*points[s], *(gamma * x for x in points[t]), rewards[s]] for s, t in pairwise(path)]
    Z += [[*x, *([0.0] * (d + 1))] for x in points]
    D = range(2 * d + 1)
    for _ in range(layers):
        after = []
        for z in Z:
            Qz = [sum(Q[a][b] * z[b] for b in D) for a in D]
            heard = [sum(Z[i][a] * Qz[a] for a in D) for i in range(n)]
            kept = [sum((gamma * lambda_) ** (k - i) * heard[i] for i in range(k + 1)) for k in range(n)]
            sent = [sum(Z[k][a] * kept[k] for k in range(n)) / n for a in D]
            after.append([z[a] + sum(P[a][b] * sent[b] for b in D) for a in D])
        Z = after
    return [-z[-1] for z in Z[n:]]


def test_a_trained_transformer_is_its_formula_in_plain_loops(trained):
    contexts = evaluation_batch(CONFIG).contexts
    block = trained.transformer.blocks[0]
    values = state_values(trained.transformer, contexts)
    torch.testing.assert_close(values, trained.transformer.fit(contexts.context)(contexts.points))
    P, Q = block.P[0].tolist(), block.Q[0].tolist()
    for row in range(2):
        expected = plain_values(P, Q, CONFIG.num_layers, contexts, row, CONFIG.gamma, CONFIG.trace_decay)
        assert values[row].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-11)
    without = plain_values(P, Q, CONFIG.num_layers, contexts, 0, CONFIG.gamma, 0.0)
    assert values[0].tolist() != pytest.approx(without, rel=1e-3)  # λ counts


def test_the_loss_and_the_value_error_fall(trained):
    assert trained.losses[-50:].mean() < 0.8 * trained.losses[:50].mean()
    first, last = trained.rows
    assert last.value_error < 0.8 * first.value_error


def test_it_is_compared_with_the_construction_of_the_same_decay():
    assert construction(CONFIG).blocks[0].trace_decay == 0.6
    assert construction(dataclasses.replace(CONFIG, trace_decay=0.0)).blocks[0].trace_decay == 0.0


def test_a_decay_that_no_layer_would_use_is_refused():
    with pytest.raises(ValueError, match="trace_decay: expected form 'linear'"):
        PretrainConfig(trace_decay=0.5)
    with pytest.raises(ValueError, match="trace_decay must be"):
        dataclasses.replace(CONFIG, trace_decay=1.5)
