"""Softmax, kernel and tabular TD against sweeps written as plain loops."""

import math

import numpy as np
import pytest
import torch

from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import KernelTD, TabularTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, DotProduct, Exponential, Identity, Laplace, Linear, ReLU

pytestmark = pytest.mark.filterwarnings("ignore::icrl_agents.divergence.DivergenceWarning")

DEPTH = 12


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def distance(x, y):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))


KERNELS = [
    ("rbf", RBF(0.7), lambda x, y: math.exp(-((distance(x, y) / 0.7) ** 2) / 2)),
    ("laplace", Laplace(0.7), lambda x, y: math.exp(-distance(x, y) / 0.7)),
    ("identity", Identity(), lambda x, y: float(x == y)),
    ("exponential", Exponential(2.0), lambda x, y: math.exp(dot(x, y) / 2.0)),
    ("dot_product", DotProduct(0.5 * torch.eye(2)), lambda x, y: math.exp(dot(x, y) / 2.0)),
    ("relu", ReLU(), lambda x, y: max(0.0, dot(x, y))),
    ("callable", lambda x, y: 1.0 + (x @ y.mT).square(), lambda x, y: 1.0 + dot(x, y) ** 2),
    ("linear", Linear(), dot),
]
NON_NEGATIVE = [k for k in KERNELS if k[0] != "linear"]


def draw(lengths, terminated, seed=0, dim=2):
    rng = np.random.default_rng(seed)
    return [
        Episode(rng.integers(-2, 3, size=(n + 1, dim)) / 2.0, rng.normal(size=n), t)
        for n, t in zip(lengths, terminated, strict=True)
    ]


def shuffled(context, seed=0):
    order = np.random.default_rng(seed).permutation(len(context))
    return Context(*(t[order] for t in (context.states, context.rewards, context.discounts, context.next_states)))


CONTEXTS = {
    "single": Context.from_episodes(draw([9], [False]), 0.9),
    "terminal": Context.from_episodes(draw([9], [True]), 0.9),
    "several": Context.from_episodes(draw([4, 1, 5], [True, False, False]), 0.9),
    "shuffled": shuffled(Context.from_episodes(draw([4, 5], [True, False]), 1.0)),
    "repeated": Context.concatenate([Context.from_episodes(draw([3, 2], [False, True]), 0.5)] * 2),
    "kernel_regression": Context.from_episodes(draw([4, 3], [False, True]), 0.0),
}
QUERIES = [[0.3, -0.2], [0.5, 0.5], [10.0, -10.0]]
each_context = pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS.keys())


def close(left, right, tolerance=1e-10):
    torch.testing.assert_close(left, torch.as_tensor(right, dtype=left.dtype), rtol=tolerance, atol=tolerance)


def rows(context):
    parts = (context.states, context.rewards, context.discounts, context.next_states)
    return list(zip(*(part.tolist() for part in parts), strict=True))


def oracle(transitions, weigh, step_size, queries):
    """v_ℓ(query) for ℓ = 0 … DEPTH, moving every state, next state and query separately."""
    everywhere = [x for x, _, _, _ in transitions] + [x_next for _, _, _, x_next in transitions] + queries
    weights = [weigh(x, [row[0] for row in transitions]) for x in everywhere]
    n = len(transitions)
    values = [0.0] * len(everywhere)
    history = [values[2 * n :]]
    for _ in range(DEPTH):
        errors = [
            reward + (discount * values[n + k] if discount > 0 else 0.0) - values[k]
            for k, (_, reward, discount, _) in enumerate(transitions)
        ]
        values = [
            v + step_size * sum(w * e for w, e in zip(row, errors, strict=True))
            for v, row in zip(values, weights, strict=True)
        ]
        history.append(values[2 * n :])
    return [list(column) for column in zip(*history, strict=True)]


@each_context
@pytest.mark.parametrize(("kernel", "formula"), [k[1:] for k in NON_NEGATIVE], ids=[k[0] for k in NON_NEGATIVE])
@pytest.mark.parametrize("step_size", [1.0, 0.3])
def test_each_sweep_of_softmax_td_equals_the_oracle(kernel, formula, context, step_size):
    def normalised(x, keys):
        row = [formula(x, key) for key in keys]
        return [w / sum(row) if sum(row) > 0 else 0.0 for w in row]

    expected = oracle(rows(context), normalised, step_size, QUERIES)
    found = WeightedSoftmaxTD(kernel, DEPTH, step_size).fit(context)
    close(found.by_depth(QUERIES), expected)
    close(found(QUERIES), [row[-1] for row in expected])
    close(found.at_depth(3)(QUERIES[0]), expected[0][3])


@each_context
@pytest.mark.parametrize(("kernel", "formula"), [k[1:] for k in KERNELS], ids=[k[0] for k in KERNELS])
@pytest.mark.parametrize("step_size", ["auto", 0.02])
def test_each_sweep_of_kernel_td_equals_the_oracle(kernel, formula, context, step_size):
    transitions = rows(context)
    keys = [row[0] for row in transitions]
    alpha = 1 / max(sum(abs(formula(a, b)) for a in keys) for b in keys) if step_size == "auto" else step_size
    expected = oracle(transitions, lambda x, keys: [formula(x, key) for key in keys], alpha, QUERIES)
    close(KernelTD(kernel, DEPTH, step_size).fit(context).by_depth(QUERIES), expected, 1e-9)


@each_context
def test_each_sweep_of_tabular_td_moves_by_the_mean_td_error_of_the_visits(context):
    transitions, table = rows(context), {}
    queries = [*context.states.tolist(), [9.0, 9.0]]
    found = TabularTD(DEPTH, step_size=0.7).fit(context).by_depth(queries)
    for depth in range(DEPTH + 1):
        close(found[:, depth], [table.get(tuple(x), 0.0) for x in queries])
        errors = {}
        for x, reward, discount, x_next in transitions:
            error = reward + discount * table.get(tuple(x_next), 0.0) - table.get(tuple(x), 0.0)
            errors.setdefault(tuple(x), []).append(error)
        for x, visits in errors.items():
            table[x] = table.get(x, 0.0) + 0.7 * sum(visits) / len(visits)


def test_without_a_discount_one_sweep_is_kernel_regression_on_the_rewards():
    context = CONTEXTS["kernel_regression"]
    for _, kernel, formula in NON_NEGATIVE[:4]:
        for query in QUERIES[:2]:
            weights = [formula(query, x) for x in context.states.tolist()]
            total = sum(weights)
            mean = sum(w * r for w, r in zip(weights, context.rewards.tolist(), strict=True)) / total if total else 0.0
            close(WeightedSoftmaxTD(kernel, 1).fit(context)(query), mean)
    rewards = {}
    for x, reward, _, _ in rows(context):
        rewards.setdefault(tuple(x), []).append(reward)
    found = TabularTD(5).fit(context)
    for x, seen in rewards.items():
        close(found(list(x)), sum(seen) / len(seen))


@each_context
def test_values_are_linear_in_the_rewards(context):
    def values(evaluator, rewards):
        return evaluator.fit(Context(context.states, rewards, context.discounts, context.next_states))(QUERIES)

    other = torch.linspace(-1, 2, len(context), dtype=torch.float64)
    for evaluator in (WeightedSoftmaxTD(RBF(0.5), 20), KernelTD(RBF(0.5), 20), TabularTD(20)):
        one = values(evaluator, context.rewards)
        close(values(evaluator, 3 * context.rewards), 3 * one)
        close(values(evaluator, context.rewards - 2 * other), one - 2 * values(evaluator, other))


def test_with_the_linear_kernel_kernel_td_is_linear_td():
    context, alpha = CONTEXTS["several"], 0.05
    w = [0.0, 0.0]
    found = KernelTD(Linear(), DEPTH, alpha).fit(context).by_depth(QUERIES)
    for depth in range(DEPTH + 1):
        close(found[:, depth], [dot(query, w) for query in QUERIES])
        step = [0.0, 0.0]
        for x, reward, discount, x_next in rows(context):
            error = reward + discount * dot(x_next, w) - dot(x, w)
            step = [s + alpha * error * c for s, c in zip(step, x, strict=True)]
        w = [a + b for a, b in zip(w, step, strict=True)]


def test_softmax_td_is_linear_td_up_to_the_normaliser():
    # All states have the same sum of dot products with the context, so that the factor is constant.
    angles = [0.1, 0.1 + 2 * math.pi / 3, 0.1 + 4 * math.pi / 3]
    states = [[1.0, math.cos(a), math.sin(a)] for a in angles]
    context = Context(states, [1.0, -1.0, 0.5], [0.9] * 3, states[1:] + states[:1])
    positive = lambda x, y: (x @ y.mT).clamp(min=0)  # noqa: E731
    total = sum(max(0.0, dot(states[0], y)) for y in states)
    softmax = WeightedSoftmaxTD(positive, DEPTH).fit(context).by_depth(states)
    close(softmax, KernelTD(Linear(), DEPTH, 1 / total).fit(context).by_depth(states))


@pytest.mark.parametrize("kernel", [Exponential(0.2), RBF(0.6), DotProduct(4 * torch.eye(5)), Laplace(0.5), Identity()])
def test_on_one_hot_chains_the_fixed_point_is_tabular_lstd_at_any_scale(kernel):
    rng = np.random.default_rng(0)
    path = np.concatenate([np.arange(5), rng.integers(0, 5, size=56)])
    rewards = rng.normal(size=60)
    context = Context.from_episodes([Episode(np.eye(5)[path], rewards)], 0.9)
    a, b = np.zeros((5, 5)), np.zeros(5)
    for s, reward, s_next in zip(path[:-1], rewards, path[1:], strict=True):
        a[s, s] += 1.0
        a[s, s_next] -= 0.9
        b[s] += reward
    found = WeightedSoftmaxTD(kernel, 3_000).fit(context)
    close(found(np.eye(5)), np.linalg.solve(a, b), 1e-8)
    close(found.td_errors(context).sum(), 0.0, 1e-6)


def test_fifty_identical_states_are_worth_that_state():
    context = Context(np.ones((50, 2)), np.ones(50), np.full(50, 0.9), np.ones((50, 2)))
    for kernel in (RBF("median"), Laplace(1e-3), Exponential(1e-3), Identity()):
        close(WeightedSoftmaxTD(kernel, 500).fit(context)([1.0, 1.0]), 10.0)


@pytest.mark.parametrize("kernel", [RBF(0.5), Laplace(0.5), Exponential(2.0)])
def test_what_is_written_into_a_context_later_moves_no_value(kernel):
    points = torch.as_tensor(np.random.default_rng(0).normal(size=(21, 2)))
    context = Context(points[:-1], points[:-1, 0], torch.full((20,), 0.9).double(), points[1:])
    value = WeightedSoftmaxTD(kernel, 5).fit(context)
    expected = value(points[:3])
    context.points.mul_(3.0)
    assert torch.equal(value(points[:3]), expected)
