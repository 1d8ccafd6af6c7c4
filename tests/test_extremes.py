"""States far away, far apart, or of extreme size: the right value or a clear error, never a silent 0."""

import math

import numpy as np
import pytest
import torch

from icrl_agents.attention import KernelAttention, SoftmaxAttention
from icrl_agents.compressed import CompressedContexts, state_values
from icrl_agents.constructions import residual_gradient, weighted_softmax_td
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import LSTD, KernelTD, LinearTD, ResidualGradient, TDLambda, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, DotProduct, Exponential, Identity, Laplace, Linear, ProductLaplace
from icrl_agents.layers import DualHeadLayer, FullAttentionLayer, TemporalShiftLayer, export_multihead_attention
from icrl_agents.transformer import InContextTransformer

RNG = np.random.default_rng(0)
STATES, REWARDS = RNG.normal(size=(31, 3)), RNG.normal(size=30)


def context_of(scale=1.0, dtype=torch.float64, discount=0.5):
    return Context.from_episodes([Episode(scale * STATES, REWARDS)], discount).to(dtype=dtype)


@pytest.mark.parametrize("kernel", [DotProduct(torch.eye(4)), Exponential(1.0)])
def test_a_query_far_from_every_key_under_a_dot_product_is_the_plain_average(kernel):
    one_hot = np.eye(4)[[0, 1, 2, 0, 1]]
    context = Context(one_hot, [1.0, 2.0, 3.0, 4.0, 5.0], [0.0] * 5, one_hot)
    value, far = WeightedSoftmaxTD(kernel, 1).fit(context), np.eye(4)[3]
    assert float(value(far)) == pytest.approx(3.0)
    assert float(value.effective_sample_size(far)) == pytest.approx(5.0)
    narrow = WeightedSoftmaxTD(RBF(0.1), 1).fit(context)
    assert float(narrow.effective_sample_size(np.eye(4)[2])) == pytest.approx(1.0)


def test_the_effective_sample_size_of_different_layers_is_the_smallest():
    context = context_of()
    blocks = [TemporalShiftLayer(SoftmaxAttention(RBF(scale)), (0.5, 0.5, -0.5)) for scale in (0.1, 100.0)]
    first, second = (InContextTransformer([b]).fit(context).effective_sample_size(STATES[:5]) for b in blocks)
    both = InContextTransformer(blocks).fit(context).effective_sample_size(STATES[:5])
    assert torch.equal(both, torch.minimum(first, second))
    assert bool((first < second).all())
    mixed = [TemporalShiftLayer(KernelAttention(RBF(0.1), 0.1)), blocks[1]]
    assert InContextTransformer(mixed).fit(context).effective_sample_size(STATES[:5]).shape == (5,)


@pytest.mark.parametrize("scale", [1e-160, 1e-100, 1e100, 1e160])
def test_lstd_does_not_depend_on_the_size_of_the_features(scale):
    expected = LSTD().fit(context_of())(STATES)
    torch.testing.assert_close(LSTD().fit(context_of(scale))(scale * STATES), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-160, 1e160])
@pytest.mark.parametrize(
    "evaluator", [LinearTD(5), LinearTD(5, 0.1), TDLambda(0.5, 5), ResidualGradient(5)], ids=lambda e: type(e).__name__
)
def test_features_whose_squares_leave_the_floating_type_are_refused(evaluator, scale):
    with pytest.raises(ValueError, match=r"context: states of size .*e[+-]160 have squares outside of torch.float64"):
        evaluator.fit(context_of(scale))


def test_states_so_far_apart_that_every_score_overflows_are_refused():
    for kernel in (RBF(1.0), Laplace(1.0)):
        with pytest.raises(ValueError, match=r"kernel: every score of some state overflows torch.float64, so far"):
            WeightedSoftmaxTD(kernel, 3).fit(context_of(1e160))
    with pytest.raises(ValueError, match=r"states of size .* have squares outside of torch.float64; scale them"):
        KernelTD(Linear(), 3).fit(context_of(1e160))
    value = WeightedSoftmaxTD(RBF(1.0), 3).fit(context_of())
    with pytest.raises(ValueError, match="every score of some state overflows"):
        value(1e160 * STATES)
    assert not WeightedSoftmaxTD(Identity(), 3).fit(context_of())(2 * STATES).any()


@pytest.mark.parametrize("far", [100.0, 1e4, 1e8, 1e25])
@pytest.mark.parametrize("kernel", [RBF(1.0), Laplace(1.0), ProductLaplace(1.0)], ids=lambda k: type(k).__name__)
def test_single_precision_weighs_keys_that_are_all_far_by_how_far_they_are(kernel, far):
    context, queries = context_of(dtype=torch.float32), torch.as_tensor(far * STATES[:9]).float()
    short = Context.from_episodes([Episode(STATES[:4], REWARDS[:3])], 0.5).to(dtype=torch.float32)
    evaluator = WeightedSoftmaxTD(kernel, 5)
    expected = evaluator.fit(context.to(dtype=torch.float64))._bases[0](queries.double())
    found = evaluator.fit(context)._bases[0](queries)
    torch.testing.assert_close(found, expected.float(), rtol=0, atol=2e-4)
    batch = evaluator.fit(Context.stack([short, context], "left"))._bases[0](queries)
    torch.testing.assert_close(batch[1], found, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("length_scale", [0.05, 1.0])
def test_distances_keep_their_digits_wherever_the_states_lie(offset, dtype, length_scale):
    x, y = (torch.as_tensor(offset + part).to(dtype) for part in (STATES[:8], STATES[4:]))
    differences = (x.double()[:, None] - y.double()[None]) / length_scale
    expected = torch.exp(-0.5 * differences.square().sum(-1))
    tolerance = 1e-11 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(RBF(length_scale)(x, y).double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("apart", [25.0, 1e3, 1e5])
def test_kernels_keep_their_digits_within_clusters_however_far_apart_these_are(apart, dtype):
    x = torch.cat([torch.as_tensor(STATES[:9]), apart + torch.as_tensor(STATES[9:18])]).to(dtype)
    differences = (x.double()[:, None] - x.double()[None]) / 0.7
    scores = {
        RBF: -0.5 * differences.square().sum(-1),
        Laplace: -differences.norm(dim=-1),
        ProductLaplace: -differences.abs().sum(-1),
    }
    for kernel, score in scores.items():
        torch.testing.assert_close(
            kernel(0.7)(x, x).double(), score.exp(), rtol=0, atol=2e-7 if dtype == torch.float32 else 1e-9
        )


DOT = weighted_softmax_td(DotProduct(torch.eye(3) / 1024), 10)
A = torch.zeros(6, 6)
A[:3, :3], A[3, 3] = torch.eye(3) / 1024, 1.0
WITH_PRODUCTS = {
    "dot product": DOT,
    "exponential, two heads": weighted_softmax_td(Exponential(1024.0), 10, form="dual_head"),
    "standard attention": InContextTransformer([export_multihead_attention(DOT.blocks[0], 3)], 10),
    "full": InContextTransformer([FullAttentionLayer(DOT.blocks[0].value_matrices(3)[0], A)], 10),
}


@pytest.mark.parametrize("transformer", WITH_PRODUCTS.values(), ids=WITH_PRODUCTS)
def test_single_precision_weighs_keys_by_large_products_as_double_precision_does(transformer):
    states = (torch.from_numpy(STATES) * 3.0 + 1e4).float()  # products near 3e5, whose differences are about 100
    narrow = Context(states[:-1], torch.from_numpy(REWARDS).float(), torch.full((30,), 0.5), states[1:])
    expected = transformer.fit(narrow.to(dtype=torch.float64))(states.double())
    for values in (transformer.fit(narrow)(states), transformer(narrow, states)):
        torch.testing.assert_close(values.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "transformer", [residual_gradient(1, 500), weighted_softmax_td(RBF(1.0), 500, form="dual_head")]
)
def test_long_passes_in_single_precision_keep_their_digits(transformer):
    path = torch.zeros(1, 2, dtype=torch.int64)  # one state, and one transition from it to itself
    narrow = CompressedContexts(torch.tensor([[[0.7]]]), torch.tensor([[1e6]]), path, torch.tensor([[0.99]]))
    value, step = 0.0, 1.0 if isinstance(transformer.blocks[0], DualHeadLayer) else 100.0
    for _ in range(500):
        value += step * (1e6 + 0.99 * value - value)
    torch.testing.assert_close(state_values(transformer, narrow), torch.tensor([[value]]), rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_far_from_those_visited_is_weighed_or_refused_as_by_the_transformer(dtype):
    points = torch.tensor([[[0.0], [0.01], [60.0]]], dtype=dtype)
    path = torch.tensor([[0, 1, 0, 1, 0, 1, 0]])
    far = CompressedContexts(points, torch.tensor([[1.0, -1.0, 0.0]], dtype=dtype), path, points.new_zeros(1, 6))
    near = weighted_softmax_td(Laplace(0.01), 1)
    share = math.exp(1.0) / (1.0 + math.exp(1.0))  # of the visits of the second state, which is one ℓ nearer
    rounded = 1e-5 if dtype == torch.float32 else 1e-11
    assert float(state_values(near, far)[0, 2]) == pytest.approx(1.0 - 2.0 * share, abs=rounded)
    beyond = weighted_softmax_td(Laplace(1e-37) if dtype == torch.float32 else RBF(1e-160), 1)
    with pytest.raises(ValueError, match="kernel: every score of some state overflows"):
        state_values(beyond, far)


def test_a_kernel_in_training_mode_is_refused_as_by_the_transformer():
    class Deep(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.BatchNorm1d(3, dtype=torch.float64)

        def score(self, x, y):
            return RBF(1.0).score(*(self.net(each.flatten(0, -2)).view_as(each) for each in (x, y)))

        def forward(self, x, y):
            return self.score(x, y).exp()

    transformer = weighted_softmax_td(Deep(), 5)
    path = torch.arange(31)[None] % 7
    points, gamma = torch.from_numpy(STATES[None, :7]), torch.full((1, 30), 0.5, dtype=torch.float64)
    contexts = CompressedContexts(points, torch.from_numpy(REWARDS[None, :7]), path, gamma)
    with pytest.raises(ValueError, match="kernel: gives the same states other numbers beside other states"):
        state_values(transformer, contexts)
    transformer.eval()
    expected = transformer(contexts.context, contexts.points)
    torch.testing.assert_close(state_values(transformer, contexts), expected, rtol=1e-12, atol=1e-12)
