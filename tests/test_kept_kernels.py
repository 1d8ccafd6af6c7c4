"""What a kernel of one's own is kept with, wherever its weights are."""

import copy
import dataclasses
import pickle
from collections import defaultdict, deque, namedtuple
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrize import register_parametrization

from icrl_agents.context import Context
from icrl_agents.control import Critic
from icrl_agents.episode import Episode
from icrl_agents.evaluators import KernelLSTD, KernelTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, DotProduct, Exponential, Laplace, ProductLaplace


def random_context():
    rng = np.random.default_rng(0)
    return Context.from_episodes([Episode(rng.normal(size=(10, 2)), rng.normal(size=9))], 0.9)


class Kept(nn.Module):
    """Features of a network that is reached in one way or another; ``reach`` gives what is kept beside it."""

    def __init__(self, reach):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(2, 3).double()
        self.way = reach(self)

    def embedded(self, x):
        return self.net(x)

    def forward(self, x, y):
        way = self.way if callable(self.way) else self.way[0]
        return RBF(0.5)(way(x), way(y))


Pair = namedtuple("Pair", ["net", "name"])


@pytest.mark.parametrize(
    "reach",
    [
        lambda module: module.embedded,
        lambda module: partial(nn.functional.linear, weight=module.net.weight),
        lambda module: deque([module.net]),
        lambda module: Pair(module.net, "net"),
        lambda module: defaultdict(list, {0: module.net}),
        lambda module: (cycle := [module.net], cycle.append(cycle))[0],
    ],
    ids=["bound method", "partial", "deque", "named tuple", "default dictionary", "cycle"],
)
def test_weights_in_containers_and_bound_methods_are_kept_as_they_were_at_the_fit(reach):
    kernel, context = Kept(reach), random_context()
    value = WeightedSoftmaxTD(kernel, 5).fit(context)
    expected = value(context.states)
    assert float(torch.autograd.grad(expected.sum(), kernel.net.weight)[0].abs().sum()) > 0
    with torch.no_grad():
        kernel.net.weight.mul_(2.0)
    torch.testing.assert_close(value(context.states), expected)


class Apart:
    """Holds a network, and is no module."""

    def __init__(self, net):
        self.net = net

    def __call__(self, x):
        return self.net(x)


@pytest.mark.parametrize("reach", [lambda m: lambda x: m.net(x), lambda m: Apart(m.net)], ids=["closure", "object"])
def test_weights_that_cannot_be_kept_are_told_of(reach):
    with pytest.warns(UserWarning, match="kernel: has weights in a function or in an object that is no nn.Module"):
        WeightedSoftmaxTD(Kept(reach), 5).fit(random_context())
    with pytest.warns(UserWarning, match="features: has weights in a function"):
        Critic(KernelTD(RBF(), 5), features=nn.Sequential(Through(reach(Kept(reach))))).assess(random_context())


class Through(nn.Module):
    """Applies a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_an_error_that_speaks_of_types_is_passed_on_where_no_other_type_helps():
    def kernel(x, y):
        raise RuntimeError("unknown type of kernel")

    with pytest.raises(RuntimeError, match=r"^unknown type of kernel\nkernel: fails on states of shape .*$"):
        WeightedSoftmaxTD(kernel, 5).fit(random_context())


@pytest.mark.parametrize("temperature", [-0.1, 0.0])
def test_a_temperature_that_training_has_left_below_0_is_refused(temperature):
    kernel = Exponential(0.05).requires_grad_(True)
    optimiser = torch.optim.SGD(kernel.parameters(), lr=1.0)
    (kernel.temperature * (0.05 - temperature)).backward()
    optimiser.step()
    for evaluator in (WeightedSoftmaxTD(kernel, 3), KernelTD(kernel, 3)):
        with pytest.raises(ValueError, match="temperature: expected a positive number, got"):
            evaluator.fit(random_context())


@pytest.mark.parametrize("kind", [RBF, Laplace, ProductLaplace])
@pytest.mark.parametrize("scale", [0.0, float("nan"), float("inf")])
def test_a_length_scale_that_training_has_spoilt_is_named(kind, scale):
    kernel = kind(0.3)
    kernel.length_scale.data.fill_(scale)
    context = Context([[0.0], [1.0]], [1.0, 1.0], [0.9, 0.9], [[1.0], [2.0]])
    with pytest.raises(ValueError, match="length_scale: expected finite numbers that are not 0, got"):
        WeightedSoftmaxTD(kernel, 3).fit(context)


@pytest.mark.parametrize("evaluator", [WeightedSoftmaxTD, KernelTD])
def test_a_deep_copy_has_the_gradients_of_the_original_and_a_pickle_its_values(evaluator):
    kernel, given = RBF(0.5).requires_grad_(True), random_context()
    states = given.states.clone().requires_grad_()
    context = Context(states, given.rewards, given.discounts, given.next_states)
    values = evaluator(kernel, 5).fit(context).offset_corrected()
    queries = given.states + 0.1
    for other in (copy.deepcopy(values), copy.deepcopy([values])[0]):
        sources = [kernel.length_scale, states]
        found, expected = (torch.autograd.grad(v(queries).sum(), sources, retain_graph=True) for v in (other, values))
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert other.context.states.data_ptr() != values.context.states.data_ptr()
    read = pickle.loads(pickle.dumps(values))
    torch.testing.assert_close(read(queries), values(queries), rtol=0, atol=0)
    torch.testing.assert_close(copy.deepcopy(context).next_states, context.next_states, rtol=0, atol=0)


class Softplus(nn.Module):
    def forward(self, raw):
        return nn.functional.softplus(raw)

    def right_inverse(self, scale):
        return torch.log(torch.expm1(scale))


@pytest.mark.parametrize("evaluator", [WeightedSoftmaxTD, KernelTD])
@pytest.mark.parametrize("kernel", [RBF(0.4), Laplace(0.4), DotProduct(torch.tensor([[0.4]]))])
def test_a_weight_that_torch_parametrises_is_kept_as_it_was_at_the_fit(kernel, evaluator):
    kernel, plain = copy.deepcopy(kernel).double(), copy.deepcopy(kernel).double()
    name = next(iter(kernel._parameters))
    register_parametrization(kernel, name, Softplus())
    raw = kernel.parametrizations[name].original.requires_grad_()
    context = Context([[0.0], [1.0]], [1.0, 0.0], [0.9, 0.0], [[1.0], [2.0]])
    value, expected = evaluator(kernel, 3).fit(context), evaluator(plain, 3).fit(context)([[0.5]])
    value([[0.5]]).sum().backward()
    assert raw.grad.abs().sum() > 1e-3
    with torch.no_grad():
        raw += 1.0
    torch.testing.assert_close(value([[0.5]]), expected, rtol=0, atol=1e-12)


class Rescaled:
    """Finds its width in each context, and binds itself."""

    def bind(self, keys, mask):
        self.width = keys.std()
        return self

    def __call__(self, x, y):
        return torch.exp(-torch.cdist(x / self.width, y / self.width).square())


@pytest.mark.parametrize("evaluator", [WeightedSoftmaxTD, KernelTD])
def test_a_kernel_that_binds_itself_is_kept_as_it_was_at_the_fit(evaluator):
    kernel, rng = Rescaled(), np.random.default_rng(0)
    states = torch.tensor(rng.normal(size=(20, 2)))
    near, far = (Context.from_episodes([Episode(scale * states, np.ones(19))], 0.9) for scale in (1.0, 20.0))
    value = evaluator(kernel, 5).fit(near)
    before = value(states)
    evaluator(kernel, 5).fit(far)
    assert torch.equal(value(states), before)


@pytest.mark.parametrize("kept", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("evaluator", [WeightedSoftmaxTD(RBF(0.5), 5), KernelLSTD(RBF(0.5), ridge=1e-6)])
def test_a_kernel_that_gives_a_narrower_type_than_that_of_the_states_is_refused(evaluator, kept):
    context = Context([[0.0], [1.0]], [1.0, 0.0], [0.9, 0.9], [[1.0], [0.0]])
    for kernel in (lambda x, y: RBF(0.5)(x.float(), y.float()).to(kept), lambda x, y: RBF(0.5)(x, y).to(kept)):
        rounding = dataclasses.replace(evaluator, kernel=kernel)
        with pytest.raises(TypeError, match=f"kernel: gives {kept} for states of torch.float64, which rounds"):
            rounding.fit(context)
    equal = dataclasses.replace(evaluator, kernel=lambda x, y: (x[..., :, None, :] == y[..., None, :, :]).all(-1))
    assert torch.isfinite(equal.fit(context)([[0.0]])).all()  # what is no floating number rounds nothing
