import copy
import math
import pickle
from contextlib import nullcontext
from typing import cast

import pytest
import torch

from icrl_agents.attention import KernelAttention, SoftmaxAttention
from icrl_agents.kernel_matrix import stable_step_size
from icrl_agents.kernels import (
    RBF,
    DotProduct,
    Exponential,
    Identity,
    Laplace,
    Linear,
    ProductLaplace,
    ReLU,
    median_distance,
)

SCALES = torch.tensor([0.5, 2.0, 1.25], dtype=torch.float64)
LOPSIDED = torch.tensor([[0.5, 0.2, 0.0], [-0.3, 0.1, 0.4], [0.0, 0.7, -0.2]], dtype=torch.float64)


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def scaled(x, y, scales):
    return math.sqrt(sum(((a - b) / s) ** 2 for a, b, s in zip(x, y, scales, strict=True)))


def bilinear(x, y):
    return sum(x[i] * LOPSIDED[i][j].item() * y[j] for i in range(3) for j in range(3))


# Every test runs over all kernels: (name, kernel, the same in plain Python, symmetric, positive semi-definite).
KERNELS = [
    ("rbf", RBF(0.7), lambda x, y: math.exp(-(scaled(x, y, [0.7] * 3) ** 2) / 2), True, True),
    ("rbf_each", RBF(SCALES), lambda x, y: math.exp(-(scaled(x, y, SCALES.tolist()) ** 2) / 2), True, True),
    ("laplace", Laplace(0.7), lambda x, y: math.exp(-scaled(x, y, [0.7] * 3)), True, True),
    ("laplace_each", Laplace(SCALES), lambda x, y: math.exp(-scaled(x, y, SCALES.tolist())), True, True),
    ("identity", Identity(), lambda x, y: float(x == y), True, True),
    ("exponential", Exponential(2.0), lambda x, y: math.exp(dot(x, y) / 2.0), True, True),
    ("linear", Linear(), dot, True, True),
    ("relu", ReLU(), lambda x, y: max(0.0, dot(x, y)), True, False),
    ("bilinear", DotProduct(LOPSIDED), lambda x, y: math.exp(bilinear(x, y)), False, False),
    ("dot_product", DotProduct(torch.eye(3)), lambda x, y: math.exp(dot(x, y)), True, True),
]
each_kernel = pytest.mark.parametrize(
    ("kernel", "formula", "symmetric", "semi_definite"), [k[1:] for k in KERNELS], ids=[k[0] for k in KERNELS]
)


def states(*shape, seed=0):
    return torch.randn(*shape, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(left, right, tolerance=1e-12):
    torch.testing.assert_close(left, torch.as_tensor(right, dtype=left.dtype), rtol=tolerance, atol=tolerance)


@each_kernel
def test_a_kernel_equals_its_formula(kernel, formula, symmetric, semi_definite):
    x = states(6)
    y = torch.cat([states(4, seed=1), x[:2]])
    expected = [[formula(a, b) for b in y.tolist()] for a in x.tolist()]
    close(kernel(x, y), expected)
    if hasattr(kernel, "score"):
        close(kernel.score(x, y), [[math.log(k) if k > 0 else -math.inf for k in row] for row in expected])
    close(kernel(x.float(), y.float()), expected, 1e-4)
    assert kernel(x.float(), y.float()).dtype == torch.float32
    far = x + 1e6
    if isinstance(kernel, (RBF, Laplace)):
        close(kernel(far, far), kernel(x, x), 1e-6)


@each_kernel
def test_a_kernel_is_symmetric_and_positive_semi_definite(kernel, formula, symmetric, semi_definite):
    x = torch.cat([states(10), states(10)[:3]])
    gram = kernel(x, x)
    assert torch.allclose(gram, gram.mT, atol=1e-14) == symmetric
    if semi_definite:
        assert torch.linalg.eigvalsh(gram).min() > -1e-10 * gram.abs().max()


@each_kernel
def test_batches_broadcast(kernel, formula, symmetric, semi_definite):
    x, y = states(2, 4, 5), states(7, seed=1)
    gram = kernel(x, y)
    assert gram.shape == (2, 4, 5, 7)
    for i in range(2):
        for j in range(4):
            close(gram[i, j], kernel(x[i, j], y))
    close(kernel(y, x), torch.stack([torch.stack([kernel(y, x[i, j]) for j in range(4)]) for i in range(2)]))
    assert kernel(x[..., :0, :], y).shape == (2, 4, 0, 7)


@each_kernel
def test_gradients_are_finite_and_right_even_where_states_coincide(kernel, formula, symmetric, semi_definite):
    x = states(4).requires_grad_(True)
    y = torch.cat([x.detach()[:2], states(3, seed=1)])
    total = kernel(x, y).sum()
    if not isinstance(kernel, Identity):
        (gradient,) = torch.autograd.grad(total, x)
        assert torch.isfinite(gradient).all()
        assert torch.autograd.gradcheck(lambda x: kernel(x, y[2:]), x)
    weights = SoftmaxAttention(kernel).bind(y, torch.ones(5, dtype=torch.bool)) if hasattr(kernel, "score") else None
    if weights is not None and not isinstance(kernel, Identity):
        (gradient,) = torch.autograd.grad(weights(x).square().sum(), x)
        assert torch.isfinite(gradient).all()


@each_kernel
def test_softmax_weights_are_the_normalised_kernel(kernel, formula, symmetric, semi_definite):
    keys, mask = states(6), torch.tensor([True, True, False, True, True, True])
    queries = torch.cat([states(3, seed=1), keys[:2]])
    gram = kernel(queries, keys)
    attention = SoftmaxAttention(kernel).bind(keys, mask)
    if isinstance(kernel, Linear):
        with pytest.raises(
            ValueError, match=r"kernel: softmax attention needs κ ≥ 0, got a negative value; use Kernel"
        ):
            attention(queries)
        return
    gram = gram * mask
    total = gram.sum(-1, keepdim=True)
    weights = attention(queries)
    close(weights, torch.where(total > 0, gram / total.clamp(min=1e-300), 0.0))
    close(weights.sum(-1), (total[:, 0] > 0).double())
    plain = SoftmaxAttention(lambda x, y: kernel(x, y)).bind(keys, mask)
    with pytest.warns(RuntimeWarning, match="kernel: is 0") if isinstance(kernel, Identity) else nullcontext():
        close(plain(queries), weights)


@each_kernel
def test_the_stable_step_size_is_one_over_the_largest_row_sum(kernel, formula, symmetric, semi_definite):
    keys, mask = states(2, 5), torch.tensor([[True] * 5, [True, False, True, True, False]])
    steps = stable_step_size(kernel, keys, mask)
    for b in range(2):
        x = keys[b][mask[b]].tolist()
        close(steps[b], 1 / max(sum(abs(formula(a, c)) for a in x) for c in x))
    weights = KernelAttention(kernel).bind(keys, mask)(keys)
    close(weights, steps[:, None, None] * kernel(keys, keys) * mask[:, None, :])
    close(KernelAttention(kernel, 0.25).bind(keys, mask)(keys), 0.25 * kernel(keys, keys) * mask[:, None, :])


def test_identity_gives_states_never_visited_no_weight():
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    weights = SoftmaxAttention(Identity()).bind(keys, torch.tensor([True, True, True]))
    with pytest.warns(UserWarning, match="equal a state of the context but for rounding, so that"):
        found = weights(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1e-30]]))
    close(found, [[0.5, 0, 0.5], [0, 1, 0], [0, 0, 0]])
    silent = KernelAttention(ReLU()).bind(-keys, torch.tensor([True, True, True]))(keys)
    close(silent, torch.zeros(3, 3))
    assert stable_step_size(ReLU(), torch.zeros(3, 2), torch.ones(3, dtype=torch.bool)) == 1


def test_softmax_stays_finite_where_every_kernel_value_underflows():
    keys = states(5)
    mask = torch.ones(5, dtype=torch.bool)
    for kernel in (RBF(1e-3), Laplace(1e-3), DotProduct(1e6 * torch.eye(3)), Exponential(1e-6)):
        for dtype in (torch.float32, torch.float64):
            weights = SoftmaxAttention(kernel).bind(keys.to(dtype), mask)((10 * states(4, seed=1)).to(dtype))
            close(weights.sum(-1), torch.ones(4), 1e-6)


def oracle_median(points):
    distinct = [point for i, point in enumerate(points) if point not in points[:i]]
    distances = sorted(scaled(a, b, [1.0] * 3) for i, a in enumerate(distinct) for b in distinct[:i])
    return distances[(len(distances) - 1) // 2] if distances else 1.0


@pytest.mark.parametrize(
    "points",
    [
        states(9),
        torch.cat([states(4), states(1).expand(20, 3)]),
        states(1).expand(50, 3),
        states(1),
        states(0),
        torch.cat([states(5)] * 3),
    ],
    ids=["distinct", "mostly_equal", "equal", "one", "none", "tripled"],
)
@pytest.mark.parametrize("kind", [RBF, Laplace])
def test_the_median_length_scale_counts_each_state_once(points, kind):
    expected = oracle_median(points.tolist())
    close(median_distance(points), expected)
    fixed, median = kind(expected), kind("median")
    queries = states(4, seed=2)
    close(median(queries, points), fixed(queries, points))
    padded = torch.cat([points, torch.full((3, 3), 1e30, dtype=torch.float64)])
    mask = torch.arange(len(padded)) < len(points)
    close(median_distance(padded, mask), expected)
    close(median.bind(padded, mask)(queries, points), fixed(queries, points))
    batch = torch.stack([padded, states(len(padded), seed=3)])
    masks = torch.stack([mask, torch.ones_like(mask)])
    close(median_distance(batch, masks), [expected, oracle_median(batch[1].tolist())])
    close(median.bind(batch, masks)(queries, batch)[0, :, : len(points)], fixed(queries, points))


def test_the_median_of_many_states_is_taken_of_a_thousand_of_them():
    many = states(5_000)
    close(median_distance(many), median_distance(many[::5]), 0.05)
    order = torch.randperm(5_000, generator=torch.Generator().manual_seed(0))
    assert median_distance(torch.cat([many, many])[torch.cat([order, 5_000 + order])]) == median_distance(many)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_kernel_bound_to_keys_gives_what_it_gives_unbound(dtype):
    keys, others = states(2, 7).to(dtype), states(2, 7, seed=1).to(dtype)
    queries, mask = states(2, 4, seed=2).to(dtype), torch.ones(2, 7, dtype=torch.bool)
    for kernel in (RBF(0.7), RBF(torch.tensor([0.5, 1.0, 2.0])), RBF(1e-5)):
        bound = kernel.bind(keys, mask)
        for points in (keys, others, keys.clone()):
            assert torch.equal(bound(queries, points), kernel(queries, points))


@pytest.mark.parametrize("trained", ["scale", "keys"])
def test_a_bound_kernel_passes_gradients(trained):
    keys, queries, kernel = states(6), states(4, seed=1), RBF(0.7)
    given = cast(torch.Tensor, kernel.length_scale) if trained == "scale" else keys
    given.requires_grad_(True)
    bound = kernel.bind(keys, torch.ones(6, dtype=torch.bool))
    (found,) = torch.autograd.grad(bound(queries, keys).square().sum(), [given])
    scale = given if trained == "scale" else 0.7
    kappa = torch.exp(-torch.cdist(queries / scale, keys / scale).square() / 2)
    (expected,) = torch.autograd.grad(kappa.square().sum(), [given])
    close(found, expected)


def test_keys_that_need_a_gradient_only_later_get_it():
    keys, queries = states(6), states(4, seed=1)
    bound = RBF(0.7).bind(keys, torch.ones(6, dtype=torch.bool))
    keys.requires_grad_(True)
    (found,) = torch.autograd.grad(bound(queries, keys).square().sum(), [keys])
    (expected,) = torch.autograd.grad(RBF(0.7)(queries, keys).square().sum(), [keys])
    assert found.abs().max() > 0
    close(found, expected)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(
    "kernel", [RBF(0.7), Laplace(0.7), ProductLaplace(SCALES), Exponential(0.7), DotProduct(SCALES.diag())]
)
def test_bound_attention_keeps_the_weights_that_it_was_bound_with(kernel, trained):
    kernel, keys, queries = copy.deepcopy(kernel).requires_grad_(trained), states(6), states(4, seed=1)
    (weight,) = kernel.parameters()
    attention = SoftmaxAttention(kernel).bind(keys, torch.ones(6, dtype=torch.bool))
    before = attention(queries)
    gradient = torch.autograd.grad(before.square().sum(), [weight])[0] if trained else torch.ones(())
    assert (gradient != 0).any()
    with torch.no_grad():
        weight.mul_(2.0)
        assert torch.equal(attention(queries), before)
        assert not torch.allclose(SoftmaxAttention(kernel).bind(keys, attention.mask)(queries), before)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("scale", [1.0, 0.7, SCALES])
@pytest.mark.parametrize("centres", [(0.0, 25.0), (1e3, 1e3), (1e8, 1e8 + 64), (-1e8, -1e8)])
def test_radial_kernels_far_from_the_origin_or_the_mean_are_exact(centres, scale, dtype, tolerance):
    x, y = (torch.cat([states(9, seed=s) + c for c in centres]).to(dtype) for s in (1, 2))
    length = torch.as_tensor(scale, dtype=torch.float64).to(dtype).double()
    differences = (x.double()[:, None] - y.double()) / length
    scores = {RBF: -differences.square().sum(-1) / 2, Laplace: -differences.norm(dim=-1)}
    scores[ProductLaplace] = -differences.abs().sum(-1)
    for kind, score in scores.items():
        if kind is RBF or centres[0] != 0:  # of distances, those near the origin are rounded with their own units
            for kernel in (kind(scale), kind(scale).bind(y)):
                assert (kernel(x, y).double() - score.exp()).abs().max() < tolerance


def test_rbf_has_its_second_derivatives_at_the_keys_and_its_slope_beside_them():
    keys, w = states(12), states(12, seed=1)[:, 0]

    def value(kappa):
        return lambda x: (kappa(x[None], keys)[0] * w).sum()

    def direct(x, y):
        return torch.exp(-(x[:, None] - y).square().sum(-1) / 2)

    for key in keys:
        close(
            torch.autograd.functional.hessian(value(RBF()), key), torch.autograd.functional.hessian(value(direct), key)
        )
    beside = (keys + 1e-9 * states(12, seed=2)).requires_grad_(True)
    (slope,) = torch.autograd.grad(RBF()(beside, keys).diagonal().sum(), [beside])
    close(slope, keys - beside.detach(), 1e-14)


def test_trainable_parameters_get_gradients():
    x, y = states(4), states(5, seed=1)
    for kernel in (RBF(0.7), Laplace(SCALES), Exponential(2.0), DotProduct(LOPSIDED)):
        assert not any(p.requires_grad for p in kernel.parameters())
        kernel.requires_grad_(True)
        kernel(x, y).sum().backward()
        for parameter in kernel.parameters():
            assert parameter.grad is not None
            assert torch.isfinite(parameter.grad).all()
            assert (parameter.grad != 0).any()
        kernel.requires_grad_(False)
        kernel.zero_grad(set_to_none=True)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: RBF(0.0), ValueError, r"length_scale: expected a positive finite number, got 0.0"),
        (lambda: RBF(-1), ValueError, r"length_scale: expected a positive finite number, got -1"),
        (lambda: Laplace(float("nan")), ValueError, r"length_scale: expected a positive finite number, got nan"),
        (lambda: RBF([0.5, 0.0]), ValueError, r"length_scale: expected a positive finite number, got \[0.5, 0.0\]"),
        (lambda: RBF(torch.ones(0)), ValueError, r"length_scale: expected a positive finite number, got tensor"),
        (
            lambda: RBF([[0.1], [10.0]]),
            ValueError,
            r"length_scale: expected a number or a tensor \(d,\), got shape \(2, 1\)",
        ),
        (lambda: Exponential([1.0]), ValueError, r"temperature: expected one number, got shape \(1,\)"),
        (lambda: RBF("mean"), ValueError, r"length_scale: expected a number, a tensor \(d,\) or 'median', got 'mean'"),
        (lambda: RBF(True), TypeError, r"length_scale: expected real numbers, got True"),
        (lambda: RBF(None), TypeError, r"length_scale: expected a rectangular array of numbers, got NoneType"),
        (lambda: RBF(SCALES)(torch.ones(2, 1), torch.ones(2, 1)), ValueError, r"one number per state dim.* 1, got 3"),
        (lambda: Exponential(0.0), ValueError, r"temperature: expected a positive finite number, got 0.0"),
        (lambda: DotProduct(torch.ones(2, 3)), ValueError, r"matrix: expected a finite square matrix .* \(2, 3\)"),
        (lambda: DotProduct(torch.eye(3))(torch.ones(2, 2), torch.ones(2, 2)), ValueError, r"\(2, 2\) .* got \(3, 3\)"),
        (lambda: RBF(torch.tensor(0.6, requires_grad=True)), ValueError, r"length_scale: requires a gradient"),
        (lambda: DotProduct(torch.eye(2, requires_grad=True)), ValueError, r"matrix: requires a gradient"),
        (lambda: DotProduct(torch.full((2, 2), math.inf)), ValueError, r"matrix: expected a finite square matrix"),
        (
            lambda: SoftmaxAttention(RBF),
            TypeError,
            r"kernel: expected a kernel such as RBF\(0.5\) or a callable .* got",
        ),
        (lambda: KernelAttention("rbf"), TypeError, r"kernel: expected a kernel such as RBF\(0.5\)"),
        (lambda: KernelAttention(RBF(), "automatic"), ValueError, r"step_size: .* or 'auto', got 'automatic'"),
    ],
)
def test_a_bad_argument_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_callable_of_the_wrong_shape_is_refused_and_any_type_is_converted():
    keys, mask = states(5), torch.ones(5, dtype=torch.bool)
    for attention in (SoftmaxAttention, KernelAttention):
        with pytest.raises(ValueError, match=r"kernel: expected a tensor .* = \(\d, \d\), got \(\d, 1\)"):
            attention(lambda x, y: torch.ones(len(x), 1)).bind(keys, mask)(keys[:3])
        with pytest.raises(ValueError, match=r"kernel: expected a tensor .*, got float"):
            attention(lambda x, y: 1.0).bind(keys, mask)(keys)
        equal = attention(lambda x, y: (x[:, None] == y[None]).all(-1)).bind(keys, mask)
        close(equal(keys), torch.eye(5), 0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("attention", [SoftmaxAttention, KernelAttention])
def test_a_kernel_that_is_not_finite_is_named(attention, value):
    def spoilt(x, y):
        return torch.exp(-torch.cdist(x, y)).masked_fill((x[..., :1] > 100).expand(*x.shape[:-1], y.shape[-2]), value)

    bound = attention(spoilt).bind(states(5), torch.ones(5, dtype=torch.bool))
    assert bool(torch.isfinite(bound(states(3))).all())
    with pytest.raises(ValueError, match=r"kernel: gives NaN or overflows on these states; expected finite numbers"):
        bound(states(3) + 200)


def test_bound_attention_survives_pickling():
    for attention in (SoftmaxAttention(RBF(0.5)), SoftmaxAttention(torch.cdist), KernelAttention(Laplace("median"))):
        bound = attention.bind(states(5), torch.ones(5, dtype=torch.bool))
        assert torch.equal(pickle.loads(pickle.dumps(bound))(states(3)), bound(states(3)))
