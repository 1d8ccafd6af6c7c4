"""What the papers claim of the layers: their matrices, their fixed point, their kernels and their accuracy."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agents import constructions
from icrl_agents.attention import SoftmaxAttention
from icrl_agents.collection import collect
from icrl_agents.context import Context
from icrl_agents.diagnostics import relative_msve
from icrl_agents.episode import Episode
from icrl_agents.evaluators import LSTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, DotProduct, Exponential, Identity, Laplace
from icrl_agents.layers import DualHeadLayer
from tests import oracles

DIM, DEPTH, GAMMA = 3, 40, 0.9
RNG = np.random.default_rng(0)
EPISODE = Episode(RNG.normal(size=(13, DIM)), RNG.normal(size=12))
B = torch.as_tensor(RNG.normal(size=(DIM, DIM)))  # not symmetric


def assert_close(found, expected, tolerance=1e-10):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    assert found.shape == expected.shape
    assert float(((found - expected).abs() / expected.abs().clamp(min=1.0)).max()) <= tolerance


@pytest.mark.parametrize("alpha", [1.0, 0.6])
@pytest.mark.parametrize("form", ["dual_head", "temporal_shift"])
def test_every_entry_of_every_layer_is_that_of_the_papers_matrices(form, alpha):
    # The papers score a key against a query, z_keyᵀ A z_query, where the kernels take the query first: hence Bᵀ.
    transformer = constructions.weighted_softmax_td(DotProduct(B.mT), DEPTH, alpha, form=form)
    layers = {"dual_head": oracles.dual_head_layers, "temporal_shift": oracles.temporal_shift_layers}[form]
    Z = oracles.prompt(EPISODE.observations.tolist(), EPISODE.rewards.tolist())
    expected = layers(Z, B.tolist(), alpha, GAMMA, DEPTH)

    tokens = list(transformer.hidden_states(Context.from_episodes([EPISODE], GAMMA)))
    assert len(tokens) == len(expected) == DEPTH + 1
    for found, Z in zip(tokens, expected, strict=True):
        assert_close(found.mT, Z)


def test_the_value_matrices_are_the_papers_up_to_the_discount_which_lives_in_the_routing():
    layer = DualHeadLayer(SoftmaxAttention(Identity()), (0.5, 0.5, -0.5), (0.5, 0.5, -0.5))
    for head, row in zip(layer.value_matrices(DIM), (DIM + 2, DIM + 1), strict=True):
        assert head[row].tolist() == [0.0] * DIM + [0.5, 0.5, -0.5]
        assert int(head.count_nonzero()) == 3


def lifted(states, mean, length_scale):
    """Features [x/ℓ; ‖x/ℓ‖²/2; 1] of the centred states."""
    x = (states - mean) / length_scale
    return np.concatenate([x, 0.5 * np.square(x).sum(-1, keepdims=True), np.ones((len(x), 1))], axis=-1)


@pytest.mark.parametrize("form", ["dual_head", "temporal_shift"])
def test_over_lifted_features_bilinear_scores_are_those_of_the_rbf(form):
    episode = Episode(1000.0 + EPISODE.observations, EPISODE.rewards)
    mean = episode.observations[:-1].mean(0)
    queries = 1000.0 + RNG.normal(size=(4, DIM))
    expected = Context.from_episodes([episode], GAMMA)
    found = Context.from_episodes([Episode(lifted(episode.observations, mean, 0.7), episode.rewards)], GAMMA)
    M = torch.diag(torch.tensor([1.0] * DIM + [0.0, 0.0], dtype=torch.float64))
    M[-1, -2] = -1.0  # the key's norm; the query's cancels in the softmax

    def values(function, kernel, context, states):
        return function(kernel, DEPTH, form=form).fit(context).by_depth(states)

    both = constructions.weighted_softmax_td
    of_rbf = values(both, RBF(0.7), expected, queries)
    assert_close(values(both, DotProduct(M), found, lifted(queries, mean, 0.7)), of_rbf)
    M[-2, -1] = -1.0  # without a normaliser it does not
    of_rbf = values(constructions.kernel_td, RBF(0.7), expected, queries)
    assert_close(values(constructions.kernel_td, DotProduct(M), found, lifted(queries, mean, 0.7)), of_rbf)


SCALES = [Exponential(2.0), Exponential(0.5), Exponential(0.125), RBF(0.5), Laplace(1.0), Identity()]


@pytest.mark.parametrize("env_id", ["icrl/BoyanChain-v0", "icrl/LoopChain-v0"])
@pytest.mark.parametrize("kernel", SCALES, ids=repr)
def test_at_its_fixed_point_softmax_td_is_tabular_lstd_whatever_the_scores_scale(env_id, kernel):
    context = collect(gym.make(env_id, num_states=5, task_seed=1), num_steps=120, gamma=GAMMA, seed=0)
    states = np.eye(5)
    rows = [context.states, context.rewards, context.discounts, context.next_states]
    rows = [(*row, None) for row in zip(*(part.tolist() for part in rows), strict=True)]
    expected = oracles.tabular_lstd(rows, states.tolist())
    assert_close(WeightedSoftmaxTD(kernel, 6_000).fit(context)(states), expected, 1e-8)
    assert_close(LSTD().fit(context)(states), expected, 1e-10)


@pytest.mark.parametrize(
    "settings", [{}, {"dim": 2, "task_seed": 1}, {"kernel": "exponential", "length_scale": 2.0}], ids=str
)
def test_the_closed_form_reward_of_rkhs_agrees_with_sampling(settings):
    """Under the exact value each TD error has mean zero given its state, so it is orthogonal to any function of it."""
    env = gym.make("icrl/RKHS-v0", **settings)
    process = env.get_wrapper_attr("process")
    context = collect(env, num_steps=10_000, gamma=process.gamma, seed=0)
    values = torch.as_tensor(process.values(context.points.numpy()))
    errors, states = context.td_errors(values), context.states[:, 0]
    for function in (torch.ones_like(states), states, torch.cos(2 * states), values[:-1]):
        moments = errors * function
        standard_error = float(moments.std()) / 100
        assert 0 < standard_error < 0.02
        assert abs(float(moments.mean())) < 4 * standard_error


def test_the_softmax_kernel_recovers_the_value_of_rkhs():
    """From one trajectory of 1,000 steps, on states drawn from the stationary law; the median over 30 tasks."""
    transformer = constructions.weighted_softmax_td(RBF(0.4), DEPTH)
    errors = []
    for seed in range(30):
        env = gym.make("icrl/RKHS-v0", task_seed=seed)
        process = env.get_wrapper_attr("process")
        context = collect(env, num_steps=1_000, gamma=process.gamma, seed=seed)
        states = np.random.default_rng([seed, 1]).normal(0.0, process.stationary_scale, (500, 1))
        errors.append(float(relative_msve(transformer.fit(context)(states), torch.as_tensor(process.values(states)))))
    assert np.median(errors) < 0.02
    assert np.mean(errors) < 0.04  # some tasks have most of their value where one trajectory seldom comes
