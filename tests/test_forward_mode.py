"""Derivatives in forward mode, as of ``torch.func.jvp``, are those in reverse mode, which others hold to account."""

import pytest
import torch
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from icrl_agents import Context, constructions, distinct
from icrl_agents.evaluators import (
    LSTD,
    KernelLSTD,
    KernelTD,
    LinearTD,
    MonteCarlo,
    Nystrom,
    TabularTD,
    TDLambda,
    WeightedSoftmaxTD,
)
from icrl_agents.kernels import RBF, DotProduct, Laplace, ProductLaplace
from icrl_agents.value_function import Evaluator

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # of torch.func.jvp itself

EVALUATORS: list[Evaluator] = [
    LSTD(),
    LSTD(0.1),
    KernelLSTD(RBF(0.7), 0.1),
    KernelTD(RBF(0.7), 5, 0.001),
    LinearTD(5),
    MonteCarlo(RBF(0.7)),
    WeightedSoftmaxTD(RBF(0.7), 5, approximation=Nystrom(16)),
    TabularTD(5),
    TDLambda(0.5, 5),
    WeightedSoftmaxTD(DotProduct(torch.eye(2)), 5),
    WeightedSoftmaxTD(RBF(0.7), 5),
    WeightedSoftmaxTD(RBF("median"), 5),
    WeightedSoftmaxTD(RBF(0.7), float("inf")),
    constructions.weighted_softmax_td(RBF(0.7), 5),
]
RNG = torch.Generator().manual_seed(0)
STATES, REWARDS = (torch.randn(*shape, generator=RNG, dtype=torch.float64) for shape in ((9, 2), (8,)))
QUERIES, DIRECTION = (torch.randn(*shape, generator=RNG, dtype=torch.float64) for shape in ((3, 2), (8, 2)))
NEXT = {
    "trajectory": lambda x: torch.cat([x[1:], STATES[-1:]]),
    "held": lambda x: STATES[1:],
    "unlinked": lambda x: STATES[:-1].flip(0) ** 2,
}


@pytest.mark.parametrize("evaluator", EVALUATORS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("follow", NEXT.values(), ids=NEXT)
@pytest.mark.parametrize("copies", [1, 20])
def test_derivatives_in_forward_mode_are_those_in_reverse_mode(evaluator, follow, copies):
    def total(x):
        context = Context(x, REWARDS, [0.8] * 8, follow(x))
        return evaluator.fit(Context.concatenate([context] * copies))(QUERIES).sum()

    try:
        found = jvp(total, (STATES[:-1],), (DIRECTION,))[1]
    except NotImplementedError as error:
        pytest.skip(str(error))  # torch's own, of distances and distinct rows
    torch.testing.assert_close(found, (grad(total)(STATES[:-1]) * DIRECTION).sum(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "evaluator", [LSTD(), LinearTD(5), KernelTD(RBF(0.7), 5, 0.1), WeightedSoftmaxTD(RBF(0.7), 5)], ids=repr
)
@pytest.mark.parametrize("together", [False, True])
def test_states_and_next_states_that_are_equal_have_each_their_own_gradient(evaluator, together):
    pair = STATES[:-1].clone().requires_grad_(), STATES[1:].clone().requires_grad_()
    parts = torch.autograd.grad(total_of(evaluator, *pair), pair)
    for i, part in enumerate(parts):
        shifted = [
            total_of(evaluator, *(each + (j == i) * sign * 1e-6 * DIRECTION for j, each in enumerate(pair))).detach()
            for sign in (1, -1)
        ]
        torch.testing.assert_close((part * DIRECTION).sum(), (shifted[0] - shifted[1]) / 2e-6, rtol=1e-5, atol=1e-7)
    if together:  # rows of one tensor, whose gradient is the sum
        whole = STATES.clone().requires_grad_()
        found = torch.autograd.grad(total_of(evaluator, whole[:-1], whole[1:]), whole)[0]
        expected = torch.zeros_like(whole).index_add(0, torch.arange(8), parts[0])
        torch.testing.assert_close(found, expected.index_add(0, torch.arange(1, 9), parts[1]))


def total_of(evaluator, states, following):
    return evaluator.fit(Context(states, REWARDS, [0.8] * 8, following))(QUERIES).sum()


@pytest.mark.parametrize("evaluator", [KernelLSTD(RBF(0.7), 0.1), KernelLSTD(RBF(0.7), 0.1, normalise=True)], ids=repr)
def test_each_visit_of_a_state_has_its_own_gradient_under_a_ridge(evaluator):
    states = torch.cat([STATES[:4], STATES[1:5]]).requires_grad_()  # of which three are visited twice
    following = STATES[1:].flip(0)
    found = torch.autograd.grad(total_of(evaluator, states, following), states)[0]
    step = 1e-6 * DIRECTION
    above, below = (total_of(evaluator, moved.detach(), following) for moved in (states + step, states - step))
    torch.testing.assert_close((found * DIRECTION).sum(), (above - below) / 2e-6, rtol=1e-5, atol=1e-7)
    merged = evaluator.fit(Context(states.detach(), REWARDS, [0.8] * 8, following))(QUERIES)
    torch.testing.assert_close(evaluator.fit(Context(states, REWARDS, [0.8] * 8, following))(QUERIES), merged)


@pytest.mark.parametrize(
    "kernel", [Laplace(0.7), ProductLaplace(0.7), RBF(0.7), RBF(0.08), DotProduct(torch.eye(2))], ids=repr
)
def test_derivatives_of_many_values_at_once_are_those_one_by_one(kernel):
    def values(x, queries, batch=()):
        x, rewards = x.expand(*batch, 9, 2), REWARDS.expand(*batch, 8)
        context = Context(x[..., :-1, :], rewards, torch.full_like(rewards, 0.8), x[..., 1:, :])
        return WeightedSoftmaxTD(kernel, 5).fit(context)(queries)

    for batch in ((), (2,)):
        for given, found in (
            (STATES, lambda x, batch=batch: values(x, QUERIES, batch)),
            (QUERIES, lambda queries, batch=batch: values(STATES, queries, batch)),
        ):
            expected = torch.autograd.functional.jacobian(found, given)
            torch.testing.assert_close(jacrev(found)(given), expected, rtol=1e-9, atol=1e-12)
    value = WeightedSoftmaxTD(kernel, 5).fit(Context(STATES[:-1], REWARDS, [0.8] * 8, STATES[1:]))
    one = torch.stack([grad(value)(query) for query in QUERIES])
    torch.testing.assert_close(torch.diagonal(jacrev(value)(QUERIES)).mT, one, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("length_scale", [0.7, 0.05])  # of which the second takes distances
@pytest.mark.parametrize("batch", [(), (2,)])
def test_an_rbf_has_all_derivatives_whatever_its_width(length_scale, batch):
    x = (STATES + length_scale * torch.arange(18, dtype=torch.float64).reshape(9, 2) / 20).expand(*batch, 9, 2).clone()
    y = torch.cat([STATES[:4], x.reshape(-1, 9, 2)[0, 3:5]]) + 1e-3

    def value(kernel):
        return lambda x: (kernel(x, y).square() * torch.arange(6.0)).sum()

    def direct(x, y):
        return torch.exp(-((x[..., :, None, :] - y) / length_scale).square().sum(-1) / 2)

    found, expected = value(RBF(length_scale)), value(direct)
    for derivative in (hessian, lambda f: jacrev(jacrev(f)), lambda f: jacrev(grad(grad_total(f)))):
        torch.testing.assert_close(derivative(found)(x), derivative(expected)(x), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(torch.autograd.functional.hessian(found, x), hessian(expected)(x), rtol=1e-8, atol=1e-8)
    one = torch.ones_like(x)
    torch.testing.assert_close(jvp(found, (x,), (one,)), jvp(expected, (x,), (one,)), rtol=1e-8, atol=1e-10)
    keys = [jacrev(lambda y, k=k: k(x, y).sum())(y) for k in (RBF(length_scale), direct)]
    torch.testing.assert_close(*keys, rtol=1e-8, atol=1e-10)


def grad_total(function):
    return lambda x: grad(function)(x).square().sum()


def test_values_of_states_one_by_one_under_vmap_are_refused_by_name():
    evaluators = WeightedSoftmaxTD(RBF(0.7), 5), LSTD(), constructions.kernel_td(RBF(0.7), 5)
    for value in [each.fit(Context(STATES[:-1], REWARDS, [0.8] * 8, STATES[1:])) for each in evaluators]:
        for one_by_one in (vmap(value), vmap(grad(value))):
            with pytest.raises(TypeError, match=r"states: torch.func.vmap does not show the numbers, .* v\(states\)"):
                one_by_one(QUERIES)
        gradients = [grad(value)(each) for each in QUERIES]  # as the message says
        torch.testing.assert_close(grad(lambda x, v=value: v(x).sum())(QUERIES), torch.stack(gradients))


@pytest.mark.parametrize("randomness", ["error", "different"])
def test_the_first_context_of_a_process_may_be_one_within_a_transformation(randomness):
    """Hashes of states draw nothing by torch, which vmap would refuse, or keep for all contexts that follow."""
    distinct._odd_factors.cache_clear()
    states, discounts = torch.arange(5.0, dtype=torch.float64)[:, None], torch.full((4,), 0.5, dtype=torch.float64)

    def values(rewards):
        return WeightedSoftmaxTD(RBF(0.2), 3).fit(Context(states[:-1], rewards, discounts, states[1:]))(states)

    rewards = torch.ones(4, dtype=torch.float64)
    found = jacfwd(values, randomness=randomness)(rewards)
    assert torch.allclose(found, jacrev(values)(rewards), rtol=0, atol=1e-12)
