"""Contexts that are written into after they were made."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch

from icrl_agents.context import Context, check_context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import LSTD, KernelLSTD, MonteCarlo, TabularTD
from icrl_agents.kernels import RBF

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("evaluator", [LSTD(), MonteCarlo(), TabularTD(5), KernelLSTD(RBF(0.3), ridge=0.1)])
@pytest.mark.parametrize("padded", [False, True])
def test_what_was_written_into_a_context_counts_or_is_refused(evaluator, padded):
    def context(*, rewards=(1.0, 2.0, 3.0, 0.0), discounts=(0.9, 0.0, 0.9, 0.0), mask=(True, True, True, not padded)):
        states, following = [[0.0], [1.0], [2.0], [3.0]], [[1.0], [0.0], [5.0], [2.0]]
        return Context(states, rewards, discounts, following, mask=torch.tensor(mask))

    def refused(match, **changes):
        written = context()
        for name, change in changes.items():
            getattr(written, name)[change[0]] = change[1]
        with pytest.raises(ValueError, match=match):
            evaluator.fit(written)

    written = context()
    written.rewards[0], written.discounts[2] = 7.0, 0.0
    expected = evaluator.fit(context(rewards=(7.0, 2.0, 3.0, 0.0), discounts=(0.9, 0.0, 0.0, 0.0)))
    torch.testing.assert_close(evaluator.fit(written)([[0.0], [2.0]]), expected([[0.0], [2.0]]), rtol=0, atol=1e-12)
    refused("context: mask changed after it was made", mask=(0, False))
    refused("context: mask changed after it was made", mask=(slice(0, 3), False))
    refused("context: discounts changed after it was made", discounts=(1, 0.9))
    refused("expected every γ in .0, 1., got 1.9", discounts=(0, 1.9))
    refused("rewards: expected finite numbers, got nan", rewards=(0, NAN))
    refused("context: states changed after it was made", states=(0, 3.0))
    refused("context: states changed after it was made", points=(-1, INF))
    last = 3 if padded else 0  # what is written into the padding is not read
    written, value = context(), 7.0 if padded else 1.0
    written.rewards[last] = value
    assert torch.equal(evaluator.fit(written)([[0.0], [2.0]]), evaluator.fit(context())([[0.0], [2.0]]))
    written.rewards = written.rewards.long()
    with pytest.raises(
        TypeError, match=r"context: expected rewards that are a tensor of torch.float64, got torch.int64"
    ):
        evaluator.fit(written)
    written.rewards = [1.0, 2.0, 3.0, 0.0]
    with pytest.raises(TypeError, match="got list; make another context"):
        evaluator.fit(written)
    written = context()
    written.mask = torch.ones(3, dtype=torch.bool)
    with pytest.raises(ValueError, match="context: mask changed after it was made"):
        evaluator.fit(written)


def test_no_copy_hides_that_states_were_scaled_in_place_by_whatever_way():
    def by_numpy(rows):
        array = rows.numpy()
        array *= 3.0

    def shuffled(rows):
        rows[[0, 1]] = rows[[1, 0]]

    ways = (lambda rows: rows.mul_(3.0), by_numpy, lambda rows: rows.data.mul_(3.0), shuffled)
    copies = (lambda c: c, copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c)), lambda c: c.to("cpu"))
    copies += (lambda c: c.to(dtype=torch.float32), lambda c: Context.stack([c, c]), lambda c: Context.concatenate([c]))
    for way, copied in itertools.product(ways, copies):
        context = Context.from_episodes([Episode(np.random.default_rng(0).normal(size=(5, 2)), np.ones(4))], 0.9)
        TabularTD(2).fit(copied(context))
        way(context.states)
        with pytest.raises(ValueError, match="context: states changed after it was made"):
            TabularTD(2).fit(copied(context))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [2, 63, 64, 2048, 65_536 + 64])
@pytest.mark.parametrize("kind", ["ones", "integers", "normal"])
def test_states_that_all_change_alike_are_seen(kind, n, dtype):
    rng, rewards = np.random.default_rng(0), torch.ones(n, dtype=dtype)
    drawn = {"ones": np.ones((n, 1)), "integers": rng.integers(1, 4, (n, 1)) + 0.0, "normal": rng.normal(size=(n, 1))}
    states = torch.from_numpy(drawn[kind]).to(dtype)
    for factor in (-1.0, 2.0, -2.0, 0.5, 4.0, 0.25, 2.0**10, 3.0):
        written = Context(states, rewards, 0.9 * rewards, states.flip(0))
        written.states.mul_(factor)
        with pytest.raises(ValueError, match="context: states changed after it was made"):
            check_context(written)


def test_next_states_are_refused_where_states_were_written_into():
    context = Context([[0.0], [1.0]], [1.0, 2.0], [0.9, 0.9], [[1.0], [5.0]])
    scale = context.next_states.max()
    context.states.div_(scale)
    with pytest.raises(ValueError, match="context: states changed after it was made"):
        Context(context.states, context.rewards, context.discounts, context.next_states / scale)
