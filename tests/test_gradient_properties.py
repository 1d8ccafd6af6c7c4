"""Gradients and single precision on random contexts: finite, and those of what is computed."""

import numpy as np
import torch
from hypothesis import strategies as st

from icrl_agents.context import Context
from icrl_agents.divergence import DivergenceError
from icrl_agents.evaluators import KernelTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, Exponential, Laplace, ProductLaplace
from tests.properties import of, outcome
from tests.scenarios import fits, rewards_of
from tests.strategies import batches, close


@of(fits(least=1))
def test_single_precision_is_the_same_to_its_digits(drawn):
    sample, evaluator, _ = drawn
    narrow = sample.context.to(dtype=torch.float32)
    expected = outcome(lambda: evaluator.fit(narrow.to(dtype=torch.float64)).by_depth(narrow.states.double()))
    found = outcome(lambda: evaluator.fit(narrow).by_depth(narrow.states))
    if not (expected is DivergenceError or found is DivergenceError):
        assert found.dtype == torch.float32
        close(found.double(), expected, 2e-3, rewards_of(sample))


def tied(kernel, sample):
    """Whether two states compete for the largest sum of κ, at which the automatic step has no gradient."""
    sums = kernel(*2 * [torch.as_tensor(sample.states)]).detach().abs().sum(-2).sort(descending=True).values
    return len(sums) > 1 and bool(sums[1] > (1 - 1e-6) * sums[0])


@of(st.tuples(batches(least=1, torn=False), st.data()))
def test_gradients_are_finite_and_never_those_of_the_padding(drawn):
    batch, data = drawn
    kernel = data.draw(st.sampled_from([RBF(0.5), Laplace(0.5), ProductLaplace(0.5), Exponential(2.0), RBF("median")]))
    algorithm = data.draw(st.sampled_from([WeightedSoftmaxTD, KernelTD]))
    if algorithm is KernelTD and any(tied(kernel, sample) for sample in batch.samples):
        return
    kernel.requires_grad_(True)
    padded, gradients = batch.context, {}

    def loss(context, queries):
        leaves = [part.detach().clone().requires_grad_(True) for part in (context.states, context.rewards)]
        learning = Context(*leaves, context.discounts, context.next_states, context.mask, context.contiguous)
        value = algorithm(kernel, 3).fit(learning)(queries).sum()
        return torch.autograd.grad(value, [*leaves, *kernel.parameters()], allow_unused=True)

    queries = torch.as_tensor(np.concatenate([part.states[:2] for part in batch.samples]))  # coincide with keys
    try:
        gradients = loss(padded, queries)
        alone = [loss(part.context, queries) for part in batch.samples]
    except DivergenceError:
        return
    states, rewards, *weights = gradients
    for gradient in (g for g in gradients if g is not None):
        assert bool(torch.isfinite(gradient).all())
    assert not states[~padded.mask].any()
    assert not rewards[~padded.mask].any()
    for b, (own_states, own_rewards, *_) in enumerate(alone):
        close(rewards[b][padded.mask[b]], own_rewards, 1e-8)
        close(states[b][padded.mask[b]], own_states, 1e-6, float(own_states.abs().max()) + rewards_of(batch.samples[b]))
    for i, weight in enumerate(weights):
        parts = torch.stack([own[2 + i] for own in alone])
        close(weight, parts.sum(0), 1e-6, float(parts.abs().max()) + max(map(rewards_of, batch.samples)))
