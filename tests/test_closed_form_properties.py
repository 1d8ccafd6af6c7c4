"""Closed forms on random contexts: each solves its own dense system, and is the limit that it says it is."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from icrl_agents import kernels
from icrl_agents.context import Context
from icrl_agents.divergence import DivergenceError
from icrl_agents.evaluators import LSTD, KernelLSTD, KernelTD, MonteCarlo, Nystrom, TabularTD, WeightedSoftmaxTD
from tests import oracles
from tests.properties import of
from tests.scenarios import Chosen, chosen_kernels
from tests.strategies import Sample, close, generators, independent, samples


@st.composite
def endless(draw):
    """Transitions between one or two states at γ = 1, of which none terminates."""
    n, dim, rng = draw(st.integers(1, 8)), draw(st.integers(1, 3)), draw(generators)
    path = rng.normal(size=(2, dim))[rng.integers(draw(st.integers(1, 2)), size=n + 1)]
    return Sample(path[:-1], rng.normal(size=n), np.ones(n), path[1:], np.arange(n) < n - 1)


def loop(n):
    """n steps from a state to itself."""
    path = np.full((n + 1, 1), 0.7)
    return Sample(path[:-1], np.arange(1.0, n + 1), np.ones(n), path[1:], np.arange(n) < n - 1)


@of(endless(), loop(6), loop(1))
def test_what_a_context_does_not_determine_is_refused_and_never_huge(sample):
    kernel = kernels.RBF(0.5)
    for evaluator in (
        LSTD(),
        KernelLSTD(kernel),
        KernelLSTD(kernel, normalise=True),
        KernelLSTD(kernels.Linear()),
        TabularTD(math.inf),
        WeightedSoftmaxTD(kernel, math.inf),
        KernelTD(kernels.Linear(), math.inf),
    ):
        try:
            values = evaluator.fit(sample.context)(sample.states)
        except (ValueError, DivergenceError):
            continue
        assert float(values.abs().max()) < 1e9


@of(st.tuples(samples(least=1), st.sampled_from([0.05, 0.5, 5.0])))
def test_lstd_solves_its_normal_equations(drawn):
    sample, ridge = drawn
    x, x_next = sample.states, sample.discounts[:, None] * sample.next_states
    system = x.T @ (x - x_next) + ridge * np.eye(sample.dim)
    if np.linalg.cond(system) < 1e6:
        found = LSTD(ridge).fit(sample.context)(np.eye(sample.dim))
        close(found, np.linalg.solve(system, x.T @ sample.rewards), scale=float(np.abs(sample.rewards).max()))


FAR_NEXT_STATE = Sample(*(np.array(part) for part in ([[0.0, 0.0]], [1.0], [0.5], [[1.0, 1.0]], [False])))
NARROW = Chosen(kernels.RBF(0.03), lambda states: oracles.rbf(0.03))
"""κ(x′, x) is 0 in floating point, and yet its share among one key is 1."""


@of(
    st.tuples(independent(least=1), chosen_kernels(2), st.sampled_from([0.05, 0.5]), st.booleans()),
    (FAR_NEXT_STATE, NARROW, 0.05, True),
)
def test_kernel_lstd_solves_its_dense_system(drawn):
    sample, chosen, ridge, normalise = drawn
    if sample.dim != 2 or (normalise and not chosen.softmax):
        return
    keys = sample.states.tolist()
    kappa, score = chosen.kappa(keys), chosen.score(keys)

    def weights(points):
        if not normalise:
            return np.array([[kappa(x, y) for y in keys] for x in points.tolist()])
        scores = np.array([[score(x, y) for y in keys] for x in points.tolist()])
        reached = scores.max(1, keepdims=True)
        rows = np.exp(scores - np.where(np.isfinite(reached), reached, 0.0))
        return rows / np.where(np.isfinite(reached), rows.sum(1, keepdims=True), 1.0)

    K, K_next = weights(sample.states), sample.discounts[:, None] * weights(sample.next_states)
    system = K - K_next + ridge * np.eye(len(K))
    if np.linalg.cond(system) < 1e6:
        w = np.linalg.solve(system, sample.rewards)
        found = KernelLSTD(chosen.kernel, ridge, normalise).fit(sample.context)(sample.states)
        close(found, K @ w, 1e-6, float(np.abs(w).max()))


@of(st.tuples(samples(least=1), st.integers(0, 3)))
def test_monte_carlo_averages_the_returns_of_each_state(drawn):
    sample, least = drawn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of contexts none of whose returns is long enough
        found = MonteCarlo(min_tail=least).fit(sample.context)(sample.states)
    returns, seen = [0.0] * (len(sample) + 1), [0.0] * (len(sample) + 1)
    for k, (_, reward, gamma, _, linked) in reversed(list(enumerate(sample.rows))):
        returns[k] = reward + (gamma * returns[k + 1] if linked else 0.0)
        seen[k] = math.inf if gamma == 0 else 1 + (seen[k + 1] if linked else 0)
    for x, value in zip(sample.states, found.tolist(), strict=True):
        visits = [k for k, y in enumerate(sample.states) if (x == y).all() and seen[k] >= least]
        expected = sum(returns[k] for k in visits) / max(1, len(visits))
        assert abs(value - expected) <= 1e-9 * max(map(abs, returns))


@of(samples(least=1))
def test_tabular_values_are_lstd_on_one_hot_states(sample):
    points, index = np.unique(np.concatenate([sample.states, sample.next_states]), axis=0, return_inverse=True)
    eye = np.eye(len(points))
    states, next_states = np.split(eye[index.reshape(-1)], 2)
    one_hot = type(sample)(states, sample.rewards, sample.discounts, next_states, sample.linked)
    tabular = TabularTD(4).fit(sample.context).by_depth(sample.states)
    close(TabularTD(4).fit(one_hot.context).by_depth(states), tabular)
    if sample.discounts.max() < 0.995:
        expected = LSTD().fit(one_hot.context)(states)
        close(KernelLSTD(kernels.Identity()).fit(sample.context)(sample.states), expected, 1e-8)
        close(TabularTD(math.inf).fit(sample.context)(sample.states), expected, 1e-8)


@pytest.mark.parametrize("width", [0.05, 0.3, 3.0])
@pytest.mark.parametrize(
    "evaluator",
    [
        lambda width: KernelLSTD(kernels.RBF(width)),
        lambda width: KernelLSTD(kernels.RBF(width), 1e-7),
        lambda width: KernelLSTD(kernels.Laplace(width), normalise=True),
        lambda width: KernelTD(kernels.Laplace(width), math.inf),
        lambda width: WeightedSoftmaxTD(kernels.RBF(width), math.inf),
    ],
)
def test_single_precision_has_the_values_of_double_precision_or_is_refused(evaluator, width):
    rng, evaluator = np.random.default_rng(0), evaluator(width)
    states = rng.random((61, 1))
    wide = Context(*(torch.as_tensor(a) for a in (states[:-1], rng.normal(size=60), np.full(60, 0.9), states[1:])))
    narrow = wide.to(dtype=torch.float32)
    try:
        found = evaluator.fit(narrow)(narrow.states).double()
    except ValueError:
        return
    expected = evaluator.fit(narrow.to(dtype=torch.float64))(narrow.states.double())
    assert float((found - expected).abs().max()) < 1e-2 * float(expected.abs().max())


@pytest.mark.parametrize(
    "evaluator",
    [
        KernelLSTD,
        lambda kernel: KernelTD(kernel, math.inf),
        lambda kernel: KernelTD(kernel, 2, approximation=Nystrom(2)),
    ],
)
def test_a_kernel_of_ones_own_that_takes_no_double_precision_is_told(evaluator):
    weights = torch.nn.Linear(1, 2)
    context = Context([[0.0], [1.0]], [1.0, 2.0], [0.5, 0.0], [[1.0], [0.0]]).to(dtype=torch.float32)
    with pytest.raises(
        TypeError, match=r"kernel: asked in double precision here, .* convert it and the context, for instance"
    ):
        evaluator(lambda x, y: torch.exp(-torch.cdist(weights(x), weights(y)))).fit(context)
