"""The forward pass warns and raises as ``fit`` does, however its values are asked for."""

import warnings

import numpy as np
import pytest
import torch

from icrl_agents.compressed import CompressedContexts, state_values
from icrl_agents.constructions import average_reward_td, kernel_td, linear_td, residual_gradient, weighted_softmax_td
from icrl_agents.context import Context
from icrl_agents.divergence import DivergenceError, DivergenceWarning
from icrl_agents.kernels import RBF, DotProduct, Identity
from icrl_agents.layers import export_multihead_attention
from icrl_agents.transformer import InContextTransformer

STATES = torch.from_numpy(np.random.default_rng(0).normal(size=(31, 2)))
REWARDS = torch.from_numpy(np.random.default_rng(1).normal(size=30))
SOFTMAX = weighted_softmax_td(DotProduct(torch.eye(2)), 20)
TRANSFORMERS = {
    "softmax": SOFTMAX,
    "two heads": weighted_softmax_td(DotProduct(torch.eye(2)), 20, form="dual_head"),
    "standard attention": InContextTransformer([export_multihead_attention(SOFTMAX.blocks[0], 2)], 20),
    "kernel TD": kernel_td(RBF(30.0), 20, 1.0),
    "a little too large a step": kernel_td(RBF(0.5), 10, 0.6),
    "linear TD": linear_td(2, 60, 2.0),
    "residual gradient": residual_gradient(2, 20, 3.0),
    "average reward": average_reward_td(2, 40, 3.0),
}


def outcome(values):
    """The kind of what is said, its words, and the values where there are some."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            values = values()
        except DivergenceError as error:
            return [str(error)], None
    return [str(warning.message) for warning in found], values


def said(transformer, scale, discount=0.9):
    """What is said of a context of states of size ``scale``, checked to be the same either way."""
    states = scale * STATES
    context = Context(states[:-1], REWARDS, torch.full((30,), discount, dtype=torch.float64), states[1:])
    of_fit, expected = outcome(lambda: transformer.fit(context)(states))
    of_forward, values = outcome(lambda: transformer(context, states))
    assert of_forward == of_fit
    assert (values is None) == (expected is None)
    if values is not None:
        torch.testing.assert_close(values, expected, rtol=1e-8, atol=1e-10)
    return of_fit


@pytest.mark.parametrize("transformer", TRANSFORMERS.values(), ids=TRANSFORMERS)
def test_layers_that_diverge_are_told_of_as_by_fit(transformer):
    assert any(said(transformer, scale) for scale in (1.0, 3.0, 10.0))


def test_layers_that_converge_are_silent_and_an_endless_loop_is_told_of():
    assert said(weighted_softmax_td(RBF(0.1), 20), 1.0) == []
    endless = weighted_softmax_td(Identity(), 20)
    context = Context([[0.0], [1.0]], [1.0, 1.0], [1.0, 1.0], [[1.0], [0.0]])
    with pytest.warns(DivergenceWarning, match="values have not settled"):
        endless(context, context.states)


def test_compressed_contexts_are_told_of_as_in_full():
    path, discounts = torch.arange(31)[None] % 7, torch.full((1, 30), 0.9, dtype=torch.float64)
    contexts = CompressedContexts(10.0 * STATES[None, :7], REWARDS[None, :7], path, discounts)
    of_fit, expected = outcome(lambda: SOFTMAX.fit(contexts.context)(contexts.points))
    of_pass, values = outcome(lambda: state_values(SOFTMAX, contexts))
    assert of_pass == of_fit
    assert "beyond r_max/(1 − γ)" in of_pass[0]
    torch.testing.assert_close(values, expected, rtol=1e-8, atol=1e-10)


def test_td_errors_that_grow_within_bounds_are_told_of_in_compressed_contexts_too():
    path, discounts = torch.tensor([[0, 1, 0, 2, 1, 2]]), torch.full((1, 5), 0.9, dtype=torch.float64)
    contexts = CompressedContexts(STATES[None, :3], REWARDS[None, :3], path, discounts)
    transformer = weighted_softmax_td(Identity(), 3, 1.9)  # values are within r_max/(1 − γ) so far
    of_fit, _ = outcome(lambda: transformer.fit(contexts.context)(contexts.points))
    of_pass, _ = outcome(lambda: state_values(transformer, contexts))
    assert of_pass == of_fit
    assert len(of_fit) == 1


def test_what_is_said_of_a_context_does_not_depend_on_its_padding():
    def exchange(n):  # of two states that listen to each other: equal TD errors contract, others would not
        return Context([[1.0], [-1.0]] * n, [1.0] * 2 * n, [0.9] * 2 * n, [[-1.0], [1.0]] * n)

    layer = weighted_softmax_td(DotProduct(torch.tensor([[-2.0]])), 20).blocks[0]
    for block in (layer, export_multihead_attention(layer, 1)):
        transformer = InContextTransformer([block], 20)
        for context in (exchange(1), exchange(2), Context.stack([exchange(1), exchange(2)])):
            transformer.fit(context)([[1.0]])  # where a warning would be an error


def test_values_of_states_in_the_padding_are_no_td_errors():
    generator = torch.Generator().manual_seed(0)
    states = 0.1 * torch.randn(101, 2, generator=generator, dtype=torch.float64)  # padding lies in their middle
    long, short = (Context(states[:n], [1.0] * n, [0.999] * n, states[1 : n + 1]) for n in (100, 10))
    transformer = kernel_td(RBF(1.0), 300, 0.02)
    for context in (long, short, Context.stack([long, short])):
        transformer.fit(context)(context.states)  # where a warning would be an error


def test_values_of_a_sign_that_no_reward_has_are_told_of_as_by_fit():
    transformer = weighted_softmax_td(DotProduct(torch.eye(2)), 60)
    context = Context(STATES[:-1], REWARDS.abs(), torch.full((30,), 0.9, dtype=torch.float64), STATES[1:])
    of_fit, expected = outcome(lambda: transformer.fit(context)(10.0 * STATES))
    of_forward, values = outcome(lambda: transformer(context, 10.0 * STATES))
    assert of_forward == of_fit
    assert "rewards are of the other sign" in of_fit[0]
    torch.testing.assert_close(values, expected, rtol=1e-8, atol=1e-10)


def test_growth_is_counted_from_the_mean_rewards_of_states_that_are_visited_again():
    states = torch.tensor([[0.0], [0.0], [1.0], [1.0]] * 300, dtype=torch.float64)
    context = Context(states, [1.0, -0.999, -1.0, 0.999] * 300, [0.0] * 1200, states)
    transformer = kernel_td(Identity(), 10, 2.3 / 600)  # each TD error is multiplied by 1 − 2.3
    of_fit, expected = outcome(lambda: transformer.fit(context)(states))
    of_forward, values = outcome(lambda: transformer(context, states))
    assert of_forward == of_fit
    assert "spectral radius 1.3" in of_fit[0]
    torch.testing.assert_close(values, expected, rtol=1e-8, atol=1e-10)


def test_weights_that_are_trained_may_lead_out_of_divergence():
    transformer = weighted_softmax_td(DotProduct(-torch.eye(2)), 20).requires_grad_()
    context = Context(10.0 * STATES[:-1], REWARDS, torch.full((30,), 0.9, dtype=torch.float64), 10.0 * STATES[1:])
    with pytest.warns(DivergenceWarning, match="the layers diverge on a context"):
        loss = transformer(context, context.states).square().mean()
    loss.backward()
    with torch.no_grad(), pytest.raises(DivergenceError, match="values leave 10 times"):
        transformer(context, context.states)
