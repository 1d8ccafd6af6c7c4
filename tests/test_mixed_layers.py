"""Layers that do not go together, weights whose gradient would be lost, and what values keep of a context."""

import contextlib
import warnings

import pytest
import torch

from icrl_agents import constructions, kernels
from icrl_agents.attention import SoftmaxAttention
from icrl_agents.context import Context
from icrl_agents.control import Critic
from icrl_agents.layers import (
    DualHeadLayer,
    FullAttentionLayer,
    LinearAttentionLayer,
    MultiheadLayer,
    TemporalShiftLayer,
    export_multihead_attention,
)
from icrl_agents.transformer import InContextTransformer
from icrl_agents.value_function import DivergenceError, DivergenceWarning

DIM = 2


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def context_of(n=8):
    x = normal(n + 1, DIM)
    return Context(x[:-1], normal(n, seed=1), [0.9] * n, x[1:])


def shift(kernel=None):
    return TemporalShiftLayer(SoftmaxAttention(kernel or kernels.RBF(0.5)))


def exported(kernel=None):
    return export_multihead_attention(shift(kernel), DIM)


def full():
    return FullAttentionLayer(0.1 * normal(5, 5), normal(5, 5, seed=1))


QUERIES = normal(3, DIM, seed=2)


@pytest.mark.parametrize("layer", [full, exported, lambda: exported(kernels.DotProduct(torch.eye(DIM))), shift])
def test_what_is_written_into_a_context_after_a_fit_moves_no_value(layer):
    context = context_of()
    value = InContextTransformer([layer()], 4).fit(context)
    before = value(QUERIES)
    context.points.zero_()
    context.rewards.fill_(5.0)
    context.discounts.fill_(0.1)
    assert torch.equal(value(QUERIES), before)


def test_layers_that_lift_the_features_differently_are_refused():
    with pytest.raises(ValueError, match=r"same kind of prompt, got .*RBF\(length_scale=0.5\) and .*length_scale=2.0"):
        InContextTransformer([exported(), exported(kernels.RBF(2.0))])
    with pytest.raises(ValueError, match="same kind of prompt"):
        InContextTransformer([exported(), shift()])
    transformer = InContextTransformer([exported(), exported()], 2)
    torch.testing.assert_close(transformer.fit(context_of())(QUERIES), transformer(context_of(), QUERIES))
    transformer.blocks[1].lift.length_scale.data.mul_(2.0)  # type: ignore[union-attr]
    for run in (lambda: transformer.fit(context_of()), lambda: transformer(context_of(), QUERIES)):
        with pytest.raises(ValueError, match="same kind of prompt"):
            run()


@pytest.mark.parametrize("layer", [shift, lambda: DualHeadLayer(SoftmaxAttention(kernels.RBF(0.5)))])
def test_layers_that_write_features_do_not_go_with_layers_that_read_them_once(layer):
    with pytest.raises(ValueError, match=r"a FullAttentionLayer may write into the features, .* (Temporal|Dual)"):
        InContextTransformer([full(), layer()])
    InContextTransformer([full(), full()])
    bilinear = shift(kernels.DotProduct(torch.eye(DIM)))
    transformer = InContextTransformer([exported(kernels.DotProduct(torch.eye(DIM))), bilinear], 2)
    expected = InContextTransformer([bilinear], 4).fit(context_of())(QUERIES)
    torch.testing.assert_close(transformer.fit(context_of())(QUERIES), expected)
    transformer.blocks[0].attention.in_proj_weight.data.add_(0.1)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="a MultiheadLayer may write into the features"):
        transformer.fit(context_of())


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("value_weights", lambda w: TemporalShiftLayer(SoftmaxAttention(kernels.Identity()), w[:3, 0])),
        ("target_weights", lambda w: DualHeadLayer(SoftmaxAttention(kernels.Identity()), target_weights=w[:3, 0])),
        ("V", lambda w: FullAttentionLayer(w, w.detach())),
        ("Q", lambda w: LinearAttentionLayer(w.detach(), w)),
        ("Q", lambda w: constructions.linear_td(DIM, 3, preconditioner=w[:DIM, :DIM])),
    ],
)
def test_a_gradient_that_a_layer_would_lose_is_refused(name, make):
    weights = normal(5, 5)
    make(weights)
    with pytest.raises(ValueError, match=f"{name}: requires a gradient, which would be lost"):
        make(weights.requires_grad_())


def test_integers_that_float64_would_round_are_refused_as_weights():
    for make in (
        lambda w: TemporalShiftLayer(SoftmaxAttention(kernels.Identity()), w),
        lambda w: kernels.RBF(torch.tensor(w)),
    ):
        with pytest.raises(ValueError, match="float64 would round the integer 9007199254740993"):
            make([1, 1, 2**53 + 1])


def test_a_reference_that_is_a_module_is_none_of_the_transformers_own(tmp_path):
    reference = constructions.weighted_softmax_td(kernels.RBF(0.5), 2)
    transformer = InContextTransformer([shift()], 2, reference=reference)
    assert transformer.reference is reference
    assert set(transformer.state_dict()) == {"blocks.0.value_weights", "blocks.0.attention.kernel.length_scale"}
    transformer.save_pretrained(tmp_path)
    loaded = InContextTransformer.from_pretrained(tmp_path)
    assert torch.equal(loaded.fit(context_of())(QUERIES), transformer.fit(context_of())(QUERIES))


@pytest.mark.parametrize("depth", [10, 40])
def test_standard_attention_that_diverges_is_told_of_as_the_layer_that_it_is_of(depth):
    x = 5.0 * normal(31, DIM, seed=8)
    context = Context(x[:-1], normal(30, seed=7), [0.9] * 30, x[1:])
    ours = constructions.weighted_softmax_td(kernels.DotProduct(torch.eye(DIM)), depth)
    told = []
    for transformer in (ours, InContextTransformer([export_multihead_attention(ours.blocks[0], DIM)], depth)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                transformer.fit(context)
                told.append([str(each.message).split(":")[0] for each in caught])
            except DivergenceError as error:
                told.append(str(error).split(":")[0])
    assert told[0]
    assert told[1] == told[0]


@pytest.mark.parametrize("kernel", [kernels.RBF(0.5), kernels.RBF("median"), kernels.DotProduct(torch.eye(DIM))])
def test_standard_attention_without_ends_is_warned_of_as_the_layer_that_it_is_of(kernel):
    x = normal(31, DIM)
    context = Context(x[:-1], 1.0 + normal(30, seed=1), [1.0] * 30, x[1:])
    batch = Context.stack([context_of(), context], "left")
    ours = constructions.weighted_softmax_td(kernel, 20)
    for transformer in (ours, InContextTransformer([export_multihead_attention(ours.blocks[0], DIM)], 20)):
        for each in (context, batch):
            with pytest.warns(DivergenceWarning, match="values have not settled after 20 layers"):
                transformer.fit(each)


@pytest.mark.parametrize(("spread", "tolerance"), [(50.0, 1e-3), (1_000.0, None)])
def test_digits_that_lifting_loses_in_single_precision_are_told_of(spread, tolerance):
    ends = spread * (normal(30, DIM) > 0) + 0.3 * normal(30, DIM, seed=1)
    context = Context(ends, normal(30, seed=2), [0.0] * 30, ends)
    ours = shift()
    expected = InContextTransformer([ours], 3).fit(context)(ends)
    standard = InContextTransformer([export_multihead_attention(ours, DIM)], 3)
    torch.testing.assert_close(standard.fit(context)(ends), expected)
    single = context.to(dtype=torch.float32)
    if tolerance is None:
        with pytest.warns(
            RuntimeWarning, match=r"features in torch.float32 move scores by about 0\.\d: take a float64"
        ):
            standard.fit(single)
        with pytest.warns(RuntimeWarning, match="length scales from the mean of their context"):
            standard(single, single.states)
    else:
        torch.testing.assert_close(standard.fit(single)(ends.float()).double(), expected, rtol=0, atol=tolerance)


def test_only_what_it_is_known_to_equal_is_exported():
    class Wider(kernels.RBF):
        def score(self, x, y):
            return 0.1 * super().score(x, y)

    class Half(TemporalShiftLayer):
        def messages(self, tokens, context):
            return 0.5 * super().messages(tokens, context)

    with pytest.raises(ValueError, match="expected a kernel whose score is bilinear"):
        exported(Wider(0.5))
    with pytest.raises(TypeError, match=r"layer: expected a TemporalShiftLayer .* got Half"):
        export_multihead_attention(Half(SoftmaxAttention(kernels.RBF(0.5))), DIM)


def test_an_attention_that_adds_keys_or_drops_weights_is_refused_when_made_and_later():
    with pytest.raises(ValueError, match="add_bias_kv=True"):
        MultiheadLayer(torch.nn.MultiheadAttention(5, 1, bias=False, add_bias_kv=True, batch_first=True))
    layer = export_multihead_attention(shift(), 2)
    transformer, context = InContextTransformer([layer], 2), Context(torch.eye(2), [1.0, 0.0], [0.9, 0.0], torch.eye(2))
    transformer.blocks[0].attention.dropout = 0.5
    for ask in (transformer.fit, lambda each: transformer(each, torch.eye(2))):
        with pytest.raises(ValueError, match=r"dropout=0\.5"):
            ask(context)


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        (("loops",), [-1, 1.5, True]),
        (("blocks", 0, "trace_decay"), [1.5, -0.5, "half"]),
        (("blocks", 0, "scaling"), ["most", None]),
        (("blocks", 0, "prompt"), ["memory", []]),
        (("blocks", 0, "attention", "step_size"), [-1.0, 0, float("nan"), "most"]),
        (("blocks", 0, "form"), ["triple_head", 2]),
        (("gae_lambda",), [-3, "most"]),
        (("window",), [0, 2.5]),
        (("features",), [3]),
        (("evaluator",), [None]),
    ],
    ids=lambda each: str(each[-1]),
)
def test_settings_are_checked_later_as_when_the_object_is_made(setting, wrong):
    linear, kernel = constructions.td_lambda(DIM, 3, 0.5), constructions.kernel_td(kernels.RBF(0.5), 3)
    for item in (linear, kernel, InContextTransformer([full()], 2), Critic(kernel)):
        with contextlib.suppress(AttributeError):  # not all of them have it
            for name in setting[:-1]:
                item = item[name] if isinstance(name, int) else getattr(item, name)
            right = getattr(item, setting[-1])
            registered = (
                [kernels.RBF(0.5), torch.nn.Parameter(torch.ones(()))] if isinstance(item, torch.nn.Module) else []
            )
            for value in (*wrong, *registered):  # the last ones by torch itself, if they were let through
                with pytest.raises((ValueError, TypeError), match=f"^(lambda_|{setting[-1]})"):
                    setattr(item, setting[-1], value)
            setattr(item, setting[-1], right)
            assert getattr(item, setting[-1]) is right
            break
    else:
        pytest.fail(f"nothing has {setting}")
