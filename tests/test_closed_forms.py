"""LSTD, kernel LSTD and Monte-Carlo: against plain loops, and as the limits of the sweeps."""

import math

import numpy as np
import pytest
import torch

from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import LSTD, KernelLSTD, KernelTD, LinearTD, MonteCarlo, TabularTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, Identity, Laplace, Linear

DIM, GAMMA = 3, 0.9


def episode(seed, length, *, terminated=False, dim=DIM):
    rng = np.random.default_rng(seed)
    return Episode(rng.normal(size=(length + 1, dim)), rng.normal(size=length), terminated)


def chain_context(seed, num_states=6, length=60, *, restarts=True):
    """One-hot states of a random sparse chain in several episodes, with noisy rewards; some states are not visited."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(num_states, 0.3), size=num_states)
    eye, episodes = np.eye(num_states), []
    for i in range(3 if restarts else 1):
        states = [int(rng.integers(num_states))]
        for _ in range(length // 3 if restarts else length):
            states.append(int(rng.choice(num_states, p=P[states[-1]])))
        episodes.append(Episode(eye[states], rng.normal(size=len(states) - 1), terminated=i == 1))
    return Context.from_episodes(episodes, GAMMA)


def context_of(seed, *lengths, terminated=()):
    episodes = [episode(seed + i, length, terminated=i in terminated) for i, length in enumerate(lengths)]
    return Context.from_episodes(episodes, GAMMA)


CONTEXTS = {
    "single": context_of(0, 15),
    "several": context_of(1, 6, 9, 5, terminated=(0, 2)),
    "fewer than d": context_of(9, 2),
}
AT = torch.as_tensor(np.random.default_rng(99).normal(size=(5, DIM)))


def assert_close(a, b, tolerance=1e-10):
    assert a.shape == b.shape
    assert float((a - b).abs().max()) <= tolerance


# The oracles: lists and loops.
def eliminate(matrix, right):
    """Gaussian elimination with partial pivoting."""
    rows = [[*row, b] for row, b in zip(matrix, right, strict=True)]
    size = len(rows)
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, size):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i], strict=True)]
    solution = [0.0] * size
    for i in range(size - 1, -1, -1):
        known = sum(rows[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (rows[i][-1] - known) / rows[i][i]
    return solution


def as_lists(context):
    columns = (context.states, context.rewards, context.discounts, context.next_states)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def oracle_lstd(rows, ridge):
    d = len(rows[0][0])
    A = [[ridge * (i == j) for j in range(d)] for i in range(d)]
    b = [0.0] * d
    for x, reward, discount, x_next in rows:
        for i in range(d):
            b[i] += x[i] * reward
            for j in range(d):
                A[i][j] += x[i] * (x[j] - (discount * x_next[j] if discount else 0.0))
    return eliminate(A, b)


def oracle_kernel_row(x, rows, length_scale, normalise):
    scores = [-sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / (2 * length_scale**2) for y, *_ in rows]
    weights = [math.exp(score) for score in scores]
    return [w / sum(weights) for w in weights] if normalise else weights


def oracle_kernel_lstd(rows, length_scale, ridge, normalise, queries):
    system = []
    for k, (x, _, discount, x_next) in enumerate(rows):
        row = oracle_kernel_row(x, rows, length_scale, normalise)
        if discount:
            following = oracle_kernel_row(x_next, rows, length_scale, normalise)
            row = [a - discount * b for a, b in zip(row, following, strict=True)]
        system.append([a + ridge * (j == k) for j, a in enumerate(row)])
    w = eliminate(system, [reward for _, reward, *_ in rows])
    return [
        sum(a * b for a, b in zip(oracle_kernel_row(q, rows, length_scale, normalise), w, strict=True)) for q in queries
    ]


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 2.0])
@pytest.mark.parametrize("kind", ["single", "several"])
def test_lstd_solves_its_equation(kind, ridge):
    expected = torch.tensor(oracle_lstd(as_lists(CONTEXTS[kind]), ridge), dtype=torch.float64)
    fitted = LSTD(ridge).fit(CONTEXTS[kind])
    assert_close(fitted(torch.eye(DIM, dtype=torch.float64)), expected)
    assert fitted.max_depth == 0


def test_lstd_with_a_ridge_on_states_that_do_not_span():
    context = CONTEXTS["fewer than d"]
    expected = torch.tensor(oracle_lstd(as_lists(context), 0.1), dtype=torch.float64)
    assert_close(LSTD(0.1).fit(context)(torch.eye(DIM, dtype=torch.float64)), expected)


@pytest.mark.parametrize("kind", CONTEXTS)
def test_lstd_is_the_limit_of_linear_td(kind):
    assert_close(LSTD().fit(CONTEXTS[kind])(AT), LinearTD(4000).fit(CONTEXTS[kind])(AT), 1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_softmax_td_on_one_hot_states_converges_to_lstd(seed):
    context = chain_context(seed)
    eye = torch.eye(context.dim, dtype=torch.float64)
    expected = LSTD().fit(context)(eye)
    assert_close(WeightedSoftmaxTD(Identity(), 400).fit(context)(eye), expected, 1e-8)
    assert_close(TabularTD(400).fit(context)(eye), expected, 1e-8)
    assert_close(KernelLSTD(Identity()).fit(context)(eye), expected, 1e-8)
    assert_close(KernelLSTD(Identity(), normalise=True).fit(context)(eye), expected, 1e-8)


def test_softmax_td_of_any_scale_converges_to_lstd_on_one_hot_states():
    context = chain_context(5, restarts=False)
    visited = torch.unique(context.states, dim=0)
    found = WeightedSoftmaxTD(RBF(0.6), 2000).fit(context)(visited)
    assert_close(found, LSTD().fit(context)(visited), 1e-8)


def test_lstd_on_unvisited_states_is_zero_and_bootstraps_from_zero():
    eye = np.eye(3)
    context = Context(eye[[0, 0]], [1.0, 3.0], [0.9, 0.9], eye[[1, 1]])
    values = LSTD().fit(context)(torch.eye(3, dtype=torch.float64))
    assert_close(values, torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize(("ridge", "normalise"), [(0.0, False), (0.3, False), (0.0, True), (0.3, True)])
@pytest.mark.parametrize("kind", ["single", "several"])
def test_kernel_lstd_solves_its_equation(kind, ridge, normalise):
    context = CONTEXTS[kind]
    expected = oracle_kernel_lstd(as_lists(context), 0.7, ridge, normalise, AT.tolist())
    found = KernelLSTD(RBF(0.7), ridge, normalise).fit(context)(AT)
    assert_close(found, torch.tensor(expected, dtype=torch.float64))


def repeated(context):
    """The context with its first half again, under other rewards."""
    half = len(context) // 2
    parts = [
        (column, column[:half]) for column in (context.states, context.rewards, context.discounts, context.next_states)
    ]
    parts[1] = (context.rewards, context.rewards[:half] + 1.0)
    return Context(*(torch.cat(part) for part in parts))


@pytest.mark.parametrize("kind", ["single", "several"])
@pytest.mark.parametrize("twice", [False, True])
def test_kernel_lstd_is_the_limit_of_the_sweeps(kind, twice):
    context = repeated(CONTEXTS[kind]) if twice else CONTEXTS[kind]
    kernel = Laplace(0.5)
    assert_close(KernelLSTD(kernel).fit(context)(AT), KernelTD(kernel, 6000).fit(context)(AT), 1e-8)
    softmax = WeightedSoftmaxTD(kernel, 6000).fit(context)(AT)
    assert_close(KernelLSTD(kernel, normalise=True).fit(context)(AT), softmax, 1e-8)


@pytest.mark.parametrize("normalise", [False, True])
def test_kernel_lstd_with_a_ridge_on_repeated_states(normalise):
    context = repeated(CONTEXTS["several"])
    expected = oracle_kernel_lstd(as_lists(context), 0.7, 0.2, normalise, AT.tolist())
    found = KernelLSTD(RBF(0.7), 0.2, normalise).fit(context)(AT)
    assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_kernel_lstd_with_the_linear_kernel_is_lstd():
    for context in CONTEXTS.values():
        assert_close(KernelLSTD(Linear(), 0.5).fit(context)(AT), LSTD(0.5).fit(context)(AT))


def test_monte_carlo_is_the_mean_return_of_each_state():
    eye = np.eye(4)
    first = Episode(eye[[0, 1, 0, 2]], np.array([1.0, 2.0, 3.0]), terminated=True)
    second = Episode(eye[[1, 0, 1]], np.array([5.0, -1.0]), terminated=False)
    context = Context.from_episodes([first, second], 0.5)
    # G = (1 + .5·(2 + .5·3), 2 + .5·3, 3) and (5 − .5, −1).
    values = MonteCarlo().fit(context)(torch.eye(4, dtype=torch.float64))
    expected = [(2.75 + 3.0 - 1.0) / 3, (3.5 + 4.5) / 2, 0.0, 0.0]
    assert_close(values, torch.tensor(expected, dtype=torch.float64))
    whole = MonteCarlo(min_tail=2).fit(context)(torch.eye(4, dtype=torch.float64))
    assert_close(whole, torch.tensor([(2.75 + 3.0) / 2, 4.0, 0.0, 0.0], dtype=torch.float64))


def test_monte_carlo_with_a_kernel_is_the_weighted_average():
    context = CONTEXTS["several"]
    returns, rows = [0.0] * len(context), as_lists(context)
    for k in range(len(rows) - 1, -1, -1):
        continues = k + 1 < len(rows) and rows[k][3] == rows[k + 1][0]
        returns[k] = rows[k][1] + (rows[k][2] * returns[k + 1] if continues else 0.0)
    expected = [
        sum(w * g for w, g in zip(oracle_kernel_row(q, rows, 0.8, normalise=True), returns, strict=True))
        for q in AT.tolist()
    ]
    fitted = MonteCarlo(RBF(0.8)).fit(context)
    assert_close(fitted(AT), torch.tensor(expected, dtype=torch.float64))
    assert fitted.effective_sample_size(AT).shape == (5,)
