"""Contexts of random episodes, transitions and paddings, against loops that import nothing of ours."""

import math

import numpy as np
import torch
from hypothesis import strategies as st

from icrl_agents.context import Context
from icrl_agents.divergence import DivergenceError
from icrl_agents.episode import Episode
from icrl_agents.evaluators import KernelTD, TabularTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, Laplace
from tests.properties import of, outcome
from tests.scenarios import evaluators
from tests.strategies import batches, close, discounts, episodes, same, sample_of, samples

ORDINARY = [
    WeightedSoftmaxTD(RBF(0.8), 6),
    WeightedSoftmaxTD(Laplace("median"), 6),
    TabularTD(6),
    KernelTD(RBF(0.8), 6),
]


@of(st.tuples(episodes(), discounts))
def test_episodes_are_their_transitions_one_by_one(drawn):
    parts, gamma = drawn
    context, sample = Context.from_episodes(parts, gamma), sample_of(parts, gamma)
    for name in ("states", "rewards", "discounts", "next_states"):
        close(getattr(context, name), getattr(sample, name), 0)
    assert context.contiguous.tolist() == sample.linked.tolist()
    joined = Context.concatenate([Context.from_episodes([episode], gamma) for episode in parts])
    same(joined, context, "points", "rewards", "discounts", "next_states", "contiguous", "successors")


@of(st.tuples(episodes(), discounts))
def test_the_last_observation_of_a_terminated_episode_is_never_read(drawn):
    parts, gamma = drawn
    ended = [e.terminated and len(e) > 0 for e in parts]
    spoilt = [
        Episode(np.concatenate([e.observations[:-1], np.full_like(e.observations[-1:], np.nan)]), e.rewards, True)
        if end
        else e
        for e, end in zip(parts, ended, strict=True)
    ]
    context, other = Context.from_episodes(parts, gamma), Context.from_episodes(spoilt, gamma)
    same(other, context, "points", "rewards", "discounts", "successors")
    for evaluator in ORDINARY:
        found = [outcome(lambda c=c, e=evaluator: e.fit(c).by_depth(context.points)) for c in (context, other)]
        assert DivergenceError in found or torch.equal(*found)


@of(samples())
def test_td_errors_are_their_definition(sample):
    context = sample.context

    def value(states):
        return torch.sin(1.7 * torch.as_tensor(states, dtype=torch.float64) + 1.0).sum(-1)

    values, scale = value(context.points), 1.0 + float(np.abs(sample.rewards).max(initial=0.0))
    close(context.td_errors(values), sample.td_errors(value), scale=scale)
    close(context.td_errors(torch.stack([values, 0 * values]))[1], sample.rewards, 0)


@of(samples())
def test_returns_are_the_discounted_sums_along_each_trajectory(sample):
    returns, seen = [0.0] * (len(sample) + 1), [0.0] * (len(sample) + 1)
    for k, (_, reward, gamma, _, linked) in reversed(list(enumerate(sample.rows))):
        returns[k] = reward + (gamma * returns[k + 1] if linked else 0.0)
        seen[k] = math.inf if gamma == 0 else 1 + (seen[k + 1] if linked else 0)
    found = sample.context.returns()
    close(found[0], np.array(returns[:-1]))
    assert found[1].tolist() == seen[:-1]


@of(st.tuples(episodes(least=1), discounts))
def test_a_context_stores_no_state_twice(drawn):
    parts, gamma = drawn
    context = Context.from_episodes(parts, gamma)
    bootstrapped = sum(len(e) > 0 and not e.terminated for e in parts) if gamma > 0 else 0
    assert len(context.points) == len(context) + bootstrapped
    assert len(context._terminal) <= sum(len(e) > 0 for e in parts) - bootstrapped


@of(samples())
def test_links_that_are_not_given_are_found(sample):
    found = Context(sample.states, sample.rewards, sample.discounts, sample.next_states)
    linked = (sample.next_states[:-1] == sample.states[1:]).all(-1)
    if sample.discounts.any():  # where γ = 0 a trajectory ends, unless it is 0 everywhere
        linked &= sample.discounts[:-1] > 0
    assert found.contiguous.tolist() == [*linked.tolist(), False][: len(sample)]
    same(found, sample.context, "states", "rewards", "discounts", "next_states")


@of(samples(least=1))
def test_values_depend_on_neither_order_nor_repetition(sample):
    context = sample.context
    order = np.random.default_rng(len(sample)).permutation(len(sample))
    others = [
        sample.chosen(order).context,
        sample.chosen(np.tile(order, 3)).context,
        Context.concatenate([context] * 3),
    ]
    for evaluator in ORDINARY:
        values = outcome(lambda e=evaluator: e.fit(context).by_depth(sample.states))
        for other in others:
            found = outcome(lambda e=evaluator, c=other: e.fit(c).by_depth(sample.states))
            if DivergenceError not in (values, found):
                close(found, values)


@of(st.tuples(batches(), st.data()))
def test_padding_is_never_read(drawn):
    batch, data = drawn
    context, mask = batch.context, batch.context.mask
    for b, part in enumerate(batch.samples):
        close(context.states[b][mask[b]], part.states, 0)
        close(context.next_states[b][mask[b]], part.next_states, 0)
    errors = context.td_errors(torch.ones(context.points.shape[:-1], dtype=torch.float64))
    assert not errors[~mask].any()
    assert not (context.contiguous & ~mask).any()
    assert not (context.contiguous[:, :-1] & ~mask[:, 1:]).any()
    queries = np.concatenate([part.states[:2] for part in batch.samples] + [np.full((1, batch.dim), 0.3)])
    evaluator = data.draw(evaluators(batch.dim, traces=False))
    found = outcome(lambda: evaluator.fit(context).by_depth(queries))
    alone = [outcome(lambda p=part: evaluator.fit(p.context).by_depth(queries)) for part in batch.samples]
    if found is not DivergenceError and DivergenceError not in alone:
        for values, expected, part in zip(found, alone, batch.samples, strict=True):
            close(values, expected, 1e-8, float(np.abs(part.rewards).max(initial=0.0)))


@of(st.tuples(batches(torn=False), st.data()))
def test_a_batch_of_any_shape_is_its_contexts_one_by_one(drawn):
    batch, data = drawn
    evaluator, contexts = data.draw(evaluators(batch.dim)), [part.context for part in batch.samples]
    stacked = Context.stack(contexts, data.draw(st.sampled_from(["left", "right"])))
    parts = (stacked.states, stacked.rewards, stacked.discounts, stacked.next_states, stacked.mask, stacked.contiguous)
    deep = Context(*(torch.stack([part, part.flip(0)]) for part in parts))  # (2, B, n)
    queries = np.concatenate([part.states[:2] for part in batch.samples] + [np.full((1, batch.dim), 0.3)])
    alone = [outcome(lambda c=c: evaluator.fit(c).by_depth(queries)) for c in contexts]
    found = outcome(lambda: evaluator.fit(deep).by_depth(queries))
    if found is not DivergenceError and DivergenceError not in alone:
        size = max(float(np.abs(part.rewards).max(initial=0.0)) for part in batch.samples)
        close(found, torch.stack([torch.stack(alone), torch.stack(alone[::-1])]), 1e-8, size)


@of(samples())
def test_conversion_there_and_back_changes_nothing_that_float32_can_hold(sample):
    context = sample.context.to(dtype=torch.float32)
    back = context.to(dtype=torch.float64).to(dtype=torch.float32)
    same(back, context, "points", "rewards", "discounts", "next_states", "mask", "contiguous", "successors")
    assert context.dtype == context.rewards.dtype == context.next_states.dtype == torch.float32
