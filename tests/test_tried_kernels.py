"""Kernels of one's own that need other states to answer."""

import numpy as np
import pytest
import torch
from torch.nn.utils import prune

from icrl_agents import constructions
from icrl_agents.context import Context
from icrl_agents.evaluators import LSTD, KernelLSTD, KernelTD, MonteCarlo, Nystrom, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, DotProduct

ROWS = np.random.default_rng(0).normal(size=(31, 2))
CONTEXT = Context(ROWS[:-1], np.arange(30.0), np.full(30, 0.9), ROWS[1:])


def laplace(x, y):
    return torch.exp(-torch.cdist(x, y))


def nearest(count):
    """Only the nearest keys count."""

    def kernel(x, y):
        kappa = laplace(x, y)
        return kappa * (kappa >= kappa.topk(count, -1).values[..., -1:])

    return kernel


@pytest.mark.parametrize("evaluator", [WeightedSoftmaxTD, KernelTD])
def test_a_kernel_of_the_nearest_states_is_refused_by_name(evaluator):
    with pytest.raises(
        ValueError, match=r"kernel: takes all 30 states of the context, but not 8 of them .*out of range"
    ):
        evaluator(nearest(20), 5).fit(CONTEXT)
    with pytest.raises(ValueError, match="kernel: gives the same states other numbers"):
        evaluator(nearest(3), 5).fit(CONTEXT)
    with pytest.raises(RuntimeError, match="out of range"):  # more than there are: its own error
        evaluator(nearest(40), 5).fit(CONTEXT)


def test_a_kernel_that_is_scaled_by_its_largest_number_is_refused_where_its_size_counts():
    def scaled(x, y):
        kappa = laplace(x, y)
        return kappa / kappa.amax(-1, keepdim=True)

    with pytest.raises(ValueError, match="kernel: gives the same states other numbers"):
        KernelTD(scaled, 5).fit(CONTEXT)
    value, expected = (WeightedSoftmaxTD(kernel, 5).fit(CONTEXT)(CONTEXT.states) for kernel in (scaled, laplace))
    torch.testing.assert_close(value, expected)  # a normaliser divides that out


def test_a_kernel_of_booleans_is_one_of_numbers():
    def equal(x, y):
        return (x[..., :, None, :] == y[..., None, :, :]).all(-1)

    values = [KernelLSTD(equal).fit(CONTEXT), MonteCarlo(equal).fit(CONTEXT)]
    assert values[0](CONTEXT.states).isfinite().all()
    torch.testing.assert_close(values[1](CONTEXT.states), CONTEXT.returns()[0])


def test_a_kernel_that_fails_on_any_states_says_on_which_shapes_and_not_that_it_takes_them_all():
    encoder = torch.nn.Linear(3, 2).double()

    def of_three(x, y):
        return encoder(x) @ encoder(y).mT

    def untransposed(x, y):  # takes one state and as many others as they have dimensions
        return x @ y

    for kernel, error in (
        (of_three, "cannot be multiplied"),
        (untransposed, "cannot be multiplied"),
        ((lambda x: x), "argument"),
    ):
        for evaluator in (WeightedSoftmaxTD(kernel, 5), KernelTD(kernel, 5), KernelLSTD(kernel)):
            with pytest.raises(
                (RuntimeError, TypeError), match=rf"{error}[^\n]*\nkernel: fails on states of shape \(\d, 2\) and"
            ):
                evaluator.fit(Context(ROWS[:2], np.ones(2), np.full(2, 0.9), ROWS[1:3]))


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float16, torch.float64])
def test_a_default_type_of_torch_changes_no_value(default):
    states = torch.from_numpy(np.random.default_rng(0).normal(size=(5_001, 1)))
    context = Context(states, states[:, 0], torch.zeros_like(states[:, 0]), states)
    evaluators = [WeightedSoftmaxTD(laplace, 2, approximation=Nystrom(100))]
    evaluators += [WeightedSoftmaxTD(RBF(1.0), 2, approximation=Nystrom(50)), LSTD()]
    expected = [each.fit(context)(states[:9]) for each in evaluators]
    kept = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        found = [each.fit(context)(states[:9]) for each in evaluators]
    finally:
        torch.set_default_dtype(kept)
    assert all(map(torch.equal, found, expected))


class Matern(torch.nn.Module):
    """κ = (1 + r) exp(−r), r = √3 ‖x − y‖/ℓ, with the root of a sum of squares, which has no derivative at 0."""

    def __init__(self, tiny: float, within: bool = True):
        super().__init__()
        self.length_scale = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
        self.tiny, self.within = tiny, within

    def forward(self, x, y):
        inner, outer = (self.length_scale, 1.0) if self.within else (1.0, self.length_scale)
        gaps = (x[..., :, None, :] - y[..., None, :, :]) / inner
        r = 3**0.5 * (gaps.square().sum(-1) + self.tiny).sqrt() / outer
        return (1 + r) * torch.exp(-r)


@pytest.mark.parametrize(
    "evaluator",
    [
        lambda kernel: WeightedSoftmaxTD(kernel, num_sweeps=5),
        lambda kernel: KernelTD(kernel, num_sweeps=5),
        lambda kernel: KernelLSTD(kernel, 1e-2),
    ],
)
def test_a_kernel_whose_gradients_are_not_finite_at_equal_states_is_told_of_when_they_come(evaluator):
    rng = np.random.default_rng(0)
    states, rewards, discounts = rng.normal(size=(21, 2)), rng.normal(size=20), np.full(20, 0.9)
    context = Context(states[:-1], rewards, discounts, states[1:])
    queries = torch.from_numpy(rng.normal(size=(3, 2))).requires_grad_()

    def into_scale(kernel):
        return torch.autograd.grad(evaluator(kernel).fit(context)(queries).sum(), kernel.length_scale)[0]

    expected = into_scale(Matern(1e-24))
    with pytest.warns(RuntimeWarning, match="gradients are not finite where two states are equal"):
        assert bool(into_scale(Matern(0.0)).isnan())
    torch.testing.assert_close(into_scale(Matern(0.0, within=False)), expected, rtol=1e-6, atol=0.0)
    value = evaluator(Matern(0.0)).fit(context)  # whose gradient in other states is finite
    assert bool(torch.autograd.grad(value(queries).sum(), queries)[0].isfinite().all())
    torch.testing.assert_close(
        torch.func.jacrev(value)(queries.detach()), torch.autograd.functional.jacobian(value, queries)
    )
    inputs = torch.from_numpy(states[:-1]).requires_grad_()
    value = evaluator(Matern(0.0)).fit(Context(inputs, rewards, discounts, states[1:]))
    with pytest.warns(RuntimeWarning, match="gradients are not finite where two states are equal"):
        torch.autograd.grad(value(queries).sum(), inputs)


def test_such_a_kernel_is_told_of_within_a_transform_too():
    rows, queries = torch.from_numpy(ROWS), torch.zeros(3, 2, dtype=torch.float64)

    def total(states, tiny):
        context = Context(states, torch.arange(30.0).double(), torch.full((30,), 0.9).double(), rows[1:])
        return WeightedSoftmaxTD(Matern(tiny), num_sweeps=3).fit(context)(queries).sum()

    with pytest.warns(RuntimeWarning, match="gradients are not finite where two states are equal"):
        torch.func.grad(total)(rows[:-1], 0.0)
    assert bool(torch.func.grad(total)(rows[:-1], 1e-24).isfinite().all())


class Encoded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 3, dtype=torch.float64)

    def forward(self, x, y):
        return laplace(self.linear(x), self.linear(y))


def test_weights_that_a_hook_makes_before_each_call_are_those_of_now_or_refused():
    kernel = DotProduct(0.3 * torch.eye(2, dtype=torch.float64))
    prune.identity(kernel, "matrix")
    with pytest.raises(ValueError, match="has weights that a hook makes before each call"):
        WeightedSoftmaxTD(kernel, 5).fit(CONTEXT)
    with pytest.raises(ValueError, match="has weights that a hook makes before each call"):
        constructions.weighted_softmax_td(kernel, 5).fit(CONTEXT)
    encoded = Encoded()
    prune.l1_unstructured(encoded.linear, "weight", 2)
    transformer = constructions.weighted_softmax_td(encoded, 5)
    for scale in (1.0, 2.0):
        with torch.no_grad():
            for module in (encoded, transformer.blocks[0].attention.kernel):
                module.linear.weight_orig.mul_(scale)
        value = transformer.fit(CONTEXT)(ROWS)
        torch.testing.assert_close(value, WeightedSoftmaxTD(encoded, 5).fit(CONTEXT)(ROWS))
        value.sum().backward()
    assert encoded.linear.weight_orig.grad is None


@pytest.mark.parametrize("evaluator", [WeightedSoftmaxTD, KernelTD])
def test_values_under_a_kernel_of_ones_own_pass_torchs_check_of_gradients(evaluator):
    def kernel(x, y):
        return torch.exp(-(x[..., :, None, :] - y[..., None, :, :]).square().sum(-1) / 2)

    def values(states):
        return evaluator(kernel, 3, 0.5).fit(Context(states, ones, 0.9 * ones, torch.zeros_like(states)))(states[:2])

    ones, states = torch.ones(5, dtype=torch.float64), torch.linspace(-1, 1, 10, dtype=torch.float64).view(5, 2)
    assert torch.autograd.gradcheck(values, (states.requires_grad_(True),))  # with gradients that are not there, too
