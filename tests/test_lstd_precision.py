"""LSTD of features of very different sizes, with and without a ridge: no digit is lost, or that is said."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch

from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import LSTD


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("large", "dim"), [(3e6, 2), (1e5, 40)])
def test_lstd_drops_no_feature_that_is_small_beside_another(ridge, dtype, large, dim):
    rng = np.random.default_rng(0)
    units = np.array([large, *(dim - 1) * [0.3]])
    states = (units * rng.normal(size=(501, dim))).astype(np.float32)
    rewards = (states[:-1, 1:] @ rng.normal(size=dim - 1)).astype(np.float32)
    context = Context.from_episodes([Episode(states, rewards)], 0.5).to(dtype=dtype)
    x, x_next = (rows.astype(float) / units for rows in (states[:-1], states[1:]))
    w = np.linalg.solve(x.T @ (x - 0.5 * x_next) + ridge * np.diag(units**-2), x.T @ rewards) / units
    queries = states[:5].astype(float)
    found = LSTD(ridge).fit(context)(torch.as_tensor(queries, dtype=dtype))
    np.testing.assert_allclose(found.numpy(), queries @ w, rtol=1e-5 if dtype is torch.float32 else 1e-9, atol=1e-5)


@pytest.mark.parametrize(("dim", "offset"), [(376, 1e4), (376, 4e4), (40, 4e5)])
def test_lstd_in_single_precision_keeps_the_variation_of_a_feature_with_an_offset_or_says_so(dim, offset):
    rng = np.random.default_rng(0)
    states = np.concatenate(
        [offset + rng.normal(size=(1001, 1)), np.ones((1001, 1)), rng.normal(size=(1001, dim - 2))], 1
    )
    states = states.astype(np.float32)
    rewards = (5 * (states[:-1, 0].astype(float) - offset)).astype(np.float32)
    context = Context.from_episodes([Episode(states, rewards)], 0.5)
    centred = states.astype(float) - offset * np.eye(dim)[0]
    w = np.linalg.solve(centred[:-1].T @ (centred[:-1] - 0.5 * centred[1:]), centred[:-1].T @ rewards)
    expected = centred[:4] @ w
    np.testing.assert_allclose(LSTD().fit(context)(states[:4]).numpy(), expected, rtol=1e-6)
    narrow, asked = context.to(dtype=torch.float32), torch.as_tensor(states[:4])
    if offset > 1e4:
        with pytest.raises(ValueError, match=r"torch.float32 rounds the values"):
            LSTD().fit(narrow)
    else:
        np.testing.assert_allclose(LSTD().fit(narrow)(asked).numpy(), expected, atol=0.02)


@pytest.mark.parametrize("seed", range(30))
def test_lstd_with_a_ridge_is_that_of_exact_arithmetic_whatever_the_features_units(seed):
    rng = np.random.default_rng(seed)
    dim, n = rng.integers(1, 5), rng.integers(1, 8)
    states = (rng.normal(size=(n + 1, dim)) * 2.0 ** rng.integers(-20, 20, size=dim)).astype(np.float32).astype(float)
    rewards, ridge = rng.normal(size=n), float(rng.choice([1e-8, 1e-3, 1.0]))
    exact = [[Fraction(number) for number in row] for row in states.tolist()]
    system = [
        [
            sum(x[i] * (x[j] - y[j] / 2) for x, y in itertools.pairwise(exact)) + (i == j) * Fraction(ridge)
            for j in range(dim)
        ]
        for i in range(dim)
    ]
    right = [sum(x[i] * Fraction(float(r)) for x, r in zip(exact, rewards, strict=False)) for i in range(dim)]
    w = solve_exactly(system, right)
    expected = [float(sum(a * b for a, b in zip(row, w, strict=True))) for row in exact]
    size = max(abs(float(a * b)) for row in exact for a, b in zip(row, w, strict=True))
    found = LSTD(ridge).fit(Context.from_episodes([Episode(states, rewards)], 0.5))(states)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-9 * size)


@pytest.mark.parametrize("seed", range(20))
def test_lstd_of_features_that_are_hardly_told_apart_has_the_values_of_exact_arithmetic_or_says_so(seed):
    rng = np.random.default_rng(seed)
    n, small = int(rng.integers(6, 12)), 10 ** rng.uniform(-13.5, -4)
    first = rng.normal(size=(n + 1, 1))
    states = np.concatenate([first, first + small * rng.normal(size=(n + 1, 1)), np.ones((n + 1, 1))], 1)
    rewards = rng.normal(size=n)
    try:
        found = LSTD().fit(Context.from_episodes([Episode(states, rewards)], 0.99))(states).numpy()
    except ValueError as error:
        if small > 1e-7 or "reciprocal condition" not in str(error):
            raise
        return
    expected = exact_values(states, rewards, Fraction(0.99), Fraction(0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-3 * np.abs(expected).max())


def test_lstd_in_single_precision_leaves_no_direction_out_without_a_word():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(101, 1)).astype(np.float32)
    states = np.concatenate([first, np.nextafter(first, rng.choice([-9, 9], size=(101, 1)), dtype=np.float32)], 1)
    context = Context.from_episodes([Episode(states, (states[1:, 1] - states[1:, 0]) * 1e7)], 0.5)
    with pytest.warns(RuntimeWarning, match=r"leaves out 1 of the directions .* more than torch.float32 rounds them"):
        LSTD().fit(context.to(dtype=torch.float32))
    with pytest.warns(
        RuntimeWarning, match=r"values rest on 1 of the directions .* than torch.float32 rounded them before"
    ):
        LSTD().fit(context)
    with pytest.warns(RuntimeWarning, match="values rest on 1 of the directions"):  # beside others in full precision
        LSTD().fit(
            Context.stack(
                [context, Context.from_episodes([Episode(states + rng.random((101, 2)) / 3, context.rewards)], 0.5)]
            )
        )
    LSTD(1e-6).fit(context)
    LSTD().fit(Context.from_episodes([Episode(np.round(states * 2**7) / 2**7, context.rewards)], 0.5))


def exact_values(states, rewards, gamma, ridge):
    """LSTD's values of one trajectory's states, by fractions."""
    exact, dim = [[Fraction(number) for number in row] for row in states.tolist()], states.shape[1]
    steps = list(itertools.pairwise(exact))
    system = [
        [sum(x[i] * (x[j] - gamma * y[j]) for x, y in steps) + (i == j) * ridge for j in range(dim)] for i in range(dim)
    ]
    right = [sum(x[i] * Fraction(float(r)) for (x, _), r in zip(steps, rewards, strict=True)) for i in range(dim)]
    w = solve_exactly(system, right)
    return [float(sum(a * b for a, b in zip(row, w, strict=True))) for row in exact]


def solve_exactly(system, right):
    """Gaussian elimination with fractions."""
    rows = [[*row, b] for row, b in zip(system, right, strict=True)]
    for i in range(len(rows)):
        pivot = next(k for k in range(i, len(rows)) if rows[k][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [number / rows[i][i] for number in rows[i]]
        rows = [
            row if k == i else [a - row[i] * b for a, b in zip(row, rows[i], strict=True)] for k, row in enumerate(rows)
        ]
    return [row[-1] for row in rows]
