"""Residual gradient where γx′ is x, or all but x: the automatic step divides by their difference."""

import pytest
import torch

from icrl_agents.constructions import residual_gradient
from icrl_agents.context import Context
from icrl_agents.evaluators import ResidualGradient

pytestmark = pytest.mark.filterwarnings("ignore:values have not settled")  # as γ is 1
TYPES = [torch.float64, torch.float32]
PRECONDITIONERS = [None, torch.tensor([[2.0, 0.3], [0.3, 1.0]])]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("gamma", [0.7, 0.9, 1.0])
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_where_discounted_next_states_are_the_states_but_for_rounding_no_value_moves(
    dtype, unit, gamma, preconditioner
):
    states = (unit * torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).to(dtype)
    discounts = torch.full((20,), gamma, dtype=dtype)
    context = Context(states, torch.ones_like(discounts), discounts, states / discounts[:, None])
    for evaluator in (
        ResidualGradient(5, preconditioner=preconditioner),
        residual_gradient(2, 5, preconditioner=preconditioner),
    ):
        assert evaluator.fit(context)(states).abs().max() < 1e-6


@pytest.mark.parametrize("size", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_slow_states_in_single_precision_have_their_values_in_layers_too(size, preconditioner):
    draws = torch.randn(31, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    walk, rewards = (1 + size * draws[:, :2].cumsum(0)).float(), (size * draws[:-1, 2] + size).float()
    context = Context(walk[:-1], rewards, torch.ones_like(rewards), walk[1:])
    expected = ResidualGradient(20, preconditioner=preconditioner).fit(context.to(dtype=torch.float64))(walk.double())
    for evaluator in (
        ResidualGradient(20, preconditioner=preconditioner),
        residual_gradient(2, 20, preconditioner=preconditioner),
    ):
        found = evaluator.fit(context)(walk).double()
        assert (found - expected).norm() < 1e-6 / size * expected.norm()
