"""Equal states kept once: the same groups as by comparing, the same values as by the plain route, faster."""

import time

import numpy as np
import pytest
import torch

from icrl_agents import constructions, weighted_context
from icrl_agents.context import Context
from icrl_agents.distances import median_distance
from icrl_agents.distinct import distinct_rows, fill_rows, group_rows
from icrl_agents.episode import Episode
from icrl_agents.evaluators import (
    KernelLSTD,
    KernelTD,
    LinearTD,
    MonteCarlo,
    ResidualGradient,
    TabularTD,
    TDLambda,
    WeightedSoftmaxTD,
)
from icrl_agents.kernels import RBF, Exponential, Identity, Laplace, Linear, ReLU
from icrl_agents.weighted_context import WeightedContext, weighted

pytestmark = pytest.mark.filterwarnings("ignore::icrl_agents.divergence.DivergenceWarning")  # equal, converging or not
RNG = np.random.default_rng(0)
STATES = RNG.normal(size=(12, 3))


def walk(*lengths, terminated=(), discount=0.9, states=STATES):
    return Context.from_episodes(
        [
            Episode(states[RNG.integers(len(states), size=n + 1)], RNG.normal(size=n), i in terminated)
            for i, n in enumerate(lengths)
        ],
        discount,
    )


SEVERAL = walk(90, 60, 1, 40, terminated=(1,))
CONTEXTS = {
    "several episodes": SEVERAL,
    "left padding": Context.stack([SEVERAL, walk(130), walk(1, 3, discount=0.5)], "left"),
    "right padding, one empty": Context.stack([walk(150), Context(np.zeros((0, 3)), [], [], np.zeros((0, 3)))]),
    "partly equal": Context.concatenate([SEVERAL, walk(100, states=RNG.normal(size=(500, 3)))]),
}
QUERIES = torch.as_tensor(RNG.normal(size=(5, 3)))


def quadratic(x, y):
    return 1.0 + (x @ y.mT).square()


KERNELS = [RBF(0.5), RBF("median"), Laplace(0.7), Exponential(2.0), Identity(), quadratic]
EVALUATORS = (
    [WeightedSoftmaxTD(kernel, 30, 0.8) for kernel in KERNELS]
    + [KernelTD(kernel, 30) for kernel in [*KERNELS, Linear(), ReLU()]]
    + [TabularTD(30)]
    + [constructions.weighted_softmax_td(RBF(0.5), 30, form=form) for form in ("dual_head", "temporal_shift")]
    + [constructions.kernel_td(Laplace(0.7), 30, form=form) for form in ("dual_head", "temporal_shift")]
)


def close(found, expected, tolerance=1e-12):
    assert found.dtype == expected.dtype
    scale = expected.abs().max().clamp(min=1.0)
    torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1), (40, 2), (3, 25, 2), (2, 2, 9, 1)])
def test_rows_are_grouped_as_by_comparing_them(shape, dtype):
    rows = torch.as_tensor(RNG.integers(-1, 2, size=shape)).to(dtype)
    rows[..., 0, 0] = -0.0
    groups = group_rows(rows)
    assert groups.group.shape == shape[:-1]
    for table, group, first, count in zip(
        rows.reshape(-1, *shape[-2:]),
        groups.group.reshape(-1, shape[-2]),
        groups.first.reshape(-1, groups.first.shape[-1]),
        groups.counts.flatten(),
        strict=True,
    ):
        points = [tuple(row) for row in table.tolist()]
        seen = list(dict.fromkeys(points))
        assert [seen.index(point) for point in points] == group.tolist()
        assert int(count) == len(seen)
        assert first[: len(seen)].tolist() == [points.index(point) for point in seen]


def test_a_collision_of_hashes_is_found_out(monkeypatch):
    monkeypatch.setattr("icrl_agents.distinct._hashes", lambda rows: torch.zeros(len(rows), dtype=torch.long))
    rows = torch.as_tensor(RNG.integers(3, size=(2, 30, 2))).double()
    found = group_rows(rows)
    monkeypatch.undo()
    assert all(torch.equal(a, b) for a, b in zip(found, group_rows(rows), strict=True))


def test_a_collision_in_one_context_is_found_beside_one_without_equal_states(monkeypatch):
    rows = torch.stack([torch.tensor([[1.0], [2.0], [2.0]]), torch.tensor([[4.0], [5.0], [6.0]])])
    monkeypatch.setattr("icrl_agents.distinct._hashes", lambda _: torch.tensor([0, 0, 0, 0, 1, 2]))
    found = group_rows(rows)
    assert found.group.tolist() == [[0, 1, 1], [0, 1, 2]]
    assert found.counts.tolist() == [2, 3]


def test_one_hot_states_have_hashes_of_their_own():
    eye = torch.eye(500, dtype=torch.float64)
    assert group_rows(torch.cat([eye, eye])).counts == 500
    assert torch.equal(distinct_rows(torch.cat([eye, eye])), torch.unique(eye, dim=0))
    assert median_distance(torch.cat([eye, eye, eye])) == 2**0.5


def test_rows_that_are_not_read_are_copies_of_one_that_is():
    rows = torch.arange(8.0).reshape(2, 4, 1)
    read = torch.tensor([[False, True, False, True], [False] * 4])
    assert fill_rows(rows, read)[..., 0].tolist() == [[1.0, 1.0, 1.0, 3.0], [1.0] * 4]
    assert fill_rows(rows, torch.zeros_like(read)) is rows


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize("evaluator", EVALUATORS, ids=lambda e: type(e).__name__)
def test_values_are_those_of_the_plain_route(evaluator, context, monkeypatch):
    compressed = evaluator.fit(context)
    assert isinstance(weighted(context), WeightedContext)
    for module in ("evaluators.iteration", "transformer"):
        monkeypatch.setattr(f"icrl_agents.{module}.weighted", lambda context: context)
    plain = evaluator.fit(context)
    close(compressed.by_depth(QUERIES), plain.by_depth(QUERIES))
    close(compressed.by_depth(context.points), plain.by_depth(context.points))
    close(compressed.effective_sample_size(QUERIES), plain.effective_sample_size(QUERIES))
    close(compressed.td_errors(context), plain.td_errors(context))


def test_a_full_forward_pass_is_compressed_too():
    for transformer in EVALUATORS[-4:]:
        for context in CONTEXTS.values():
            close(transformer(context, QUERIES), transformer.fit(context)(QUERIES))


@pytest.mark.parametrize("name", ["several episodes", "left padding"])
def test_gradients_are_those_of_the_plain_route(name, monkeypatch):
    def gradients():
        kernel, context = RBF(0.5).requires_grad_(True), CONTEXTS[name]
        rewards = context.rewards.clone().requires_grad_(True)
        states = context.states.clone().requires_grad_(True)
        learning = Context(states, rewards, context.discounts, context.next_states, context.mask, context.contiguous)
        loss = WeightedSoftmaxTD(kernel, 6).fit(learning)(QUERIES).square().sum()
        fixed = Context(context.states, rewards, context.discounts, context.next_states, context.mask)
        loss = loss + KernelTD(kernel, 6).fit(fixed)(QUERIES).square().sum()
        return torch.autograd.grad(loss, [*kernel.parameters(), rewards, states])

    found = gradients()
    monkeypatch.setattr("icrl_agents.evaluators.iteration.weighted", lambda context: context)
    for gradient, expected in zip(found, gradients(), strict=True):
        close(gradient, expected, 1e-10)


def test_contexts_are_left_alone_where_nothing_is_gained():
    distinct = Context.from_episodes([Episode(RNG.normal(size=(301, 2)), RNG.normal(size=300))], 0.9)
    assert weighted(distinct) is distinct
    short = walk(weighted_context.SMALLEST - 1)
    assert weighted(short) is short
    assert isinstance(weighted(short, always=True), WeightedContext)


def cosine(x, y):
    """Undefined at 0."""
    return 1.0 + (x @ y.mT) / (x.norm(dim=-1, keepdim=True) * y.norm(dim=-1)[..., None, :])


@pytest.mark.parametrize("padding", ["left", "right"])
def test_a_kernel_that_is_singular_at_zero_never_meets_the_padding(padding):
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)

    def kernel(x, y):
        return cosine(scale * x, y)

    contexts = [walk(5, 2), walk(3)]
    batch = Context.stack(contexts, padding)
    transformer = constructions.weighted_softmax_td(kernel, 5)
    expected = torch.stack([WeightedSoftmaxTD(kernel, 5).fit(context)(QUERIES) for context in contexts])
    for values in (WeightedSoftmaxTD(kernel, 5).fit(batch)(QUERIES), transformer(batch, QUERIES)):
        close(values, expected)
        (gradient,) = torch.autograd.grad(values.sum(), scale, retain_graph=True)
        assert bool(torch.isfinite(gradient))
    close(KernelTD(kernel, 5).fit(batch)(QUERIES)[0], KernelTD(kernel, 5).fit(contexts[0])(QUERIES))


@pytest.mark.parametrize(
    "evaluator",
    [
        KernelLSTD(RBF(1.0)),
        KernelLSTD(Laplace(1.0), normalise=True),
        MonteCarlo(RBF(1.0)),
        LinearTD(20),
        TDLambda(0.7, 20),
        ResidualGradient(20),
        constructions.linear_td(3, 20),
    ],
)
def test_an_episode_30_000_times_has_its_values_in_seconds(evaluator):
    once = Context.from_episodes([Episode(STATES[[0, 1, 0, 2, 2]], np.array([1.0, -2.0, 0.5, 3.0]), True)], 0.9)
    parts = (once.states, once.rewards, once.discounts, once.next_states)
    many = Context(*(torch.cat([part] * 30_000) for part in parts))  # all pairs of transitions would take 10¹¹ bytes
    close(evaluator.fit(many)(QUERIES), evaluator.fit(once)(QUERIES), 1e-10)


@pytest.mark.slow
def test_a_million_transitions_between_ten_states_take_a_second():
    context, seconds = walk(1_000_000, states=np.eye(10)), []
    for _ in range(3):
        start = time.process_time()
        value = TabularTD(40).fit(context)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 1.0
    rows = context.states.argmax(-1)
    means = torch.stack([value.td_errors(context)[rows == s].mean() for s in range(10)])
    assert float(means.abs().max()) < 0.9**38


def test_monte_carlo_values_of_a_million_transitions_between_few_states_are_their_mean_returns():
    """Asked at all transitions, which would take hours if each were a key."""
    rng = np.random.default_rng(3)
    visited, n = rng.integers(0, 10, 1_000_001), 1_000_000
    table, discounts = rng.normal(size=(10, 3)), np.where(np.arange(n) % 1_000 == 999, 0.0, 0.9)
    context = Context(table[visited[:-1]], rng.normal(size=n), discounts, table[visited[1:]])
    returns = context.returns()[0].numpy()
    means = np.array([returns[visited[:-1] == s].mean() for s in range(10)])
    found = MonteCarlo().fit(context)(context.states).numpy()
    np.testing.assert_allclose(found, means[visited[:-1]], rtol=0, atol=1e-12)
