"""Landmarks: which of their values depend on no more than the transitions, and which are exact."""

import warnings

import numpy as np
import pytest
import torch

from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import KernelTD, Nystrom, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, Laplace

RNG = np.random.default_rng(0)


def walk(n):
    """States ``(n + 1, 2)`` and rewards ``(n,)``."""
    return torch.as_tensor(RNG.normal(size=(n + 1, 2))), torch.as_tensor(RNG.normal(size=n))


@pytest.mark.parametrize("kernel", [RBF(0.3), Laplace(0.3)])
@pytest.mark.parametrize("landmarks", [5, 40])
def test_values_are_the_same_where_next_states_that_were_visited_are_kept_apart(kernel, landmarks):
    """As they are where states require a gradient, each its own."""
    n, fit = 80, WeightedSoftmaxTD(kernel, 20, approximation=Nystrom(landmarks)).fit
    x, rewards = walk(n)
    x[n - 5] = 0.0  # the last next state, which is no state, though padding is 0
    discounts, mask = torch.full_like(rewards, 0.9), torch.arange(n) < n - 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = fit(Context(x[:-1], rewards, discounts, x[1:], mask))
        found = fit(Context(x[:-1].clone().requires_grad_(), rewards, discounts, x[1:].clone(), mask))
    some = torch.as_tensor(RNG.normal(size=(20, 2)))
    torch.testing.assert_close(found(some).detach(), expected(some), rtol=1e-9, atol=1e-9)
    assert found.approximation_error == pytest.approx(expected.approximation_error, rel=1e-6)


def test_the_first_sweep_is_exact_and_nothing_is_said_of_it():
    x, rewards = walk(300)
    context = Context(x[:-1], rewards, torch.full_like(rewards, 0.9), x[1:])
    for make in (lambda **k: WeightedSoftmaxTD(RBF(0.2), 1, **k), lambda **k: KernelTD(RBF(0.2), 1, 0.1, **k)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = make(approximation=Nystrom(5)).fit(context)
        torch.testing.assert_close(found(x), make().fit(context)(x))
        assert found.approximation_error == 0.0
    with pytest.warns(RuntimeWarning, match="take more landmarks than 5"):  # the step is one of the landmarks' kernel
        KernelTD(RBF(0.2), 1, approximation=Nystrom(5)).fit(context)


def test_few_states_with_more_final_observations_far_from_all_of_them_are_exact():
    n, draws = 160, torch.as_tensor(RNG.normal(size=(160, 2)))
    states, rewards = torch.eye(2, dtype=torch.float64).repeat(n // 2, 1), 1 + draws[:, 0]
    context = Context(states, rewards, torch.full_like(rewards, 0.9), 50 + 20 * draws)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = WeightedSoftmaxTD(RBF(0.5), 15, approximation=Nystrom()).fit(context)
    torch.testing.assert_close(found(states), WeightedSoftmaxTD(RBF(0.5), 15).fit(context)(states))


def test_an_error_of_about_1_is_said_to_be_no_estimate():
    rng = np.random.default_rng(2)
    context = Context.from_episodes([Episode(rng.normal(size=(301, 2)), rng.normal(size=300))], 0.9)
    with pytest.warns(
        RuntimeWarning, match=r"estimated relative error \S+ or more, which is no estimate any longer, of"
    ):
        off = WeightedSoftmaxTD(Laplace(0.02), 5, approximation=Nystrom(5)).fit(context).approximation_error
    with pytest.warns(RuntimeWarning, match=r"estimated relative error 0\.\d+ of the values"):
        near = WeightedSoftmaxTD(RBF(1.0), 5, approximation=Nystrom(10)).fit(context).approximation_error
    assert near < 0.9 < off
