"""Attention matrices, kernel diagonality, bounds, norms and radii, against plain loops and closed forms."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agents import diagnostics, kernels
from icrl_agents.collection import collect
from icrl_agents.context import Context
from icrl_agents.diagnostics import (
    attention_matrix,
    contraction_factor,
    expected_update,
    kernel_diagonality,
    spectral_radius,
    sufficient_bound,
)
from icrl_agents.episode import Episode
from icrl_agents.evaluators import WeightedSoftmaxTD
from icrl_envs import FiniteProcess, boyan_chain, loop_chain
from tests import oracles

PROCESSES = {
    "Boyan one-hot": boyan_chain(num_states=5),
    "Boyan random": boyan_chain(num_states=6, features="random", num_features=3, gamma=0.7),
    "Loop": loop_chain(num_states=4, features="random", num_features=2, task_seed=1),
}
KERNELS = {
    "exponential": (kernels.Exponential(0.25), oracles.exponential(0.25)),
    "RBF": (kernels.RBF(0.5), oracles.rbf(0.5)),
    "callable": (lambda x, y: 1 + (x @ y.mT).square(), oracles.quadratic),
}


def weights_of(score, x, keys, masses):
    scores = [score(x, key) for key in keys]
    powers = [mass * math.exp(s - max(scores)) for s, mass in zip(scores, masses, strict=True)]
    return [power / sum(powers) for power in powers]


def population(process, score):
    """M and I − γP as lists of rows."""
    states, mu = process.features.tolist(), process.stationary_distribution().tolist()
    M = [weights_of(score, x, states, mu) for x in states]
    S = range(len(states))
    A = [[float(s == u) - process.gamma * float(process.transition_matrix[s, u]) for u in S] for s in S]
    return M, A


def rows_of(context):
    parts = (context.states, context.rewards, context.discounts, context.next_states)
    return [(*row, None) for row in zip(*(part.tolist() for part in parts), strict=True)]


def operator(M, A, alpha):
    """I − αMA."""
    product = oracles.matmul(M, A)
    return [[float(i == j) - alpha * entry for j, entry in enumerate(row)] for i, row in enumerate(product)]


def several_episodes():
    rng = np.random.default_rng(3)
    episodes = [Episode(rng.integers(3, size=(n + 1, 1)).astype(float), rng.normal(size=n), n == 4) for n in (6, 4, 5)]
    return Context.from_episodes(episodes, 0.9)


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
@pytest.mark.parametrize(("kernel", "score"), KERNELS.values(), ids=KERNELS)
def test_the_population_limit_is_that_of_plain_loops(process, kernel, score):
    M, A = population(process, score)
    matrix = attention_matrix(process, kernel)
    torch.testing.assert_close(matrix, torch.tensor(M, dtype=torch.float64), rtol=0, atol=1e-13)
    diagonal = [M[s][s] for s in range(len(M))]
    found = kernel_diagonality(matrix)
    assert float(found.minimum) == pytest.approx(min(diagonal), abs=1e-13)
    assert float(found.mean) == pytest.approx(sum(diagonal) / len(diagonal), abs=1e-13)

    for alpha in (1.0, 0.4):
        E = operator(M, A, alpha)
        norm = max(sum(abs(entry) for entry in row) for row in E)
        assert float(contraction_factor(process, kernel, alpha)) == pytest.approx(norm, abs=1e-12)
        assert norm <= float(sufficient_bound(found.minimum, process.gamma, alpha)) + 1e-12
        radius = float(spectral_radius(process, kernel, alpha))
        assert radius == pytest.approx(np.abs(np.linalg.eigvals(np.array(E))).max(), abs=1e-12)
        assert 1 - alpha * (1 - process.gamma) - 1e-12 <= radius <= norm + 1e-12


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
def test_sweeps_in_the_population_limit_are_those_of_plain_loops(process):
    kernel, score = KERNELS["exponential"]
    M, A = population(process, score)
    v = [0.0] * len(M)
    history = [v]
    for _ in range(30):
        errors = oracles.plus(process.rewards.tolist(), oracles.times(A, v), -1.0)
        v = oracles.plus(v, oracles.times(M, errors), 0.7)
        history.append(v)
    update = expected_update(process, kernel)
    expected = torch.tensor(history, dtype=torch.float64).mT
    torch.testing.assert_close(update.sweep(30, 0.7), expected, rtol=0, atol=1e-12)
    exact = torch.as_tensor(process.values())
    torch.testing.assert_close(update.limit(), exact, rtol=0, atol=1e-9)
    torch.testing.assert_close(update.errors(30, 0.7), expected - exact[:, None], rtol=0, atol=1e-9)


@pytest.mark.parametrize(("kernel", "score"), KERNELS.values(), ids=KERNELS)
def test_the_attention_of_a_context_is_that_of_plain_loops_and_zero_in_the_padding(kernel, score):
    contexts = [several_episodes(), collect(gym.make("icrl/RKHS-v0"), num_steps=7, gamma=0.9, seed=0)]
    batch = attention_matrix(Context.stack(contexts), kernel)
    for context, padded in zip(contexts, batch, strict=True):
        states, n = context.states.tolist(), len(context)
        expected = torch.tensor([weights_of(score, x, states, [1.0] * n) for x in states], dtype=torch.float64)
        torch.testing.assert_close(attention_matrix(context, kernel), expected, rtol=0, atol=1e-13)
        torch.testing.assert_close(padded[:n, :n], expected, rtol=0, atol=1e-13)
        assert not padded[n:].any()
        assert not padded[:, n:].any()


@pytest.mark.parametrize(("kernel", "score"), KERNELS.values(), ids=KERNELS)
def test_n_transitions_over_few_states_are_weighted_ones_exactly(kernel, score):
    context = several_episodes()
    update = expected_update(context, kernel)
    assert update.attention.shape == (3, 3)
    expected = oracles.softmax_td(rows_of(context), score, 40, update.states.tolist())
    torch.testing.assert_close(update.sweep(40), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-11)


def test_final_observations_that_no_transition_leaves_come_last():
    states = torch.tensor([[0.0], [1.0], [0.0]], dtype=torch.float64)
    context = Context(states, [1.0, 2.0, 3.0], [0.9, 0.5, 0.0], [[1.0], [7.0], [0.0]])
    update = expected_update(context, kernels.RBF(1.0))
    assert update.states.tolist() == [[0.0], [1.0], [7.0]]
    assert update.dynamics.tolist() == [[1.0, -0.45, 0.0], [0.0, 1.0, -0.5]]
    assert update.rewards.tolist() == [2.0, 2.0]
    torch.testing.assert_close(update.attention.sum(-1), torch.ones(3, dtype=torch.float64))
    fitted = WeightedSoftmaxTD(kernels.RBF(1.0), 12).fit(context)
    torch.testing.assert_close(update.sweep(12), fitted.by_depth(update.states), rtol=0, atol=1e-12)


def test_norm_and_radius_of_a_batch_are_those_of_each_context_whatever_the_padding():
    contexts = [several_episodes(), Context([[0.0], [1.0]], [1.0, 0.0], [0.9, 0.9], [[1.0], [0.0]])]
    kernel = kernels.RBF(0.5)
    for function in (contraction_factor, spectral_radius):
        expected = torch.stack([function(context, kernel) for context in contexts])
        for padding in ("right", "left"):
            torch.testing.assert_close(function(Context.stack(contexts, padding), kernel), expected)


def test_the_radius_of_two_states_in_closed_form():
    """Under a switch P, symmetric M = [[m, 1−m], [1−m, m]] and I − M(I − γP) share the eigenvectors (1, 1), (1, −1)."""
    process = FiniteProcess([[0.0, 1.0], [1.0, 0.0]], [1.0, 0.0], np.eye(2), 0.6, [0.5, 0.5])
    for c in (-1.0, 0.0, 0.5, 3.0):
        m = 1 / (1 + math.exp(-c))
        eigenvalues = (0.6, 1 - (2 * m - 1) * 1.6)
        found = float(spectral_radius(process, kernels.DotProduct(c * torch.eye(2))))
        assert found == pytest.approx(max(map(abs, eigenvalues)), abs=1e-12)


@pytest.mark.parametrize("scale", [0.5, 1.5, 8.0])
@pytest.mark.parametrize("features", ["one_hot", "random"])
def test_the_measured_rate_is_the_spectral_radius(features, scale):
    for seed in range(4):
        process = boyan_chain(num_states=5, gamma=0.5, features=features, task_seed=seed)
        kernel = kernels.Exponential(1 / scale)
        errors = expected_update(process, kernel).errors(1_000).abs().amax(0)
        rate = float((errors[-1] / errors[500]) ** (1 / 500))
        assert rate == pytest.approx(float(spectral_radius(process, kernel)), rel=0.02)
        assert float((errors[1:] / errors[:-1]).max()) <= float(contraction_factor(process, kernel)) + 1e-10


def test_a_score_that_prefers_other_states_diverges_at_its_radius():
    process, kernel = boyan_chain(num_states=5), kernels.DotProduct(-2.0 * torch.eye(5))
    radius = float(spectral_radius(process, kernel))
    errors = expected_update(process, kernel).errors(200).abs().amax(0)
    assert radius > 1.2
    assert float((errors[-1] / errors[100]) ** 0.01) == pytest.approx(radius, rel=0.02)


def test_a_state_that_is_never_visited_again_is_never_learned():
    P = [[0.0, 1.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.5, 0.5]]
    process = FiniteProcess(P, [1.0, 0.0, 2.0], np.eye(3), 0.9, [1.0, 0.0, 0.0])
    kernel = kernels.Exponential(1e-3)
    matrix = attention_matrix(process, kernel)
    assert matrix[:, 0].tolist() == [0.0] * 3
    torch.testing.assert_close(matrix.sum(-1), torch.ones(3, dtype=torch.float64))
    assert float(spectral_radius(process, kernel)) == pytest.approx(1.0)


def test_kernel_diagonality_counts_what_the_mask_says():
    matrix = torch.tensor([[[0.9, 0.1], [0.4, 0.6]], [[1.0, 0.0], [0.0, 0.0]]])
    found = kernel_diagonality(matrix, torch.tensor([[True, True], [True, False]]))
    torch.testing.assert_close(found.minimum, torch.tensor([0.6, 1.0]))
    torch.testing.assert_close(found.mean, torch.tensor([0.75, 1.0]))


def test_what_does_not_fit_is_refused():
    process, kernel = boyan_chain(), kernels.RBF(1.0)
    with pytest.raises(TypeError, match="source: expected a Context or a finite process"):
        attention_matrix(gym.make("icrl/RKHS-v0"), kernel)
    with pytest.raises(ValueError, match="source: expected a context without batch"):
        expected_update(Context.stack([several_episodes()]), kernel)
    with pytest.raises(ValueError, match=r"step_size: expected α in \(0, 1\]"):
        sufficient_bound(0.9, 0.9, 1.5)
    with pytest.raises(ValueError, match="step_size"):
        spectral_radius(process, kernel, -1.0)
    with pytest.raises(ValueError, match="matrix: expected shape"):
        kernel_diagonality(torch.ones(3))
    with pytest.raises(ValueError, match="mask: expected at least one"):
        kernel_diagonality(torch.eye(2), torch.zeros(2, dtype=torch.bool))
    with pytest.raises(ValueError, match="tells the states apart"):
        expected_update(process, lambda x, y: torch.ones(len(x), len(y), dtype=x.dtype)).limit()


def test_everything_is_where_it_is_announced():
    assert {"attention_matrix", "kernel_diagonality", "contraction_factor", "spectral_radius", "msve"} <= set(
        diagnostics.__all__
    )


def test_a_context_without_transitions_contracts_at_once():
    empty = Context(np.zeros((0, 2)), [], [], np.zeros((0, 2)))
    other = Context([[0.0, 1.0]], [1.0], [0.5], [[0.0, 1.0]])
    assert float(spectral_radius(empty, kernels.RBF(1.0))) == 0.0
    assert float(contraction_factor(empty, kernels.RBF(1.0))) == 0.0
    batch = Context.stack([other, empty])
    assert spectral_radius(batch, kernels.RBF(1.0)).tolist() == pytest.approx(
        [float(spectral_radius(other, kernels.RBF(1.0))), 0.0]
    )


def test_padding_that_is_counted_as_states_is_told_of():
    contexts = [Context([[float(s)] for s in range(n)], [1.0] * n, [0.9] * n, [[9.0]] * n) for n in (2, 4)]
    batch = Context.stack(contexts)
    matrix = attention_matrix(batch, kernels.RBF(0.5))
    with pytest.warns(RuntimeWarning, match="mask=context.mask"):
        assert float(kernel_diagonality(matrix).minimum[0]) == 0
    found = kernel_diagonality(matrix, batch.mask).minimum
    alone = torch.stack([kernel_diagonality(attention_matrix(each, kernels.RBF(0.5))).minimum for each in contexts])
    torch.testing.assert_close(found, alone)
