"""The temporal-shift layer as standard attention: equal after every layer, whatever is padded and masked."""

import math
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from icrl_agents import constructions, kernels
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.layers import (
    FullAttentionLayer,
    MultiheadLayer,
    export_multihead_attention,
    lifted_features,
    lifted_score,
)
from icrl_agents.transformer import InContextTransformer

pytestmark = pytest.mark.filterwarnings("ignore::icrl_agents.divergence.DivergenceWarning")

DIM, DEPTH = 3, 20
RNG = np.random.default_rng(0)
B = torch.as_tensor(np.eye(DIM) + 0.3 * RNG.normal(size=(DIM, DIM)))  # not symmetric
KERNELS = {
    "DotProduct": kernels.DotProduct(B),
    "Exponential": kernels.Exponential(0.7),
    "RBF": kernels.RBF(0.6),
    "RBF per dimension": kernels.RBF(torch.tensor([0.5, 1.0, 2.0])),
    "RBF median": kernels.RBF("median"),
}


def context_of(*lengths, offset=0.0):
    episodes = [
        Episode(offset + RNG.normal(size=(n + 1, DIM)), RNG.normal(size=n), bool(i % 2)) for i, n in enumerate(lengths)
    ]
    return Context.from_episodes(episodes, 0.9)


EMPTY = Context(torch.zeros(0, DIM, dtype=torch.float64), [], [], torch.zeros(0, DIM, dtype=torch.float64))
ONE, SEVERAL, OTHERS = context_of(8), context_of(5, 7, 3), context_of(2, 9, 1)
CONTEXTS = {
    "one trajectory": ONE,
    "several episodes": SEVERAL,
    "right padding": Context.stack([ONE, SEVERAL, OTHERS]),
    "left padding": Context.stack([ONE, SEVERAL, OTHERS], "left"),
    "two batch dimensions": None,
    "an empty one among others": Context.stack([EMPTY, SEVERAL]),
    "empty": EMPTY,
}


def batched_twice():
    both = Context.stack([SEVERAL, OTHERS])
    rows = [both.states, both.rewards, both.discounts, both.next_states]
    mask, linked = (torch.stack([part, part.flip(0)]) for part in (both.mask, both.contiguous))
    return Context(*(torch.stack([row, row.flip(0)]) for row in rows), mask=mask, contiguous=linked)


CONTEXTS["two batch dimensions"] = batched_twice()
QUERIES = torch.as_tensor(RNG.normal(size=(4, DIM)))


def standard(transformer, depth=DEPTH):
    return InContextTransformer([export_multihead_attention(transformer.blocks[0], DIM)], depth)


def assert_close(found, expected, tolerance=1e-10):
    assert found.shape == expected.shape
    if found.numel():
        assert float(((found - expected).abs() / expected.abs().clamp(min=1.0)).max()) <= tolerance


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_every_layer_equals_ours(kernel, context, training):
    ours = constructions.weighted_softmax_td(kernel, DEPTH, 0.8)
    theirs = standard(ours).train(training)
    layers = list(zip(theirs.hidden_states(context, QUERIES), ours.hidden_states(context, QUERIES), strict=True))
    assert len(layers) == DEPTH + 1
    for found, expected in layers:
        assert_close(found[..., -3:], expected[..., -3:])
    assert_close(theirs.fit(context).by_depth(QUERIES), ours.fit(context).by_depth(QUERIES))
    assert_close(theirs(context, QUERIES), ours(context, QUERIES))


def test_the_weights_are_the_constructions_up_to_the_scale_of_standard_attention():
    layer = constructions.weighted_softmax_td(kernels.DotProduct(B), 1, 0.5).blocks[0]
    attention = export_multihead_attention(layer, DIM).attention
    W_Q, W_K, W_V = attention.in_proj_weight.chunk(3)
    A = torch.zeros(DIM + 3, DIM + 3, dtype=torch.float64)
    A[:DIM, :DIM] = B.mT  # the key first
    torch.testing.assert_close(W_K.mT @ W_Q / math.sqrt(DIM + 3), A)
    torch.testing.assert_close(attention.out_proj.weight @ W_V, layer.value_matrices(DIM)[0])


@pytest.mark.parametrize("offset", [0.0, 1_000.0])
def test_scaled_dot_product_attention_of_lifted_features_is_the_rbf(offset):
    x, y = (torch.as_tensor(offset + RNG.normal(size=(n, DIM))) for n in (4, 9))
    values = torch.as_tensor(RNG.normal(size=(9, 2)))
    query, key = (lifted_features(states, 0.6, y.mean(0)) for states in (x, y))
    scores = kernels.RBF(0.6).score(x, y)
    B = lifted_score(DIM)
    attended = nn.functional.scaled_dot_product_attention(query @ B, key, values, scale=1.0)
    torch.testing.assert_close(attended, torch.softmax(scores, -1) @ values, rtol=0, atol=1e-10)
    exact = query @ lifted_score(DIM, symmetric=True) @ key.mT
    torch.testing.assert_close(exact, scores, rtol=0, atol=1e-9)


def test_far_from_the_origin_single_precision_keeps_its_digits():
    context = context_of(12, offset=1_000.0).to(dtype=torch.float32)
    ours = constructions.weighted_softmax_td(kernels.RBF(0.6), DEPTH)
    found, expected = (t.fit(context)(QUERIES.float() + 1_000.0) for t in (standard(ours), ours))
    assert found.dtype == torch.float32
    assert_close(found, expected, 2e-3)


def test_the_context_decides_the_floating_type_and_weights_stay_as_they_are():
    theirs = standard(constructions.weighted_softmax_td(kernels.DotProduct(B), DEPTH))
    before = {name: weight.clone() for name, weight in theirs.state_dict().items()}
    assert theirs(SEVERAL.to(dtype=torch.float32), QUERIES.float()).dtype == torch.float32
    assert all(torch.equal(weight, before[name]) for name, weight in theirs.state_dict().items())
    assert {weight.dtype for weight in before.values()} == {torch.float64}


def test_what_the_padding_holds_is_not_read_and_a_gradient_is_finite():
    batch = Context.stack([EMPTY, SEVERAL])
    theirs = standard(constructions.weighted_softmax_td(kernels.DotProduct(B), 5))
    theirs.requires_grad_(True)
    theirs(batch, QUERIES).square().sum().backward()
    gradient = theirs.blocks[0].attention.in_proj_weight.grad
    assert bool(torch.isfinite(gradient).all())
    assert float(gradient.abs().max()) > 0


@pytest.mark.parametrize(
    ("layer", "dim", "error", "message"),
    [
        (constructions.weighted_softmax_td(kernels.RBF(1.0), 1, form="dual_head").blocks[0], 3, TypeError, "DualHead"),
        (constructions.linear_td(3, 1).blocks[0], 3, TypeError, "LinearAttentionLayer"),
        (constructions.kernel_td(kernels.RBF(1.0), 1, form="temporal_shift").blocks[0], 3, ValueError, "no softmax"),
        (constructions.weighted_softmax_td(kernels.Laplace(1.0), 1).blocks[0], 3, ValueError, "score is bilinear"),
        (constructions.weighted_softmax_td(kernels.DotProduct(B), 1).blocks[0], 4, ValueError, "dim: expected 3"),
        (constructions.weighted_softmax_td(kernels.RBF(1.0), 1).blocks[0], 0, ValueError, "dim: expected an integer"),
    ],
)
def test_what_is_no_standard_attention_is_refused(layer, dim, error, message):
    with pytest.raises(error, match=message):
        export_multihead_attention(layer, dim)


def test_other_forms_of_attention_are_refused():
    with pytest.raises(ValueError, match="one head"):
        MultiheadLayer(nn.MultiheadAttention(6, 2, bias=False, batch_first=True))
    with pytest.raises(ValueError, match="batch_first"):
        MultiheadLayer(nn.MultiheadAttention(6, 1, bias=False))


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("shape", [(0, 2), (3, 2), (4, 1, 3, 2), (3, 4, 2, 1, 2)])
def test_queries_of_any_shape_are_answered_as_by_other_layers(batch, shape):
    rng = np.random.default_rng(0)
    contexts = [Context(rng.normal(size=(5, 2)), np.ones(5), np.full(5, 0.9), rng.normal(size=(5, 2))) for _ in "ab"]
    context = Context.stack(contexts) if batch else contexts[0]
    ours = constructions.weighted_softmax_td(kernels.RBF(0.5), 5)
    queries = torch.as_tensor(rng.normal(size=shape))
    expected = ours.fit(context)(queries)
    found = InContextTransformer([export_multihead_attention(ours.blocks[0], 2)], 5).fit(context)
    torch.testing.assert_close(found(queries), expected, rtol=1e-10, atol=1e-10)
    free = InContextTransformer([FullAttentionLayer(0.1 * torch.eye(5), torch.eye(5))], 3).fit(context)
    assert free(queries).shape == expected.shape
    for value in (found, free):
        assert torch.equal(pickle.loads(pickle.dumps(value))(queries), value(queries))


def test_weights_that_were_trained_are_run_through_as_they_are():
    context, queries = ONE, torch.as_tensor(np.random.default_rng(1).normal(size=(3, 3)))
    exported = export_multihead_attention(constructions.weighted_softmax_td(kernels.RBF(0.7), 1).blocks[0], 3)
    transformer = InContextTransformer([exported], 6)
    before = transformer.fit(context)
    values = before(queries)
    with torch.no_grad():
        weight = exported.attention.in_proj_weight
        weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0), dtype=weight.dtype)
    assert torch.equal(before(queries), values)  # of the weights of the fit
    after = transformer.fit(context)
    assert not torch.allclose(after(queries), values, rtol=1e-3)
    torch.testing.assert_close(after(queries), transformer(context, queries), rtol=1e-12, atol=1e-12)
    values = after(queries)
    with torch.no_grad():
        weight.mul_(2.0)
    assert torch.equal(after(queries), values)


def test_gradients_of_fitted_values_are_those_in_every_weight():
    exported = export_multihead_attention(constructions.weighted_softmax_td(kernels.RBF(0.7), 1).blocks[0], 3)
    transformer, generator = InContextTransformer([exported], 6).requires_grad_(), torch.Generator().manual_seed(0)
    weights = list(exported.attention.parameters())
    steps = [torch.randn(weight.shape, generator=generator, dtype=weight.dtype) for weight in weights]

    def slopes(values):
        return [
            float((g * step).sum()) for g, step in zip(torch.autograd.grad(values.sum(), weights), steps, strict=True)
        ]

    def moved(weight, step):
        with torch.no_grad():
            weight += step
            value = float(transformer(ONE, QUERIES).sum())
            weight -= step
        return value

    differences = [
        (moved(weight, 1e-6 * step) - moved(weight, -1e-6 * step)) / 2e-6
        for weight, step in zip(weights, steps, strict=True)
    ]
    assert slopes(transformer.fit(ONE)(QUERIES)) == pytest.approx(differences, rel=1e-5)
    assert slopes(transformer(ONE, QUERIES)) == pytest.approx(differences, rel=1e-5)


def test_an_export_moves_no_global_generator():
    before = torch.get_rng_state()
    export_multihead_attention(constructions.weighted_softmax_td(kernels.RBF(0.5), 2).blocks[0], 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_exported_layer_shares_no_weight_with_its_source():
    source = constructions.weighted_softmax_td(kernels.RBF(0.7), 1).blocks[0]
    exported = export_multihead_attention(source, 3)
    with torch.no_grad():
        source.attention.kernel.length_scale.mul_(3.0)
    assert float(exported.lift.length_scale) == 0.7


@pytest.mark.parametrize("options", [{"dropout": 0.1}, {"kdim": 4}, {"vdim": 4}, {"add_zero_attn": True}])
def test_attention_of_another_form_is_refused(options):
    attention = nn.MultiheadAttention(6, 1, bias=False, batch_first=True, **options)
    with pytest.raises(ValueError, match="attention: expected keys and values of the queries' dimension"):
        MultiheadLayer(attention)
