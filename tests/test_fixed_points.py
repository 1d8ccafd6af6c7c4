"""The limit L → ∞ by one system, or by Anderson acceleration, against plain sweeps."""

import math

import numpy as np
import pytest
import torch

from icrl_agents import blockwise
from icrl_agents.context import Context
from icrl_agents.diagnostics import spectral_radius
from icrl_agents.divergence import DivergenceError
from icrl_agents.episode import Episode
from icrl_agents.error_dynamics import spectral_radius as radius_of
from icrl_agents.evaluators import LSTD, KernelLSTD, KernelTD, Nystrom, TabularTD, WeightedSoftmaxTD
from icrl_agents.evaluators.fixed_points import gmres
from icrl_agents.kernels import RBF, DotProduct, Identity, Laplace, ProductLaplace

RNG = np.random.default_rng(0)
QUERIES = torch.as_tensor(RNG.normal(size=(5, 2)))


def draw(*lengths, terminated=()):
    return Context.from_episodes(
        [Episode(RNG.normal(size=(n + 1, 2)), RNG.normal(size=n), i in terminated) for i, n in enumerate(lengths)], 0.9
    )


SEVERAL = draw(12, 1, 7, terminated=(2,))
CONTEXTS = {
    "several": SEVERAL,
    "repeated": Context.concatenate([SEVERAL, SEVERAL, draw(3)]),
    "padded": Context.stack([SEVERAL, draw(4), Context(np.zeros((0, 2)), [], [], np.zeros((0, 2)))], "left"),
}
CASES = [
    lambda depth: WeightedSoftmaxTD(Laplace(0.3), depth),
    lambda depth: WeightedSoftmaxTD(RBF(0.2), depth, 0.7),
    lambda depth: KernelTD(Laplace(0.4), depth),
    lambda depth: KernelTD(RBF(0.2), depth, 0.3),
    TabularTD,
]


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize("held", [True, False], ids=["solved", "accelerated"])
@pytest.mark.parametrize("case", CASES)
def test_the_limit_is_that_of_the_sweeps(case, held, context, monkeypatch):
    expected = case(2_000).fit(context)(QUERIES)
    if not held:
        monkeypatch.setattr(blockwise, "LARGEST_MATRIX", 0)
    found = case(math.inf).fit(context)
    assert found.max_depth == 0
    torch.testing.assert_close(found(QUERIES), expected, rtol=1e-7, atol=1e-7)


def test_the_limit_of_a_tabular_context_is_lstd_and_of_kernels_kernel_lstd():
    path, eye = RNG.integers(5, size=301), np.eye(5)
    context = Context.from_episodes([Episode(eye[path], RNG.normal(size=300))], 0.99)
    for evaluator in (TabularTD(math.inf), WeightedSoftmaxTD(RBF(0.6), math.inf), KernelTD(Identity(), math.inf)):
        torch.testing.assert_close(evaluator.fit(context)(eye), LSTD().fit(context)(eye), rtol=1e-9, atol=1e-9)
    found = WeightedSoftmaxTD(Laplace(0.3), math.inf).fit(SEVERAL)(QUERIES)
    torch.testing.assert_close(found, KernelLSTD(Laplace(0.3), normalise=True).fit(SEVERAL)(QUERIES), rtol=1e-9, atol=0)


def test_the_limit_is_differentiable_in_the_rewards():
    rewards = SEVERAL.rewards.clone().requires_grad_(True)
    context = Context(SEVERAL.states, rewards, SEVERAL.discounts, SEVERAL.next_states)
    values = WeightedSoftmaxTD(Laplace(0.3), math.inf).fit(context)(QUERIES)
    (gradient,) = torch.autograd.grad(values.sum(), rewards)
    assert float(gradient @ SEVERAL.rewards) == pytest.approx(float(values.detach().sum()))


@pytest.mark.parametrize("padding", ["left", "right"])
def test_the_gradient_of_a_limit_does_not_depend_on_whether_the_kernel_is_held(padding, monkeypatch):
    kernel, rng = Laplace(0.5).requires_grad_(True), np.random.default_rng(0)
    context = Context.stack([SEVERAL, draw(6, terminated=(0,))], padding)
    parts = [getattr(context, name).clone() for name in ("states", "rewards", "discounts", "next_states")]
    leaves = [*(part.requires_grad_(True) for part in parts), *kernel.parameters()]
    gradients = []
    for case in (CASES[0], CASES[2]):
        evaluator, weights = type(case(1))(kernel, math.inf), torch.as_tensor(rng.normal(size=(2, 5)))
        for largest in (2**31, 0):
            monkeypatch.setattr(blockwise, "LARGEST_MATRIX", largest)
            values = evaluator.fit(Context(*parts, mask=context.mask))(QUERIES)
            gradients.append(torch.autograd.grad((weights * values).sum(), leaves))
    for expected, found in zip((*gradients[0], *gradients[2]), (*gradients[1], *gradients[3]), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7)


def test_gradients_of_gradients_of_a_limit_are_refused_where_its_kernel_is_not_held(monkeypatch):
    monkeypatch.setattr(blockwise, "LARGEST_MATRIX", 0)
    rewards = SEVERAL.rewards.clone().requires_grad_(True)
    context = Context(SEVERAL.states, rewards, SEVERAL.discounts, SEVERAL.next_states)
    value = WeightedSoftmaxTD(Laplace(0.3), math.inf).fit(context)(QUERIES).sum()
    with pytest.raises(NotImplementedError, match="num_sweeps=inf: there are no gradients of gradients"):
        torch.autograd.grad(value, rewards, create_graph=True)


def test_a_krylov_space_has_the_solution_after_as_many_products_as_there_are_unknowns():
    A = torch.as_tensor(np.eye(8) - 0.3 * RNG.normal(size=(8, 8)) / 8**0.5)
    b, calls = torch.as_tensor(RNG.normal(size=8)), []

    def product(w):
        calls.append(1)
        return A @ w

    torch.testing.assert_close(gmres(product, b), torch.linalg.solve(A, b), rtol=1e-9, atol=1e-9)
    assert len(calls) <= 12


@pytest.mark.parametrize(("gamma", "dtype", "largest"), [(0.99, np.float64, 1e-9), (0.99, np.float32, 3e-6)])
def test_a_limit_does_not_depend_on_whether_the_kernel_is_held(gamma, dtype, largest, monkeypatch):
    rng, n = np.random.default_rng(0), 150
    x = np.cumsum(0.2 * rng.standard_normal((n + 1, 2)), axis=0).astype(dtype)
    discounts = np.full(n, gamma, dtype=dtype)
    discounts[n // 3] = 0
    context = Context(x[:-1], rng.standard_normal(n).astype(dtype), discounts, x[1:])
    evaluator = WeightedSoftmaxTD(ProductLaplace(0.1), math.inf)
    expected = evaluator.fit(context)(x)
    monkeypatch.setattr(blockwise, "LARGEST_MATRIX", 0)
    found = evaluator.fit(context)(x)
    assert found.dtype == expected.dtype
    assert float((found - expected).abs().max() / expected.abs().max()) < largest


def loop(gamma):
    return Context(np.eye(4), np.ones(4), np.full(4, gamma), np.eye(4)[[1, 2, 3, 0]])


def test_no_limit_is_an_error():
    with pytest.raises(DivergenceError, match=r"num_sweeps=inf: the sweeps have no limit .*spectral radius 1.375"):
        TabularTD(math.inf, 1.25).fit(loop(0.9))
    with pytest.raises(ValueError, match=r"num_sweeps=inf: the limit is not determined, .* 4 distinct states"):
        TabularTD(math.inf).fit(loop(1.0))
    with pytest.raises(ValueError, match="a kernel too wide for the distances between states; take a narrower kernel"):
        WeightedSoftmaxTD(RBF(1e5), math.inf).fit(SEVERAL)


def test_no_limit_is_found_where_there_is_none(monkeypatch):
    monkeypatch.setattr(blockwise, "LARGEST_MATRIX", 0)
    with pytest.raises(DivergenceError, match=r"no limit found; after \d+ steps TD errors are still"):
        TabularTD(math.inf).fit(loop(1.0))


@pytest.mark.parametrize("sweeps", [-math.inf, math.nan, 2.0])
def test_other_floats_are_no_depth(sweeps):
    with pytest.raises(ValueError, match="num_sweeps: expected an integer ≥ 0"):
        TabularTD(sweeps)
    with pytest.raises(ValueError, match="num_sweeps: expected a finite depth with an approximation, got inf"):
        WeightedSoftmaxTD(RBF(), math.inf, approximation=Nystrom())


def test_attention_of_states_that_hardly_hear_each_other_has_a_limit():
    """Entries of 1e-153 and 1e-199 kept LAPACK's eigenvalues from converging."""
    states, following = [[-0.13134901], [0.45910929], [-1.25054334]], [[1.38123879], [1.19683395], [1.73431525]]
    context = Context(states, [1.0, 2.0, 3.0], [1.0, 0.0, 0.9], following)
    value = KernelTD(RBF(0.042169650342858224), math.inf).fit(context)
    torch.testing.assert_close(value(states), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))


def test_the_radius_of_many_states_is_found_where_a_constant_is_an_eigenvector():
    x = 1.5 * torch.randn(301, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rewards = torch.randn(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    context = Context(x[:-1], rewards, torch.full((300,), 0.9).double(), x[1:])  # more states than have a spectrum
    kernel = DotProduct(torch.eye(8))
    assert float(spectral_radius(context, kernel)) == pytest.approx(1.00704, abs=1e-5)
    with pytest.raises(DivergenceError, match=r"spectral radius 1\.0070"):
        WeightedSoftmaxTD(kernel, math.inf).fit(context)


@pytest.mark.parametrize(
    ("scale", "n", "gamma", "radius"),
    [(2.0, 257, 0.9, 1.0015125), (2.0, 400, 0.5, 1.0007565), (1.5, 400, 0.5, 0.9999004), (1.5, 300, 0.5, 0.9998708)],
)
def test_a_radius_near_1_is_told_from_1(scale, n, gamma, radius):
    x = scale * torch.randn(n + 1, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    context = Context(x[:-1], torch.ones(n).double(), torch.full((n,), gamma).double(), x[1:])
    evaluator = WeightedSoftmaxTD(DotProduct(torch.eye(8)), math.inf)
    if radius < 1:
        evaluator.fit(context)
    else:
        with pytest.raises(DivergenceError, match=f"spectral radius {radius:.6g}"):
            evaluator.fit(context)


@pytest.mark.parametrize("small", [1e-4, 1e-9, 1e-12])
def test_the_limit_of_a_context_does_not_depend_on_its_batch(small):
    rng = np.random.default_rng(0)
    maps = [torch.as_tensor(np.eye(60) - 0.9 * rng.dirichlet(np.ones(60), size=60)) for _ in "ab"]
    right = torch.as_tensor(rng.normal(size=(2, 60)) * [[1.0], [small]])
    system = torch.stack(maps)
    expected = torch.linalg.solve(system, right)
    found = gmres(lambda w: (system @ w[..., None])[..., 0], right)
    assert float(((found - expected).norm(dim=-1) / expected.norm(dim=-1)).max()) < 1e-9


@pytest.mark.parametrize("unit", [1e-300, 1e-170, 1e200])
def test_a_limit_has_the_unit_of_its_rewards_and_a_radius_that_of_its_operator(unit, monkeypatch):
    x = np.random.default_rng(0).normal(size=(61, 2))
    evaluator = WeightedSoftmaxTD(RBF(0.2), math.inf)
    monkeypatch.setattr(blockwise, "LARGEST_MATRIX", 0)
    found = [evaluator.fit(Context(x[:-1], u * x[:-1, 0], np.full(60, 0.9), x[1:]))(x) / u for u in (1.0, unit)]
    assert float(found[0].abs().max()) > 0.1
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-8)
    operator = torch.as_tensor(np.random.default_rng(1).normal(size=(300, 300)) / 20)
    expected = float(torch.linalg.eigvals(operator).abs().max())
    assert radius_of(unit * operator) / unit == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    "case", [lambda: WeightedSoftmaxTD(RBF(0.5), math.inf), lambda: KernelTD(Laplace(0.5), math.inf)]
)
def test_the_limit_of_states_that_are_visited_again_and_have_a_gradient(case):
    rng = np.random.default_rng(0)
    visits, rewards = torch.as_tensor(rng.integers(0, 4, size=13)), torch.as_tensor(rng.normal(size=12))
    table, step = torch.as_tensor(rng.normal(size=(4, 2))), torch.as_tensor(rng.normal(size=(4, 2)))

    def value(table):
        x = table[visits]
        return case().fit(Context(x[:-1], rewards, 0.9 * torch.ones(12), x[1:]))(QUERIES).sum()

    found = value(moving := table.clone().requires_grad_(True))
    torch.testing.assert_close(found.detach(), value(table), rtol=1e-9, atol=1e-9)
    slope = (torch.autograd.grad(found, moving)[0] * step).sum()
    difference = (value(table + 1e-6 * step) - value(table - 1e-6 * step)) / 2e-6
    torch.testing.assert_close(slope, difference, rtol=1e-5, atol=1e-6)
