"""The norm of the expected update: against plain loops and finite differences, at the construction and away from it."""

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from icrl_agents.compressed import state_values
from icrl_agents.constructions import weighted_softmax_td
from icrl_agents.diagnostics import attention_matrix, expected_update, mean_updates, neu
from icrl_agents.kernels import DotProduct
from icrl_agents.pretraining import PretrainConfig, losses
from icrl_agents.pretraining.batches import batches
from icrl_agents.pretraining.model import random_transformer
from icrl_envs import FiniteProcess, boyan_chain, loop_chain

S = 5


def constructed(num_layers, scale=8.0, weights=(1.0, 1.0, -1.0)):
    transformer = weighted_softmax_td(DotProduct(scale * torch.eye(S)), num_layers)
    with torch.no_grad():
        transformer.blocks[0].value_weights.copy_(torch.tensor(weights))
    return transformer


def typical(transformer, context_length, num_contexts=100, **options):
    """Median NEU over ten chains."""
    estimates = [
        neu(
            transformer,
            boyan_chain(num_states=S, task_seed=seed),
            context_length=context_length,
            num_contexts=num_contexts,
            rng=np.random.default_rng(seed),
            **options,
        ).item()
        for seed in range(10)
    ]
    return float(np.median(estimates))


def plain_expected_update(transformer, contexts, P, mu, r, gamma, h=1e-6):
    """Mean over contexts of Σ_s μ(s) δ(s) ∂v(s)/∂θ_i with central differences, one weight after the other."""

    def values():
        with torch.no_grad():
            return state_values(transformer, contexts).tolist()

    base, update = values(), []
    for parameter in transformer.parameters():
        flat = parameter.data.view(-1)
        for i in range(len(flat)):
            flat[i] += h
            above = values()
            flat[i] -= 2 * h
            below = values()
            flat[i] += h
            total = 0.0
            for v, up, down in zip(base, above, below, strict=True):
                for s in range(len(v)):
                    following = math.fsum(P[s][t] * v[t] for t in range(len(v)))
                    total += mu[s] * (r[s] + gamma * following - v[s]) * (up[s] - down[s]) / (2 * h) / len(base)
            update.append(total)
    return update


def test_the_conditional_update_is_that_of_a_plain_loop(monkeypatch):
    process, transformer = loop_chain(num_states=S), constructed(4, scale=1.5, weights=(0.7, 0.4, -0.5))
    seen = []

    def spy(transformer, contexts):
        seen.append(contexts)
        return state_values(transformer, contexts)

    monkeypatch.setattr(sys.modules["icrl_agents.diagnostics.neu"], "state_values", spy)
    options = {"context_length": 15, "num_contexts": 6}
    first, second = mean_updates(transformer, process, rng=np.random.default_rng(0), **options)
    assert len(seen) == 2
    arrays = process.transition_matrix.tolist(), process.stationary_distribution().tolist(), process.rewards.tolist()
    for update, contexts in zip((first, second), seen, strict=True):
        expected = plain_expected_update(transformer, contexts, *arrays, process.gamma)
        assert update.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-8)
    measured = neu(transformer, process, rng=np.random.default_rng(0), **options).item()
    assert measured == pytest.approx(math.fsum(a * b for a, b in zip(first.tolist(), second.tolist(), strict=True)))
    assert not any(parameter.requires_grad for parameter in transformer.parameters())


def test_the_naive_estimator_is_biased_and_the_conditional_one_has_the_smallest_error():
    process, transformer = loop_chain(num_states=S), constructed(10, scale=2.0)

    def estimates(estimator, num_contexts):
        options = {"context_length": 30, "num_contexts": num_contexts, "estimator": estimator}
        return np.array([neu(transformer, process, rng=np.random.default_rng(i), **options).item() for i in range(60)])

    naive, two_batch, conditional = (estimates(name, 200) for name in ("naive", "two_batch", "conditional"))
    assert abs(two_batch.mean() - conditional.mean()) < 4 * two_batch.std() / math.sqrt(60)
    assert conditional.std() < two_batch.std() / 3
    assert naive.min() >= 0 > two_batch.min()
    assert estimates("naive", 10).mean() > 3 * naive.mean()  # the variance of h, which falls with the batch


def test_neu_vanishes_at_the_construction_as_contexts_grow():
    """Medians over chains; in order of magnitude 0.6, 1.5e-2 and 1e-3 at n = 20, 100 and 500, γ = 0.9 and L = 80."""
    by_length = [typical(constructed(80), n) for n in (20, 100, 500)]
    assert by_length[0] > 5 * by_length[1] > 25 * by_length[2]
    assert by_length[2] < 1e-2
    shallow = [typical(constructed(20), n) for n in (500, 2000)]
    assert min(shallow) > 10 * by_length[2]  # depth is what is missing there
    assert typical(constructed(160), 2000) < by_length[2] / 3


@pytest.mark.parametrize(
    "weights", [(1.0, 0.7, -1.0), (1.0, 1.0, -0.8), (0.5, 1.0, -1.0), (-1.0, 1.0, -1.0)], ids=lambda w: str(w)
)
def test_perturbed_weights_stay_above_the_construction(weights):
    assert typical(constructed(80, weights=weights), 500) > 10 * abs(typical(constructed(80), 500))


def test_random_weights_stay_above_the_construction():
    for seed in range(5):
        config = PretrainConfig(num_states=S, num_layers=10, seed=seed, initial_scale=0.3)
        assert typical(random_transformer(config), 500) > 3 * abs(typical(constructed(80), 500))


def test_neu_is_zero_at_an_exact_solution():
    """One state: every context shows the whole process, and the iteration ends at v = r/(1 − γ)."""
    process = FiniteProcess([[1.0]], [2.0], [[1.0]], 0.5, [1.0])
    transformer = weighted_softmax_td(DotProduct(torch.eye(1)), 60)
    for estimator in ("naive", "two_batch", "conditional"):
        rng = np.random.default_rng(0)
        estimate = neu(transformer, process, context_length=3, num_contexts=4, rng=rng, estimator=estimator)
        assert estimate.item() == pytest.approx(0.0, abs=1e-24)


@pytest.mark.parametrize("expectations", [False, True])
@pytest.mark.parametrize("form", [{}, {"form": "dual_head"}, {"form": "linear"}, {"parametrisation": "full"}], ids=str)
def test_the_gradient_of_the_neu_loss_is_that_of_finite_differences(form, expectations):
    config = PretrainConfig(
        num_states=3,
        context_length=8,
        num_layers=2,
        tasks=6,
        loss="neu",
        expectations=expectations,
        initial_scale=1.0,
        **form,
    )
    transformer, batch = random_transformer(config), next(iter(batches(config)))
    loss = losses.loss_of(config)
    loss(transformer, batch).backward()
    for parameter in transformer.parameters():
        flat, slopes = parameter.data.view(-1), parameter.grad.view(-1)
        for i in range(0, len(flat), max(1, len(flat) // 5)):
            flat[i] += 1e-5
            above = loss(transformer, batch).item()
            flat[i] -= 2e-5
            below = loss(transformer, batch).item()
            flat[i] += 1e-5
            assert slopes[i].item() == pytest.approx((above - below) / 2e-5, rel=1e-5, abs=1e-9)


def test_wrong_arguments_are_refused():
    options = {"context_length": 5, "num_contexts": 4, "rng": np.random.default_rng(0)}
    for changes, message in (
        ({"estimator": "three_batch"}, "estimator: expected one of"),
        ({"context_length": 0}, "context_length must be an integer ≥ 1"),
        ({"num_contexts": 1}, "num_contexts must be an integer ≥ 2"),
    ):
        with pytest.raises(ValueError, match=message):
            neu(constructed(2), boyan_chain(num_states=S), **{**options, **changes})


def test_a_transformer_without_weights_has_no_update():
    layers = weighted_softmax_td(DotProduct(torch.eye(S)), 0)
    rng = np.random.default_rng(0)
    assert float(neu(layers, boyan_chain(num_states=S), context_length=5, num_contexts=4, rng=rng)) == 0.0


def test_updates_are_the_same_where_gradients_are_switched_off():
    options = {"context_length": 15, "num_contexts": 6}
    transformer, chain = constructed(4, scale=1.5), loop_chain(num_states=S)
    expected = mean_updates(transformer, chain, rng=np.random.default_rng(0), **options)
    for off in (torch.no_grad(), torch.inference_mode()):
        with off:
            assert torch.equal(mean_updates(transformer, chain, rng=np.random.default_rng(0), **options), expected)


def test_a_process_may_hold_any_numbers():
    chain = boyan_chain(num_states=S)
    whole = FiniteProcess(chain.transition_matrix, np.arange(S), np.eye(S, dtype=int), chain.gamma, chain.start)
    parts = ("transition_matrix", "gamma", "stationary_distribution")
    mixed = SimpleNamespace(
        **{name: getattr(whole, name) for name in parts}, rewards=list(range(S)), features=np.eye(S, dtype=int)
    )
    found = [
        neu(constructed(3), process, context_length=9, num_contexts=4, rng=np.random.default_rng(0))
        for process in (whole, mixed)
    ]
    assert torch.equal(*found)


OWN = {  # a part of a process of one's own, what becomes of it, and what is said of that
    "rows that end": ("transition_matrix", lambda P: 0.8 * P, "add a state of reward 0 that it leads to"),
    "columns as rows": ("transition_matrix", lambda P: P.T, "each row of transition_matrix must be non-negative and"),
    "negative": ("transition_matrix", lambda P: 2 * P - np.eye(S), "each row of transition_matrix must be non-negativ"),
    "NaN": ("transition_matrix", lambda P: P * np.nan, "transition_matrix must be finite"),
    "fewer states": ("transition_matrix", lambda P: np.eye(S - 1), "must have shape"),
    "rewards": ("rewards", lambda r: r * np.nan, "rewards must be finite"),
    "weights": ("mu", lambda mu: 3 * mu, "stationary_distribution must be non-negative and sum to 1; it has"),
    "no weights": ("mu", lambda mu: mu * np.nan, "stationary_distribution must be finite"),
    "features": ("features", lambda x: x[:, 0], "features must be a non-empty array with 2 axes"),
    "gamma": ("gamma", lambda gamma: 1.5, r"gamma must be a finite number in \[0, 1\]"),
}


def own_process(**changes):
    chain = loop_chain(num_states=S)
    parts = {name: getattr(chain, name) for name in ("transition_matrix", "rewards", "features", "gamma")}
    parts |= {"mu": chain.stationary_distribution()}
    parts |= {name: change(parts[name]) for name, change in changes.items()}
    mu = parts.pop("mu")
    return SimpleNamespace(**parts, stationary_distribution=lambda: mu)


@pytest.mark.parametrize("name", OWN)
def test_a_process_of_ones_own_that_is_none_is_refused(name):
    part, change, message = OWN[name]
    process, options = own_process(**{part: change}), {"context_length": 9, "num_contexts": 4}
    for ask in (
        lambda: neu(constructed(2), process, rng=np.random.default_rng(0), **options),
        lambda: expected_update(process, DotProduct(torch.eye(S))),
        lambda: attention_matrix(process, DotProduct(torch.eye(S))),
    ):
        with pytest.raises(ValueError, match=message):
            ask()


def test_a_process_of_ones_own_in_single_precision_and_with_gradients_is_taken():
    rewards = torch.tensor(loop_chain(num_states=S).rewards, requires_grad=True)
    process = own_process(transition_matrix=lambda P: P.astype(np.float32), rewards=lambda _: rewards)
    limit = expected_update(process, DotProduct(8 * torch.eye(S))).limit()
    np.testing.assert_allclose(limit.detach(), loop_chain(num_states=S).values(), rtol=1e-5)
    assert torch.autograd.grad(limit.sum(), rewards)[0].abs().sum() > 1
    assert neu(constructed(2), process, context_length=9, num_contexts=4, rng=np.random.default_rng(0)) > 0
