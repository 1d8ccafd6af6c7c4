"""Contexts compressed to their states: equal to the transformer on the full context, and to plain loops."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from icrl_agents import kernels
from icrl_agents.attention import KernelAttention, SoftmaxAttention
from icrl_agents.compressed import CompressedContexts, attention, state_values
from icrl_agents.constructions import (
    average_reward_td,
    kernel_td,
    linear_td,
    residual_gradient,
    td_lambda,
    weighted_softmax_td,
)
from icrl_agents.kernels import DotProduct
from icrl_agents.layers import DualHeadLayer, FullAttentionLayer, LinearAttentionLayer, TemporalShiftLayer
from icrl_agents.transformer import InContextTransformer
from icrl_agents.value_function import DivergenceError

B, S, D, N = 3, 5, 4, 12


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def contexts():
    rng = np.random.default_rng(0)
    path = torch.from_numpy(rng.integers(S - 1, size=(B, N + 1)))  # the last state is never visited
    path[0, -1] = S - 1  # but once as the final observation
    discounts = torch.from_numpy(rng.choice([0.0, 0.5, 0.9], size=(B, N)))
    return CompressedContexts(normal(B, S, D), normal(B, S, seed=1), path, discounts)


def softmax(seed):
    return SoftmaxAttention(DotProduct(normal(D, D, seed=seed)))


def shift(seed):
    return TemporalShiftLayer(softmax(seed), normal(3, seed=seed + 1))


def dual(seed):
    return DualHeadLayer(softmax(seed), normal(3, seed=seed + 1) / 2, normal(3, seed=seed + 2) / 2)


def linear(seed):
    return LinearAttentionLayer(normal(2, 9, 9, seed=seed) / 9, normal(2, 9, 9, seed=seed + 1) / 9)


def full(seed, heads=1):
    form = "dual_head" if heads == 2 else "temporal_shift"
    return FullAttentionLayer(normal(heads, 7, 7, seed=seed) / 7, normal(heads, 7, 7, seed=seed + 1) / 7, form=form)


TRANSFORMERS = {
    "shift, tied": InContextTransformer([shift(0)], 4),
    "shift, sequential": InContextTransformer([shift(0), shift(5), shift(9)], 1),
    "dual, tied": InContextTransformer([dual(0)], 4),
    "dual, sequential and looped": InContextTransformer([dual(0), dual(5)], 2),
    "shift and dual": InContextTransformer([shift(0), dual(5)], 2),
    "linear, two heads": InContextTransformer([linear(0), linear(5)], 2),
    "full": InContextTransformer([full(0), full(5)], 2),
    "full, two heads": InContextTransformer([full(0, 2)], 3),
    "identity": weighted_softmax_td(kernels.Identity(), 5),
    "median": weighted_softmax_td(kernels.RBF("median"), 5, form="dual_head"),
    "kernel TD": kernel_td(kernels.RBF(1.0), 5),
    "linear TD": linear_td(D, 5),
    "TD(λ)": td_lambda(D, 5, 0.5, step_size=0.1),
    "TD(λ), its own step": td_lambda(D, 5, 0.5),
    "residual gradient": residual_gradient(D, 5),
    "linear, two decays": InContextTransformer(
        [linear(0), LinearAttentionLayer(*linear(3).parameters(), trace_decay=0.7)], 2
    ),
    "no layer": weighted_softmax_td(kernels.RBF(1.0), 0),
}


@pytest.mark.parametrize("transformer", TRANSFORMERS.values(), ids=TRANSFORMERS)
def test_state_values_are_those_of_the_transformer_on_the_full_context(transformer, contexts):
    values = state_values(transformer, contexts)
    torch.testing.assert_close(values, transformer(contexts.context, contexts.points), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(values, transformer.fit(contexts.context)(contexts.points), rtol=1e-10, atol=1e-10)


def test_average_reward_is_that_of_the_transformer_on_the_full_context(contexts):
    going_on = dataclasses.replace(contexts, discounts=torch.full_like(contexts.discounts, 0.9))
    transformer = average_reward_td(D, 5)
    values = transformer(going_on.context, going_on.points)
    torch.testing.assert_close(state_values(transformer, going_on), values, rtol=1e-12, atol=1e-12)


def plain_softmax_values(points, rewards, path, discounts, B, w, layers):
    """One head and the temporal shift, column by column; then every point as a query."""
    n, d = len(path) - 1, len(points[0])

    def attend(x):
        scores = [math.fsum(x[i] * B[i][j] * points[s][j] for i in range(d) for j in range(d)) for s in path[:n]]
        total = math.fsum(math.exp(score) for score in scores)
        return [math.exp(score) / total for score in scores]

    columns, queries = [points[s] for s in path], points
    v, u, out = [0.0] * (n + 1), [0.0] * n, [0.0] * len(points)
    for _ in range(layers):
        sent = [w[0] * rewards[path[k]] + w[1] * u[k] + w[2] * v[k] for k in range(n)]
        out = [
            o + math.fsum(a * m for a, m in zip(attend(x), sent, strict=True))
            for o, x in zip(out, queries, strict=True)
        ]
        v = [
            o + math.fsum(a * m for a, m in zip(attend(x), sent, strict=True)) for o, x in zip(v, columns, strict=True)
        ]
        u = [discounts[k] * v[k + 1] for k in range(n)]
    return out


@pytest.mark.filterwarnings("ignore::icrl_agents.value_function.DivergenceWarning")  # of weights that are no TD's
def test_state_values_are_those_of_a_plain_loop(contexts):
    layer = shift(3)
    values = state_values(InContextTransformer([layer], 4), contexts)
    for b in range(B):
        arrays = (contexts.points, contexts.rewards, contexts.path, contexts.discounts)
        expected = plain_softmax_values(
            *(array[b].tolist() for array in arrays),
            layer.attention.kernel.matrix.tolist(),
            layer.value_weights.tolist(),
            4,
        )
        assert values[b].tolist() == pytest.approx(expected, rel=1e-10, abs=1e-12)


def plain_linear_weights(columns, P, Q, layers):
    """Minus the last row of each unit feature as a query, Z ← Z + (1/n) P Z M Zᵀ Q Z in plain loops."""
    size, n = len(P), len(columns)
    d = (size - 1) // 2
    Z = [list(column) for column in columns] + [[float(i == j) for i in range(size)] for j in range(d)]
    apply = lambda M, z: [math.fsum(M[i][j] * z[j] for j in range(size)) for i in range(size)]  # noqa: E731
    for _ in range(layers):
        sent, asked = [apply(P, z) for z in Z[:n]], [apply(Q, z) for z in Z]
        scores = [[math.fsum(a * b for a, b in zip(key, q, strict=True)) for key in Z[:n]] for q in asked]
        Z = [
            [z[i] + math.fsum(s[k] * sent[k][i] for k in range(n)) / n for i in range(size)]
            for z, s in zip(Z, scores, strict=True)
        ]
    return [-z[-1] for z in Z[n:]]


def test_linear_attention_is_that_of_a_plain_loop(contexts):
    P, Q = normal(9, 9, seed=1) / 9, normal(9, 9, seed=2) / 9
    values = state_values(InContextTransformer([LinearAttentionLayer(P, Q)], 3), contexts)
    for b in range(B):
        points, rewards, path = contexts.points[b].tolist(), contexts.rewards[b].tolist(), contexts.path[b].tolist()
        columns = [
            [*points[path[k]], *(contexts.discounts[b, k].item() * x for x in points[path[k + 1]]), rewards[path[k]]]
            for k in range(N)
        ]
        w = plain_linear_weights(columns, P.tolist(), Q.tolist(), 3)
        expected = [math.fsum(a * x for a, x in zip(w, point, strict=True)) for point in points]
        assert values[b].tolist() == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_attention_counts_every_transition(contexts):
    layer = shift(0)
    K = attention(layer, contexts)
    weights = layer.bind(contexts.context)(contexts.points)
    torch.testing.assert_close(K, contexts.by_point(weights), rtol=1e-12, atol=1e-12)
    assert not K[..., -1].any()


@pytest.mark.filterwarnings("ignore::icrl_agents.value_function.DivergenceWarning")  # of scores that are not diagonal
def test_full_layers_contain_the_construction(contexts):
    dim, signs = D + 3, torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    B = normal(D, D)
    V, A = torch.zeros(2, dim, dim, dtype=torch.float64), torch.zeros(2, dim, dim, dtype=torch.float64)
    A[:, :D, :D] = B.mT  # the key comes first
    V[0, -1, -3:], V[1, -2, -3:] = signs, signs
    for form, heads in (("temporal_shift", 1), ("dual_head", 2)):
        layer = FullAttentionLayer(V[:heads], A[:heads], form=form)
        constructed = weighted_softmax_td(DotProduct(B), 6, form=form)
        values = state_values(InContextTransformer([layer], 6), contexts)
        torch.testing.assert_close(values, state_values(constructed, contexts), rtol=1e-12, atol=1e-12)


def test_full_layers_are_evaluators_at_every_depth_and_survive_a_checkpoint(contexts, tmp_path):
    transformer = InContextTransformer([full(0, 2), full(5, 2)], 2)
    value_function = transformer.fit(contexts.context)
    for depth, tokens in enumerate(transformer.hidden_states(contexts.context, contexts.points)):
        at_depth = value_function.at_depth(depth)(contexts.points)
        torch.testing.assert_close(at_depth, tokens[..., -S:, -1], rtol=1e-12, atol=1e-12)
    transformer.save_pretrained(tmp_path)
    again = InContextTransformer.from_pretrained(tmp_path)
    assert torch.equal(again(contexts.context, contexts.points), transformer(contexts.context, contexts.points))


def test_full_layers_refuse_matrices_that_do_not_fit():
    with pytest.raises(ValueError, match="form: expected one of"):
        FullAttentionLayer(torch.eye(5), torch.eye(5), form="triple_head")
    with pytest.raises(ValueError, match=r"V: expected shape \(2, d \+ 3, d \+ 3\)"):
        FullAttentionLayer(torch.eye(5), torch.eye(5), form="dual_head")
    with pytest.raises(ValueError, match="A: expected the shape of V"):
        FullAttentionLayer(torch.eye(5), torch.eye(6))
    with pytest.raises(ValueError, match="V: expected finite"):
        FullAttentionLayer(torch.full((5, 5), torch.nan), torch.eye(5))


@pytest.mark.parametrize("size", [1e160, 10.0])
def test_values_that_are_not_finite_are_an_error_as_of_the_transformer(size, contexts):
    transformer = weighted_softmax_td(DotProduct(torch.eye(D)), 6_000, 3.0)
    contexts = dataclasses.replace(contexts, points=size * contexts.points)
    with pytest.raises((ValueError, DivergenceError)):
        transformer(contexts.context, contexts.points)
    with pytest.raises(DivergenceError, match="values are not finite"):
        state_values(transformer, contexts)


def test_attention_is_softmax_over_a_score_or_refused(contexts):
    for rule in (KernelAttention(kernels.RBF(1.0)), SoftmaxAttention(kernels.Linear())):
        with pytest.raises(ValueError, match="layer: expected SoftmaxAttention over a kernel with a score"):
            attention(TemporalShiftLayer(rule), contexts)
    far = dataclasses.replace(contexts, points=1e160 * contexts.points)
    with pytest.raises(ValueError, match="kernel: gives NaN or overflows"):
        attention(shift(0), far)


def test_a_million_transitions_in_single_precision_lose_no_digits():
    n, rng = 1_000_000, np.random.default_rng(0)
    points, rewards, path = torch.eye(2)[None], torch.tensor([[1.0, 2.0]]), torch.as_tensor(rng.integers(0, 2, (1, n)))
    contexts = CompressedContexts(points, rewards, path, torch.full((1, n - 1), 0.9))
    torch.testing.assert_close(contexts.routing.sum(-1), torch.full((1, 2), 0.9))
