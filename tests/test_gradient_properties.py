"""Gradients and single precision on random contexts: finite, and those of what is computed."""

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from icrl_agents.context import Context
from icrl_agents.divergence import DivergenceError
from icrl_agents.episode import Episode
from icrl_agents.evaluators import KernelLSTD, KernelTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, Exponential, Laplace, ProductLaplace, median_distance
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


@pytest.mark.parametrize("combine", [Context.stack, Context.concatenate])
def test_a_constant_next_state_stays_one_in_a_batch_or_beside_others(combine):
    x = torch.tensor([[0.0], [1.0]], dtype=torch.float64, requires_grad=True)
    context = Context(x, [1.0, 1.0], [0.5, 0.5], torch.tensor([[1.0], [0.0]], dtype=torch.float64))
    several = combine([context, Context([[1.0]], [1.0], [0.5], [[2.0]])])
    assert torch.autograd.grad(several.next_states.sum(), x, allow_unused=True)[0].abs().sum() == 0
    assert torch.equal(several.next_states[several.mask].detach(), torch.tensor([[1.0], [0.0], [2.0]]).double())
    assert several.contiguous[several.mask].tolist() == [True, False, False]
    expected = several.rewards + several.discounts * several.next_states[..., 0] - several.states[..., 0]
    assert torch.equal(several.td_errors(several.points[..., 0]), expected)


class Learned(nn.Module):
    """A kernel of features that are learned, without a ``bind``."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 3).double()
        self.features = nn.Sequential(self.first, nn.Tanh(), nn.Linear(3, 2, bias=False).double())
        self.width: torch.Tensor
        self.register_buffer("width", torch.tensor(0.5, dtype=torch.float64))

    def forward(self, x, y):
        return torch.exp(-torch.cdist(self.features(x), self.features(y)) / self.width)


@pytest.mark.parametrize("evaluator", [WeightedSoftmaxTD, KernelTD, lambda kernel, _: KernelLSTD(kernel)])
def test_a_kernel_of_ones_own_is_kept_as_it_was_and_gets_its_gradients(evaluator):
    torch.manual_seed(0)
    rng, kernel = np.random.default_rng(0), Learned()
    context = Context.from_episodes([Episode(rng.normal(size=(9, 2)), rng.normal(size=8))], 0.9)
    value, queries = evaluator(kernel, 5).fit(context), rng.normal(size=(3, 2))
    before = value(queries)
    weight = kernel.first.weight
    (gradient,) = torch.autograd.grad(before.sum(), weight)
    steps = []
    for sign in (1e-6, -1e-6):
        with torch.no_grad():
            weight[0, 0] += sign
            steps.append(float(evaluator(kernel, 5).fit(context)(queries).sum()))
            weight[0, 0] -= sign
    assert float(gradient[0, 0]) == pytest.approx((steps[0] - steps[1]) / 2e-6, rel=1e-4)
    with torch.no_grad():
        for number in (*kernel.parameters(), *kernel.buffers()):
            number.mul_(1.5)
    assert torch.equal(value(queries), before)
    assert not torch.allclose(evaluator(kernel, 5).fit(context)(queries), before)


class Unregistered(nn.Module):
    """A kernel that lists its parameters itself, and has a number that is none of them."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2).double()
        self.width = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)

    def forward(self, x, y):
        A, b = self.parameters()
        return torch.exp(-torch.cdist(x @ A.mT + b, y @ A.mT + b) / self.width)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_kernel_is_kept_with_what_it_lists_what_it_did_not_register_and_when_it_is_compiled(compiled):
    torch.manual_seed(0)
    rng, kernel = np.random.default_rng(0), Unregistered()
    context = Context.from_episodes([Episode(rng.normal(size=(9, 2)), rng.normal(size=8))], 0.9)
    given = torch.compile(kernel, backend="eager") if compiled else kernel
    value, queries = WeightedSoftmaxTD(given, 5).fit(context), rng.normal(size=(3, 2))
    before = value(queries)
    gradients = torch.autograd.grad(before.sum(), [kernel.width, kernel.first.weight])
    assert all(bool(each.any()) for each in gradients)
    with torch.no_grad():
        kernel.width.mul_(2.0)
        kernel.first.weight.mul_(2.0)
    assert torch.equal(value(queries), before)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.Dropout(0.5),
        lambda: nn.BatchNorm1d(2).double(),
        lambda: nn.Sequential(nn.Linear(2, 32), spectral_norm(nn.Linear(32, 16))).double(),
    ],
    ids=["dropout", "batch normalisation", "spectral normalisation"],
)
def test_a_kernel_in_training_mode_is_refused_where_that_makes_it_no_function_of_two_states(layer):
    torch.manual_seed(0)
    kernel = Learned()
    kernel.features.append(layer())
    context = Context.from_episodes([Episode(np.eye(5, 2), np.ones(4))], 0.9)
    with pytest.raises(ValueError, match=r"kernel: gives the same states other numbers .* Call its eval\(\)"):
        KernelTD(kernel, 5).fit(context)
    value = KernelTD(kernel.eval(), 5).fit(context)
    torch.testing.assert_close(value(context.states)[:2], value(context.states[:2]))


@pytest.mark.parametrize(
    "kernel",
    [
        lambda x, y: 0.5 * RBF("median")(x, y),
        lambda x, y: torch.exp(-(x - x.mean(-2, keepdim=True)) @ (y - y.mean(-2, keepdim=True)).mT),
    ],
)
def test_a_kernel_whose_scale_is_found_anew_in_every_call_is_refused(kernel):
    context = Context.from_episodes([Episode(np.arange(10.0)[:, None] ** 2, np.ones(9))], 0.9)
    with pytest.raises(ValueError, match=r"a width that is found anew in every call; expected a function of two"):
        WeightedSoftmaxTD(kernel, 5).fit(context)


def test_a_median_width_is_a_constant_to_gradients():
    states = torch.as_tensor(np.random.default_rng(0).normal(size=(5, 2))).requires_grad_(True)
    for kernel in (RBF, Laplace, ProductLaplace):
        fixed = kernel(float(median_distance(states.detach())))
        (expected,) = torch.autograd.grad(fixed(states, states).square().sum(), states)
        (found,) = torch.autograd.grad(kernel("median")(states, states).square().sum(), states)
        torch.testing.assert_close(found, expected)
