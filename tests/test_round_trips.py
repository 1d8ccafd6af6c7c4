"""What is written and read again, or copied, is the same to the last bit, at random."""

import copy
import pickle
import tempfile
from pathlib import Path

import numpy as np
import torch
from hypothesis import strategies as st

from icrl_agents import constructions
from icrl_agents.attention import KernelAttention, SoftmaxAttention
from icrl_agents.context import Context
from icrl_agents.datasets.npz import load_episodes, save_episodes
from icrl_agents.divergence import DivergenceError
from icrl_agents.episode import Episode
from icrl_agents.layers import DualHeadLayer, FullAttentionLayer, LinearAttentionLayer, TemporalShiftLayer
from icrl_agents.transformer import InContextTransformer
from tests.properties import of, outcome
from tests.scenarios import chosen_kernels
from tests.strategies import discounts, episodes, generators, same, samples


def folder():
    return tempfile.TemporaryDirectory(prefix="icrl-")


@st.composite
def transformers(draw, dim):
    """Transformers of random layers with random weights, tied or not, and constructed ones."""
    rng, loops = draw(generators), draw(st.integers(0, 3))

    def weights(*shape):
        return torch.from_numpy(0.3 * rng.normal(size=shape))

    def memory():
        chosen = draw(chosen_kernels(dim, ("callable",)))
        softmax = chosen.softmax and draw(st.booleans())
        attention = SoftmaxAttention(chosen.kernel) if softmax else KernelAttention(chosen.kernel)
        if draw(st.booleans()):
            return TemporalShiftLayer(attention, weights(3))
        return DualHeadLayer(attention, weights(3), weights(3))

    def linear():
        heads, size = draw(st.integers(1, 2)), 2 * dim + 1
        scaling, decay = draw(st.sampled_from(["none", "values", "errors"])), draw(st.sampled_from([0.0, 0.5, 1.0]))
        shape = (heads, size, size)
        return LinearAttentionLayer(weights(*shape), weights(*shape), trace_decay=decay, scaling=scaling)

    def full():
        heads = draw(st.integers(1, 2))
        shape = (heads, dim + 3, dim + 3)
        return FullAttentionLayer(weights(*shape), weights(*shape), form=["temporal_shift", "dual_head"][heads - 1])

    build = draw(st.sampled_from([memory, linear, full, constructions.linear_td, constructions.td_lambda]))
    if build is constructions.linear_td:
        return build(dim, loops, preconditioner=weights(dim, dim))
    if build is constructions.td_lambda:
        return build(dim, loops, float(rng.random()))
    return InContextTransformer([build() for _ in range(draw(st.integers(1, 2)))], loops)


@st.composite
def models(draw):
    sample = draw(samples())
    return sample, draw(transformers(sample.dim))


@of(models())
def test_a_transformer_is_read_as_it_was_written(drawn):
    sample, transformer = drawn
    with folder() as first, folder() as second:
        transformer.save_pretrained(first)
        loaded = InContextTransformer.from_pretrained(first)
        loaded.save_pretrained(second)
        for name in ("model.safetensors", "config.json"):
            assert (Path(first) / name).read_bytes() == (Path(second) / name).read_bytes()
    found = [outcome(lambda t=t: t.fit(sample.context).by_depth(sample.states)) for t in (transformer, loaded)]
    assert found[0] is found[1] if DivergenceError in found else torch.equal(*found)


@of(models())
def test_a_forward_pass_is_what_fit_finds_whatever_the_weights(drawn):
    sample, transformer = drawn
    values = outcome(lambda: transformer.fit(sample.context)(sample.states))
    if values is not DivergenceError:
        scale = 1e-12 + float(np.abs(sample.rewards).max(initial=0.0)) + float(values.abs().max() if len(values) else 0)
        assert float((transformer(sample.context, sample.states) - values).abs().sum()) <= 1e-8 * scale


@of(st.tuples(episodes(), st.booleans(), st.sampled_from([np.float32, np.float64]), st.sampled_from(["", "Zustände"])))
def test_episodes_are_read_as_they_were_written(drawn):
    parts, with_actions, dtype, about = drawn
    rng = np.random.default_rng(0)
    parts = [
        Episode(e.observations.astype(dtype), e.rewards, e.terminated, rng.normal(size=(len(e), 2)) * with_actions)
        if with_actions
        else Episode(e.observations.astype(dtype), e.rewards, e.terminated)
        for e in parts
    ]
    with folder() as where:
        save_episodes(Path(where) / "episodes.npz", parts, about)
        read = load_episodes(Path(where) / "episodes.npz")
    assert len(read) == len(parts)
    for a, b in zip(read, parts, strict=True):
        assert (a.terminated, a.observations.dtype, a.actions is None) == (b.terminated, dtype, b.actions is None)
        for name in ("observations", "rewards", "actions"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@of(st.tuples(episodes(), discounts))
def test_a_context_survives_copying_and_pickling(drawn):
    context = Context.from_episodes(*drawn)
    for other in (copy.deepcopy(context), pickle.loads(pickle.dumps(context))):
        same(other, context)
        same(other, context, "points", "successors")
