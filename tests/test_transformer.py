"""The in-context transformer as a module: shapes, types, gradients, stacking, and what it refuses."""

import copy
import math

import numpy as np
import pytest
import torch

from icrl_agents import constructions, kernels
from icrl_agents.attention import KernelAttention, SoftmaxAttention
from icrl_agents.context import Context, Episode
from icrl_agents.layers import DualHeadLayer, LinearAttentionLayer, TemporalShiftLayer
from icrl_agents.transformer import InContextTransformer
from icrl_agents.value_function import DivergenceError

pytestmark = pytest.mark.filterwarnings("ignore::icrl_agents.divergence.DivergenceWarning")
DIM = 2
RNG = np.random.default_rng(0)


def draw(*lengths, terminated=False):
    episodes = [Episode(RNG.normal(size=(n + 1, DIM)), RNG.normal(size=n), terminated) for n in lengths]
    return Context.from_episodes(episodes, 0.9)


CONTEXT = Context.concatenate([draw(5, 3), draw(4, terminated=True)])
QUERIES = torch.as_tensor(RNG.normal(size=(3, DIM)))
EMPTY = Context(np.zeros((0, DIM)), [], [], np.zeros((0, DIM)))
MATRIX = torch.as_tensor(RNG.normal(size=(DIM, DIM)))
TRANSFORMERS = {
    "softmax RBF": lambda: constructions.weighted_softmax_td(kernels.RBF(torch.tensor([0.6, 0.9])), 5, 0.7),
    "softmax dual": lambda: constructions.weighted_softmax_td(kernels.DotProduct(MATRIX), 5, form="dual_head"),
    "kernel Laplace": lambda: constructions.kernel_td(kernels.Laplace(0.8), 5),
    "kernel exponential": lambda: constructions.kernel_td(kernels.Exponential(1.5), 5, 0.05),
    "linear": lambda: constructions.linear_td(DIM, 5),
    "lambda": lambda: constructions.td_lambda(DIM, 5, 0.6, 0.1, MATRIX),
    "residual": lambda: constructions.residual_gradient(DIM, 5),
}
each_transformer = pytest.mark.parametrize(
    "transformer", [build() for build in TRANSFORMERS.values()], ids=TRANSFORMERS
)


def close(found, expected, tolerance=1e-12):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@each_transformer
def test_forward_equals_fit_on_the_queries_for_every_shape(transformer):
    contexts = [CONTEXT, draw(3), draw(1, terminated=True)]
    batch = Context.stack(contexts)
    own = torch.as_tensor(RNG.normal(size=(3, 4, DIM)))
    for context, queries, shape in [
        (CONTEXT, QUERIES, (3,)),
        (CONTEXT, QUERIES[:0], (0,)),
        (CONTEXT, QUERIES.tolist(), (3,)),
        (CONTEXT, QUERIES.numpy(), (3,)),
        (batch, QUERIES, (3, 3)),
        (batch, own, (3, 4)),
        (batch, own[:1], (3, 4)),
    ]:
        values = transformer(context, queries)
        assert values.shape == shape
        close(values, transformer.fit(context)(queries))
    each = [transformer(context, queries) for context, queries in zip(contexts, own, strict=True)]
    close(transformer(batch, own), torch.stack(each))


@each_transformer
def test_hidden_states_are_all_layers_and_a_query_changes_no_other_column(transformer):
    alone = list(transformer.hidden_states(CONTEXT, QUERIES[:1]))
    together = list(transformer.hidden_states(CONTEXT, QUERIES))
    assert len(alone) == len(together) == transformer.num_layers + 1 == 6
    for one, all_ in zip(alone, together, strict=True):
        close(one, all_[: len(one)])
    columns = len(together[0]) - len(QUERIES)
    close(transformer.blocks[0].read_out(together[-1])[columns:], transformer(CONTEXT, QUERIES))


@each_transformer
def test_queries_are_promoted_and_never_rounded(transformer):
    single = CONTEXT.to(dtype=torch.float32)
    for context, queries in ((CONTEXT, QUERIES.float()), (single, QUERIES.float()), (single, QUERIES.tolist())):
        for values in (transformer(context, queries), transformer.fit(context)(queries)):
            assert values.dtype == context.dtype
            close(values.double(), transformer(CONTEXT, QUERIES), 1e-4)
    for function in (transformer.fit(single), lambda queries: transformer(single, queries)):
        with pytest.raises(TypeError, match=r"float64 would be rounded, since the context is torch.float32; pass"):
            function(QUERIES)


def test_a_diverging_forward_pass_is_an_error():
    diverging = constructions.weighted_softmax_td(kernels.RBF(0.5), 3000, 3.0)
    with pytest.raises(DivergenceError, match="not finite: the layers diverge"):
        diverging(CONTEXT, QUERIES)
    with pytest.raises(DivergenceError, match="not finite from layer"):
        diverging.fit(CONTEXT)


def test_a_transformer_owns_its_kernel():
    kernel = kernels.RBF(1 / 3)
    one, other = constructions.weighted_softmax_td(kernel, 3), constructions.kernel_td(kernel, 3)
    one.to(torch.float16)
    assert kernel.length_scale.dtype == torch.float64
    assert all(weight.dtype == torch.float64 for weight in other.parameters())


@each_transformer
def test_an_empty_context_is_worth_nothing_and_has_finite_gradients(transformer):
    transformer = copy.deepcopy(transformer).requires_grad_(True)
    for context in (EMPTY, Context.stack([EMPTY, CONTEXT])):
        values = transformer(context, QUERIES)
        assert not bool(values.reshape(-1, len(QUERIES))[0].any())
        assert not bool(transformer.fit(context).by_depth(QUERIES).reshape(-1, len(QUERIES), 6)[0].any())
        transformer.zero_grad()
        values.sum().backward()
        assert all(w.grad is None or bool(torch.isfinite(w.grad).all()) for w in transformer.parameters())


def losses(transformer):
    """A loss through the full forward pass, and the same one through the fitted value function."""
    targets = torch.arange(len(QUERIES), dtype=torch.float64)
    yield (transformer(CONTEXT, QUERIES) - targets).square().sum()
    yield (transformer.fit(CONTEXT)(QUERIES) - targets).square().sum()


@each_transformer
def test_weights_are_frozen_until_asked_and_their_gradients_are_finite_differences(transformer):
    assert not any(weight.requires_grad for weight in transformer.parameters())
    assert all(not loss.requires_grad for loss in losses(transformer))
    transformer = copy.deepcopy(transformer).requires_grad_(True)
    weights = list(transformer.parameters())
    first, second = (torch.autograd.grad(loss, weights) for loss in losses(transformer))
    assert all(float(gradient.abs().max()) > 0 for gradient in first)
    step = 1e-6
    for weight, *gradients in zip(weights, first, second, strict=True):
        flat = weight.detach().view(-1)
        for i, value in enumerate(flat.tolist()):
            sides = []
            for shifted in (value + step, value - step):
                flat[i] = shifted
                sides.append(float(next(losses(transformer)).detach()))
            flat[i] = value
            slope = (sides[0] - sides[1]) / (2 * step)
            for gradient in gradients:
                assert abs(float(gradient.reshape(-1)[i]) - slope) <= 1e-5 * max(1.0, abs(slope))


@each_transformer
def test_gradients_reach_the_queries_and_stay_finite_on_the_contexts_own_states(transformer):
    queries = torch.cat([QUERIES, CONTEXT.states]).requires_grad_(True)
    transformer(CONTEXT, queries).sum().backward()
    assert queries.grad is not None
    assert bool(torch.isfinite(queries.grad).all())
    assert float(queries.grad.abs().sum()) > 0


def layers():
    """Memory layers that differ in attention, kernel, weights and form."""
    return [
        DualHeadLayer(SoftmaxAttention(kernels.RBF(0.5)), (1.0, 1.0, -1.0), (1.0, 1.0, -1.0)),
        TemporalShiftLayer(KernelAttention(kernels.Laplace(0.7), 0.1), (0.8, 1.1, -0.9)),
        TemporalShiftLayer(SoftmaxAttention(kernels.DotProduct(MATRIX)), (0.5, 0.4, -0.6)),
    ]


@pytest.mark.parametrize("loops", [0, 1, 3])
@pytest.mark.parametrize("kind", ["memory", "linear"])
def test_sequential_layers_are_applied_in_order_and_fit_equals_forward_at_every_depth(kind, loops):
    matrices = torch.as_tensor(0.2 * RNG.normal(size=(4, 5, 5)))
    blocks = (
        layers() if kind == "memory" else [LinearAttentionLayer(*matrices[:2]), LinearAttentionLayer(*matrices[2:])]
    )
    transformer = InContextTransformer(blocks, loops)
    assert transformer.num_layers == loops * len(blocks)
    fitted = transformer.fit(CONTEXT)
    assert fitted.max_depth == transformer.num_layers
    tokens = blocks[0].tokens(CONTEXT, QUERIES)
    for depth, found in enumerate(transformer.hidden_states(CONTEXT, QUERIES)):
        close(found, tokens)
        close(blocks[0].read_out(found)[-len(QUERIES) :], fitted.at_depth(depth)(QUERIES))
        if depth < transformer.num_layers:
            block = blocks[depth % len(blocks)]
            tokens = block(tokens, CONTEXT, block.attend(block.bind(CONTEXT), tokens))
    assert depth == transformer.num_layers


def test_equal_sequential_blocks_are_a_tied_transformer():
    def block():
        return TemporalShiftLayer(SoftmaxAttention(kernels.RBF(0.5)))

    sequential, tied = InContextTransformer([block() for _ in range(4)]), InContextTransformer([block()], loops=4)
    close(sequential.fit(CONTEXT).by_depth(QUERIES), tied.fit(CONTEXT).by_depth(QUERIES))
    assert len(list(sequential.parameters())) == 4 * len(list(tied.parameters()))


def test_the_average_reward_is_read_from_the_layers_as_from_the_sweeps():
    transformer, context = constructions.average_reward_td(DIM, 7, "auto", 0.3), draw(6, 4)
    batch = Context.stack([context, draw(3)], padding="left")
    for each in (context, batch):
        reference = transformer.reference.fit(each)
        close(transformer.fit(each).average_rewards, reference.average_rewards)
        assert reference.average_rewards.shape[-1] == 8
    assert TRANSFORMERS["linear"]().fit(CONTEXT).average_rewards is None


def test_a_copy_shares_nothing_and_numpy_integers_count():
    transformer = constructions.kernel_td(kernels.RBF(0.5), np.int64(3))
    other = copy.deepcopy(transformer)
    other.get_parameter("blocks.0.value_weights").zero_()
    assert float(other(CONTEXT, QUERIES).abs().max()) == 0.0
    close(transformer(CONTEXT, QUERIES), transformer.reference.fit(CONTEXT)(QUERIES))
    assert type(transformer.loops) is int
    assert constructions.linear_td(np.int64(DIM), 1)(CONTEXT, QUERIES).shape == (3,)


def test_divergence_names_the_layer():
    with pytest.raises(DivergenceError, match=r"values are not finite from layer \d+ on"):
        constructions.kernel_td(kernels.RBF(0.5), 2_000, 10.0).fit(CONTEXT)


SOFTMAX = TRANSFORMERS["softmax RBF"]()
BATCH = Context.stack([CONTEXT, CONTEXT])
MISTAKES = [
    (lambda: SOFTMAX(CONTEXT, [0.0, 1.0]), ValueError, r"queries: expected shape \(m, 2\), got \(2,\)"),
    (lambda: SOFTMAX(CONTEXT, [[0.0]]), ValueError, r"queries: expected shape \(..., m, 2\), got \(1, 1\)"),
    (lambda: SOFTMAX(CONTEXT, np.zeros((4, 1, 2))), ValueError, r"queries: expected shape \(m, 2\), got \(4, 1, 2\)"),
    (
        lambda: SOFTMAX(BATCH, np.zeros((3, 1, 2))),
        ValueError,
        r"expected shape \(m, 2\) or \(2, m, 2\), got \(3, 1, 2\)",
    ),
    (lambda: SOFTMAX(CONTEXT, [[math.nan, 0.0]]), ValueError, r"queries: expected finite numbers, got nan at index"),
    (lambda: SOFTMAX(CONTEXT, np.array([[0, 1]])), TypeError, r"queries: expected float32 or float64, got torch.int64"),
    (lambda: SOFTMAX.hidden_states(CONTEXT, [[0.0]]), ValueError, r"queries: expected shape"),
    (lambda: InContextTransformer([]), ValueError, r"blocks: expected at least one layer, got none"),
    (lambda: InContextTransformer([*layers(), torch.nn.ReLU()]), TypeError, r"blocks: .* got ReLU at index 3"),
    (lambda: InContextTransformer(layers(), -1), ValueError, r"loops: expected an integer ≥ 0, got -1"),
    (lambda: InContextTransformer(layers(), True), ValueError, r"loops: expected an integer ≥ 0, got True"),
    (
        lambda: InContextTransformer([*layers(), *TRANSFORMERS["linear"]().blocks]),
        ValueError,
        r"blocks: expected layers that read the same kind of prompt, got discounted and memory",
    ),
    (lambda: constructions.kernel_td(kernels.RBF(), 2.5), ValueError, r"num_layers: expected an integer ≥ 0, got 2.5"),
    (lambda: constructions.weighted_softmax_td(kernels.RBF(), -1), ValueError, r"num_layers: expected an integer"),
    (lambda: constructions.residual_gradient(2, None), ValueError, r"num_layers: expected an integer ≥ 0, got None"),
    (lambda: constructions.kernel_td(kernels.RBF, 2), TypeError, r"kernel: expected a kernel such as RBF\(0.5\)"),
    (lambda: constructions.kernel_td(kernels.RBF(), 2, form="dual"), ValueError, r"form: expected 'dual_head' or"),
    (lambda: constructions.weighted_softmax_td(kernels.RBF(), 2, 0.0), ValueError, r"step_size: expected a positive"),
    (lambda: constructions.weighted_softmax_td(kernels.RBF(), 2, "auto"), ValueError, r"step_size: .* got 'auto'"),
]


@pytest.mark.parametrize(("mistake", "error", "message"), MISTAKES)
def test_mistakes_are_named(mistake, error, message):
    with pytest.raises(error, match=message):
        mistake()
