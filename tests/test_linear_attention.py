"""The linear attention layer under arbitrary weights, and what the linear family refuses."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from icrl_agents import constructions
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import AverageRewardTD, LinearTD, ResidualGradient, TDLambda
from icrl_agents.layers import LinearAttentionLayer
from icrl_agents.transformer import InContextTransformer
from icrl_agents.value_function import DivergenceError

DIM = 3


def context_of(seed, *lengths, terminated=False):
    rng = np.random.default_rng(seed)
    episodes = [Episode(rng.normal(size=(n + 1, DIM)), rng.normal(size=n), terminated) for n in lengths]
    return Context.from_episodes(episodes, 0.9)


CONTEXT, TERMINAL = context_of(0, 5, 3, 1), context_of(1, 9, terminated=True)
AT = torch.as_tensor(np.random.default_rng(2).normal(size=(4, DIM)))


def assert_close(a, b, tolerance=1e-10):
    assert a.shape == b.shape
    assert float((a - b).abs().max()) <= tolerance


def decayed_mask(lengths, decay, columns):
    """M as the paper writes it, one block for each episode, zero for queries."""
    M, start = torch.zeros((columns, columns), dtype=torch.float64), 0
    for length in lengths:
        for k in range(length):
            for i in range(k + 1):
                M[start + k, start + i] = decay ** (k - i)
        start += length
    return M


@pytest.mark.parametrize("prompt", ["discounted", "average_reward"])
@pytest.mark.parametrize("decay", [0.0, 0.8])
def test_arbitrary_weights_follow_the_formula_and_fit_equals_forward(prompt, decay):
    rng, n = np.random.default_rng(11), len(CONTEXT)
    rows = 2 * DIM + (2 if prompt == "average_reward" else 1)
    P, Q = (torch.as_tensor(rng.normal(size=(2, rows, rows)) * 0.05) for _ in range(2))
    layers = [LinearAttentionLayer(P, Q, prompt=prompt, trace_decay=decay), LinearAttentionLayer(Q, P, prompt=prompt)]
    transformer = InContextTransformer(layers, loops=3)
    masks = [decayed_mask((5, 3, 1), 0.9 * d, n + len(AT)) for d in (decay, 0.0)]

    Z, *later = [tokens.mT for tokens in transformer.hidden_states(CONTEXT, AT)]
    assert len(later) == 6
    for depth, after in enumerate(later):
        left, right = ((P, Q), (Q, P))[depth % 2]
        M = masks[depth % 2]
        Z = Z + sum(p @ Z @ M @ (Z.mT @ q @ Z) for p, q in zip(left, right, strict=True)) / n
        assert_close(after, Z)
    assert_close(transformer(CONTEXT, AT), -Z[-1, n:])
    assert_close(transformer.fit(CONTEXT)(AT), -Z[-1, n:])


def test_prompt_columns():
    discounted = constructions.linear_td(DIM, 1, 0.1).blocks[0].tokens(TERMINAL, AT)
    assert torch.equal(discounted[0], torch.cat([TERMINAL.states[0], 0.9 * TERMINAL.states[1], TERMINAL.rewards[:1]]))
    assert torch.equal(discounted[8, DIM : 2 * DIM], torch.zeros(DIM, dtype=torch.float64))
    assert torch.equal(discounted[9:, :DIM], AT)
    assert not bool(discounted[9:, DIM:].any())
    average = constructions.average_reward_td(DIM, 1, 0.1).blocks[0].tokens(CONTEXT, AT)
    one = torch.ones(1, dtype=torch.float64)
    assert torch.equal(average[0], torch.cat([CONTEXT.states[0], CONTEXT.states[1], one, CONTEXT.rewards[:1]]))
    assert not bool(average[9:, DIM:].any())


def test_key_columns_hold_minus_the_td_errors():
    transformer = constructions.linear_td(DIM, 5, 0.1)
    fitted = transformer.reference.fit(CONTEXT)
    for depth, tokens in enumerate(transformer.hidden_states(CONTEXT, AT)):
        errors = fitted.at_depth(depth).td_errors(CONTEXT)
        assert_close(-transformer.blocks[0].read_out(tokens)[: len(CONTEXT)], errors)


def test_weights_are_frozen_and_can_be_trained():
    transformer = constructions.td_lambda(DIM, 3, 0.5)
    assert not any(p.requires_grad for p in transformer.parameters())
    transformer.requires_grad_(True)
    transformer(CONTEXT, AT).sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) and float(p.grad.abs().sum()) > 0 for p in transformer.parameters())


def test_settings_rebuild_the_layer():
    layer = constructions.td_lambda(DIM, 1, 0.5).blocks[0]
    again = LinearAttentionLayer.from_settings(layer.settings(), layer.state_dict())
    assert again.settings() == {"prompt": "discounted", "trace_decay": 0.5, "scaling": "values"}
    assert torch.equal(again.P, layer.P)
    assert torch.equal(again.Q, layer.Q)


def test_divergence_is_an_error():
    for evaluator in (LinearTD(1000, 50.0), constructions.linear_td(DIM, 1000, 50.0)):
        with pytest.raises(DivergenceError, match=r"sweep|layer"):
            evaluator.fit(CONTEXT)


MISTAKES = {
    "num_sweeps: expected an integer": lambda: LinearTD(-1),
    "step_size: expected a positive number": lambda: LinearTD(3, step_size=0.0),
    "step_size: expected a positive number or 'auto'": lambda: constructions.linear_td(DIM, 3, "big"),
    "reward_step_size: expected a positive number": lambda: AverageRewardTD(3, reward_step_size=-1.0),
    r"lambda_: expected a trace decay λ in \[0, 1\], got 1.5": lambda: TDLambda(1.5, 3),
    r"preconditioner: expected a finite matrix \(d, d\)": lambda: ResidualGradient(3, preconditioner=torch.ones(3)),
    r"preconditioner: expected a finite matrix \(3, 3\)": lambda: LinearTD(3, 1.0, torch.eye(2)).fit(CONTEXT),
    r"preconditioner: expected a finite matrix \(2, 2\)": lambda: constructions.linear_td(2, 3, 1.0, torch.eye(3)),
    "dim: expected an integer ≥ 1, got 0": lambda: constructions.linear_td(0, 3),
    r"context: .* got a terminal one \(γ = 0\) at index \(8,\)": lambda: AverageRewardTD(3).fit(TERMINAL),
    "context: average-reward": lambda: constructions.average_reward_td(DIM, 3).fit(TERMINAL),
    "context: expected dimension 2": lambda: constructions.linear_td(2, 3).fit(CONTEXT),
    r"P: expected shape \(D, D\)": lambda: LinearAttentionLayer(torch.ones(3), torch.ones(3)),
    "P: expected finite": lambda: LinearAttentionLayer(torch.full((3, 3), torch.nan), torch.ones(3, 3)),
    r"Q: expected the shape of P, \(1, 3, 3\)": lambda: LinearAttentionLayer(torch.ones(3, 3), torch.ones(5, 5)),
    r"P: expected D = 2d \+ 1": lambda: LinearAttentionLayer(torch.ones(4, 4), torch.ones(4, 4)),
    "prompt: expected one of": lambda: LinearAttentionLayer(torch.ones(3, 3), torch.ones(3, 3), prompt="memory"),
    "scaling: expected one of": lambda: LinearAttentionLayer(torch.ones(3, 3), torch.ones(3, 3), scaling="auto"),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named(message):
    with pytest.raises(ValueError, match=message):
        MISTAKES[message]()


def test_the_largest_stable_step_of_many_transitions_is_found_without_a_matrix_of_them():
    class Largest(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            self.seen = max(self.seen, found.numel() if isinstance(found, torch.Tensor) else 0)
            return found

    context, n = context_of(3, 1_500), 1_500
    transformer = constructions.td_lambda(DIM, 3, 0.5)
    with Largest() as largest:
        found = transformer.fit(context)(AT)
    assert largest.seen < n * n / 10
    assert_close(found, TDLambda(0.5, 3).fit(context)(AT))
