"""Layers of one's own that inherit those of the package."""

import pytest
import torch

from icrl_agents import kernels
from icrl_agents.attention import SoftmaxAttention
from icrl_agents.context import Context
from icrl_agents.layers import TemporalShiftLayer
from icrl_agents.prompt import route
from icrl_agents.transformer import InContextTransformer
from tests.test_mixed_layers import DIM, context_of, normal


class Gated(TemporalShiftLayer):
    """Takes half of each update."""

    def forward(self, tokens, context, weights):
        return tokens + 0.5 * (super().forward(tokens, context, weights) - tokens)


class Clipped(TemporalShiftLayer):
    """TD errors of 0.1 at most."""

    def messages(self, tokens, context):
        return super().messages(tokens, context).clamp(-0.1, 0.1)

    def forward(self, tokens, context, weights):
        sent = (weights @ self.messages(tokens, context)[..., None])[..., 0]
        value = tokens[..., -1] + sent
        return torch.cat([tokens[..., :-2], route(context, value)[..., None], value[..., None]], -1)


def test_a_layer_that_inherits_one_and_changes_its_forward_pass_alone_is_no_expansion():
    attention, context = SoftmaxAttention(kernels.RBF(0.5)), context_of()
    with pytest.raises(ValueError, match="Gated overrides forward alone"):
        InContextTransformer([Gated(attention)], 3)
    gated = type("Gated", (Gated,), {"expands": False})(attention)
    transformer = InContextTransformer([gated], 3)
    torch.testing.assert_close(transformer.fit(context)(context.states), transformer(context, context.states))
    queries, visits = normal(3, DIM, seed=5), torch.arange(900) % 3
    states, rewards = normal(3, DIM, seed=2)[visits], normal(900, seed=3)
    repeated = Context(states[:-1], rewards[:-1], [0.9] * 899, states[1:])
    value, keys = torch.zeros(899, dtype=torch.float64), attention.bind(states[:-1], repeated.mask)
    at_states, at_next, found = keys(states[:-1]), keys(states[1:]), torch.zeros(3, dtype=torch.float64)
    following = torch.zeros(899, dtype=torch.float64)
    for _ in range(3):
        sent = (rewards[:-1] + 0.9 * following - value).clamp(-0.1, 0.1)
        value, following, found = value + at_states @ sent, following + at_next @ sent, found + keys(queries) @ sent
    transformer = InContextTransformer([Clipped(attention)], 3)
    torch.testing.assert_close(transformer(repeated, queries), found)
    torch.testing.assert_close(transformer.fit(repeated)(queries), found)
