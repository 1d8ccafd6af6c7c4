"""Hooks on layers, as of pruning, probing and patching: heeded, kept with the value function, or refused."""

from functools import partial

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import prune
from torch.nn.utils.parametrize import register_parametrization

from icrl_agents import constructions, kernels
from icrl_agents.compressed import CompressedContexts, state_values
from icrl_agents.context import Context
from icrl_agents.evaluators import KernelTD, WeightedSoftmaxTD
from icrl_agents.layers import FullAttentionLayer, export_multihead_attention
from icrl_agents.transformer import InContextTransformer

DIM = 2


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def context_of(n=8):
    x = normal(n + 1, DIM)
    return Context(x[:-1], normal(n, seed=1), [0.9] * n, x[1:])


def test_weights_that_a_hook_makes_before_each_call_are_refused_where_layers_are_asked_otherwise():
    shifted, linear = constructions.weighted_softmax_td(kernels.RBF(0.5), 3), constructions.linear_td(DIM, 3)
    for transformer, name in ((shifted, "value_weights"), (linear, "P")):
        prune.identity(transformer.blocks[0], name)
        for ask in (transformer.fit, lambda context, t=transformer: t(context, context.states)):
            with pytest.raises(ValueError, match="blocks: has weights that a hook makes before each call"):
                ask(context_of())
        prune.remove(transformer.blocks[0], name)
        assert bool(transformer.fit(context_of())(normal(3, DIM)).isfinite().all())


def test_a_forward_hook_that_changes_a_layer_is_heeded_by_the_forward_pass_and_refused_by_fit():
    transformer, context, seen = constructions.weighted_softmax_td(kernels.RBF(0.5), 3), context_of(), []
    expected = transformer(context, context.states)
    transformer.blocks[0].register_forward_hook(lambda module, given, tokens: seen.append(tokens))
    torch.testing.assert_close(transformer.fit(context)(context.states), expected)
    assert len(seen) >= 3
    patched = transformer.blocks[0].register_forward_hook(lambda module, given, tokens: tokens * 0.5)
    assert not torch.allclose(transformer(context, context.states), expected)
    with pytest.raises(ValueError, match="a forward hook changes what a layer gives"):
        transformer.fit(context)
    patched.remove()
    torch.testing.assert_close(transformer.fit(context)(context.states), expected)


def halved(tokens):
    """Tokens whose value row is halved."""
    return torch.cat([tokens[..., :-1], 0.5 * tokens[..., -1:]], dim=-1)


def before_it(layer):
    return layer.register_forward_pre_hook(lambda module, given: (halved(given[0]), *given[1:])).remove


def everywhere(layer):
    return register_module_forward_hook(lambda each, given, out: halved(out) if each is layer else None).remove


def in_its_place(layer):
    layer.forward = lambda *given: halved(type(layer).forward(layer, *given))
    return partial(delattr, layer, "forward")


PATCHES = {
    "after it": lambda layer: layer.register_forward_hook(lambda module, given, out: halved(out)).remove,
    "before it": before_it,
    "everywhere": everywhere,
    "in its place": in_its_place,
}
TRANSFORMERS = {
    "temporal shift": constructions.weighted_softmax_td(kernels.RBF(0.5), 3),
    "dual head": constructions.weighted_softmax_td(kernels.RBF(0.5), 3, form="dual_head"),
    "kernel": constructions.kernel_td(kernels.RBF(0.5), 3),
    "linear": constructions.linear_td(DIM, 3),
}


@pytest.mark.parametrize("patch", PATCHES.values(), ids=PATCHES)
@pytest.mark.parametrize("transformer", TRANSFORMERS.values(), ids=TRANSFORMERS)
def test_whatever_changes_a_layer_is_heeded_by_the_forward_pass_and_refused_by_fit(transformer, patch):
    context, path = context_of(), torch.arange(9).remainder(4)[None]
    contexts = CompressedContexts(normal(1, 4, DIM), normal(1, 4), path, torch.full((1, 8), 0.9, dtype=torch.float64))
    expected = transformer(context, context.states)
    undo = patch(transformer.blocks[0])
    try:
        patched = transformer(context, context.states)
        with pytest.raises(ValueError, match="a forward hook changes what a layer gives"):
            transformer.fit(context)
        found, whole = state_values(transformer, contexts), transformer(contexts.context, contexts.points)
    finally:
        undo()
    assert not torch.allclose(patched, expected)
    torch.testing.assert_close(found, whole)
    assert not torch.allclose(state_values(transformer, contexts), found)
    torch.testing.assert_close(transformer.fit(context)(context.states), expected)


def free_layers():
    return InContextTransformer([FullAttentionLayer(0.1 * normal(5, 5), normal(5, 5, seed=i)) for i in range(2)])


def standard_attention():
    layer = constructions.weighted_softmax_td(kernels.RBF(0.5), 1).blocks[0]
    return InContextTransformer([export_multihead_attention(layer, DIM)], 3).requires_grad_(True)  # type: ignore[arg-type]


@pytest.mark.parametrize("build", [free_layers, standard_attention])
def test_values_of_layers_that_queries_run_through_keep_hooks_and_structure_of_their_fit(build):
    transformer, context = build(), context_of()
    clean = transformer.fit(context)
    expected = clean(context.states)
    hook = transformer.blocks[0].register_forward_hook(lambda module, given, out: halved(out))
    patched = transformer.fit(context)
    found = patched(context.states)
    torch.testing.assert_close(found, transformer(context, context.states))
    assert not torch.allclose(found, expected)
    assert torch.equal(clean(context.states), expected)
    hook.remove()
    assert torch.equal(patched(context.states), found)
    transformer.loops += 1
    if build is standard_attention:
        transformer.blocks[0].attention.dropout = 0.5
    assert torch.equal(clean(context.states), expected)


def test_what_hooks_record_is_in_the_callers_hands():
    transformer, context, cache = free_layers(), context_of(), dict[str, torch.Tensor]()

    def record(store, module, given, out):
        store["tokens"] = out

    transformer.blocks[0].register_forward_hook(partial(record, cache))
    value = transformer.fit(context)
    cache.clear()
    value(context.states)
    assert cache["tokens"].shape[-2:] == (len(context.points) + len(context), 5)


def test_a_layer_in_several_places_stays_itself_where_a_value_function_is_asked():
    first, second = free_layers().blocks
    transformer, context = InContextTransformer([first, second, first]), context_of()
    own, value = first.V, transformer.fit(context)
    expected = value(context.states)
    assert first.V is own
    with torch.no_grad():
        own *= 3.0
    assert torch.equal(value(context.states), expected)


class Scaled(torch.nn.Module):
    def forward(self, weight):
        return 2.0 * weight


class Dropped(torch.nn.Module):
    def forward(self, weight):
        return torch.nn.functional.dropout(weight, 0.3, self.training)


def test_a_parametrised_projection_is_computed_where_it_is_used():
    plain, scaled = standard_attention(), standard_attention()
    with torch.no_grad():
        plain.blocks[0].attention.in_proj_weight *= 2.0
    register_parametrization(scaled.blocks[0].attention, "in_proj_weight", Scaled())
    context = context_of()
    torch.testing.assert_close(scaled(context, context.states), plain(context, context.states))
    torch.testing.assert_close(scaled.fit(context)(context.states), plain(context, context.states))


@pytest.mark.parametrize("drop", [Dropped, partial(torch.nn.Dropout, 0.3)])
def test_weights_that_are_dropped_at_random_are_refused_in_training_mode(drop):
    transformer, context = free_layers(), context_of()
    register_parametrization(transformer.blocks[0], "V", drop(), unsafe=True)
    with pytest.raises(
        ValueError, match=r"blocks: values are others each time .* call transformer.eval\(\) before fit"
    ):
        transformer.fit(context)
    value = transformer.eval().fit(context)
    assert torch.equal(value(context.states), value(context.states))


def test_a_hook_on_a_kernel_is_heeded_by_kernel_td_and_refused_where_softmax_takes_the_score():
    kernel, context = kernels.RBF(0.5), context_of()
    raised = KernelTD(lambda x, y: kernels.RBF(0.5)(x, y) + 0.05, 5, 0.05).fit(context)(context.states)
    kernel.register_forward_hook(lambda module, given, kappa: kappa + 0.05)
    torch.testing.assert_close(KernelTD(kernel, 5, 0.05).fit(context)(context.states), raised)
    with pytest.raises(ValueError, match="kernel: its score is not the logarithm of what it gives, as where a hook"):
        WeightedSoftmaxTD(kernel, 5).fit(context)
    assert bool(WeightedSoftmaxTD(lambda x, y: kernel(x, y), 5).fit(context)(context.states).isfinite().all())
