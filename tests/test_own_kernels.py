"""Kernels of one's own that are no function of two states, or whose parts contradict each other."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from icrl_agents.context import Context
from icrl_agents.control import Critic
from icrl_agents.episode import Episode
from icrl_agents.evaluators import KernelTD, MonteCarlo, Nystrom, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, Laplace


class Bound(nn.Module):
    """Binds itself, as it is."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).double()

    def bind(self, keys, mask):
        return self

    def forward(self, x, y):
        return RBF(0.5)(self.features(x), self.features(y))


def test_what_a_kernel_binds_for_a_context_is_a_function_of_two_states_too():
    kernel, rng = Bound(), np.random.default_rng(0)
    context = Context.from_episodes([Episode(rng.normal(size=(20, 2)), np.ones(19))], 0.9)
    with pytest.raises(ValueError, match="kernel: gives the same states other numbers"):
        WeightedSoftmaxTD(kernel, 5).fit(context)
    WeightedSoftmaxTD(kernel.eval(), 5).fit(context)


class Deep(RBF):
    """Overrides forward alone, and so keeps the score of states as they are."""

    def __init__(self):
        super().__init__(0.5)
        self.features = nn.Linear(2, 2).double()

    def forward(self, x, y):
        return super().forward(self.features(x), self.features(y))


class Whole(Deep):
    """Overrides the score, which forward exponentiates."""

    forward = RBF.forward

    def score(self, x, y):
        return super().score(self.features(x), self.features(y))

    def _expanded(self, x, y, factor=1.0):
        return None


def test_a_kernel_whose_score_is_not_the_logarithm_of_what_it_gives_is_refused():
    torch.manual_seed(0)
    context = Context.from_episodes([Episode(np.random.default_rng(0).normal(size=(9, 2)), np.ones(8))], 0.9)
    for evaluator in (WeightedSoftmaxTD, KernelTD):
        with pytest.raises(ValueError, match="kernel: its score is not the logarithm of what it gives"):
            evaluator(Deep(), 5).fit(context)
    kernel = Whole()
    plain = WeightedSoftmaxTD(lambda x, y: RBF(0.5)(kernel.features(x), kernel.features(y)), 5).fit(context)
    value = WeightedSoftmaxTD(kernel, 5).fit(context)
    expected = plain(context.states)
    torch.testing.assert_close(value(context.states), expected)
    with torch.no_grad():
        kernel.features.weight.mul_(2.0)
    torch.testing.assert_close(value(context.states), expected)


@pytest.mark.parametrize("inference", [False, True])
def test_a_kernel_that_writes_into_the_states_is_refused(inference):
    states = np.arange(5.0)[:, None] - 2.0
    context, rectified = Context(states, np.ones(5), np.full(5, 0.9), states), nn.ReLU(inplace=True)
    before = context.points.clone()
    with torch.inference_mode(inference), pytest.raises(ValueError, match="kernel: writes into the states"):
        KernelTD(lambda x, y: RBF()(rectified(x), rectified(y)), 5).fit(context)
    assert torch.equal(context.points, before)


class Features(nn.Module):
    """An RBF of features; of a subclass, of other ones."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = list(layers)  # which is no nn.ModuleList

    def forward(self, x, y):
        return RBF(0.5)(self.of(x), self.of(y))

    def of(self, states):
        for layer in self.layers:
            states = layer(states)
        return states


class Running(nn.Module):
    """Scales by the mean of all states that it was ever shown."""

    def __init__(self, count):
        super().__init__()
        self.count, self.mean = count, torch.zeros(2, dtype=torch.float64)

    def forward(self, x):
        self.count += x.shape[-2]
        self.mean = self.mean + (x - self.mean).sum(-2) / self.count
        return x * (1.0 + self.mean)


def random_context(n=9):
    rng = np.random.default_rng(0)
    return Context.from_episodes([Episode(rng.normal(size=(n + 1, 2)), rng.normal(size=n))], 0.9)


def test_modules_in_a_list_are_kept_as_they_were_at_the_fit():
    torch.manual_seed(0)
    kernel, context = Features(nn.Linear(2, 3).double(), nn.Tanh()), random_context()
    value = WeightedSoftmaxTD(kernel, 5).fit(context)
    expected = value(context.states)
    weight = kernel.layers[0].weight
    assert float(torch.autograd.grad(expected.sum(), weight)[0].abs().sum()) > 0
    with torch.no_grad():
        weight.mul_(2.0)
    torch.testing.assert_close(value(context.states), expected)


@pytest.mark.parametrize("count", [1e3, 1e6])
def test_a_normaliser_that_goes_on_counting_is_refused_however_much_it_has_seen(count):
    with pytest.raises(ValueError, match="kernel: gives the same states other numbers"):
        WeightedSoftmaxTD(Features(Running(count)), 5).fit(random_context())


@pytest.mark.parametrize("n", [2, 3])
def test_a_width_of_the_states_asked_about_is_refused_in_the_shortest_contexts(n):
    def kernel(x, y):
        return RBF(float(torch.cdist(x, x).max()) + 0.1)(x, y)

    with pytest.raises(ValueError, match="kernel: gives the same states other numbers"):
        WeightedSoftmaxTD(kernel, 5).fit(random_context(n))


class Scaled(RBF):
    """A score with one weight more."""

    def __init__(self):
        super().__init__(0.5)
        self.factor = nn.Parameter(torch.tensor(4.0, dtype=torch.float64))

    def score(self, x, y):
        return self.factor * super().score(x, y)

    def forward(self, x, y):
        return torch.exp(self.score(x, y))


def test_a_kernel_that_inherits_one_may_have_weights_of_its_own():
    kernel, context = Scaled(), random_context()
    value = WeightedSoftmaxTD(kernel, 5).fit(context)
    expected = WeightedSoftmaxTD(RBF(0.25), 5).fit(context)(context.states)
    torch.testing.assert_close(value(context.states), expected)
    assert float(torch.autograd.grad(value(context.states).sum(), kernel.factor)[0].abs()) > 0


def test_weights_of_another_type_and_ones_not_initialised_are_refused_with_the_way_out():
    context = random_context()
    for evaluator in (WeightedSoftmaxTD(Features(nn.Linear(2, 3)), 5), MonteCarlo(Features(nn.Linear(2, 3)))):
        with pytest.raises(TypeError, match=r"kernel: does not take states of torch.float64 .*\.double\(\)"):
            evaluator.fit(context)
    with pytest.raises(TypeError, match=r"features: does not take states of torch.float64"):
        Critic(KernelTD(RBF(), 5), features=nn.Linear(2, 3)).assess(context)
    with pytest.raises(ValueError, match="not initialised yet, as of LazyLinear"):
        KernelTD(Features(nn.LazyLinear(3)), 5).fit(context)


def test_a_kernel_of_tables_has_the_landmarks_of_one_of_batches():
    def tables(x, y):
        return torch.exp(-2.0 * (x[:, None] - y[None]).square().sum(-1))

    rng = np.random.default_rng(0)
    episodes = [Episode(np.append(rng.normal(size=9), 3.0)[:, None], rng.normal(size=9)) for _ in range(5)]
    context = Context.from_episodes(episodes, 0.9)
    found, expected = (WeightedSoftmaxTD(k, 9, approximation=Nystrom(14)).fit(context) for k in (tables, RBF(0.5)))
    torch.testing.assert_close(found(context.states), expected(context.states), rtol=1e-5, atol=1e-5)
    assert found.approximation_error == pytest.approx(expected.approximation_error, rel=1e-3)


class Scored(nn.Module):
    """A Gaussian kernel of one's own, with the logarithm that keeps it from becoming 0."""

    def score(self, x, y):
        return -torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square() / (2 * 0.1**2)

    def forward(self, x, y):
        return self.score(x, y).exp()


@pytest.mark.parametrize(("dtype", "distance"), [(torch.float32, 1.4), (torch.float64, 4.0)])
def test_a_kernel_that_underflows_is_told_of_where_it_loses_the_value_of_the_nearest_states(dtype, distance):
    context = Context.from_episodes([Episode(np.linspace(0.0, 0.4, 20)[:, None], np.ones(19))], 0.9).to(dtype=dtype)
    far, kernel = torch.tensor([[0.4 + distance]], dtype=dtype), Scored()
    value = WeightedSoftmaxTD(kernel.forward, 20).fit(context)
    with pytest.warns(RuntimeWarning, match=r"kernel: is 0, or all but 0, between 1 states .* a method score"):
        value(far)
    scored, own = (WeightedSoftmaxTD(each, 20).fit(context)(far) for each in (kernel, RBF(0.1)))
    torch.testing.assert_close(scored, own)
    assert float(scored) > 1.0
    value(torch.tensor([[0.3]], dtype=dtype))
    batch = Context.stack([context, Context.from_episodes([Episode([[0.3], [0.4]], [1.0])], 0.9).to(dtype=dtype)])
    away = Context(batch.states + 9.0, batch.rewards, batch.discounts, batch.next_states + 9.0, batch.mask)
    WeightedSoftmaxTD(kernel.forward, 20).fit(
        away
    )  # its padding is far from its states, and no state that is asked for


def around(kernel):
    """The kernel of the distance around a circle."""

    class Around(kernel):
        def distance(self, x, y, p=2.0):
            gaps = (x[..., :, None, :] - y[..., None, :, :]).abs().sum(-1)
            return torch.minimum(gaps, 2 * math.pi - gaps) / self.length_scale

    return Around(0.5)


@pytest.mark.parametrize(("kernel", "score"), [(RBF, lambda d: -d * d / 2), (Laplace, lambda d: -d)])
def test_a_distance_of_ones_own_is_that_of_the_kernel(kernel, score):
    x = torch.tensor([[0.05], [2 * math.pi - 0.05]], dtype=torch.float64)
    expected = torch.tensor(0.2, dtype=torch.float64)
    torch.testing.assert_close(around(kernel).score(x[:1], x[1:])[0, 0], score(expected))
    torch.testing.assert_close(around(kernel)(x[:1], x[1:])[0, 0], score(expected).exp())
    context = Context(x, [1.0, 0.0], [0.9, 0.9], x.flip(0))
    found = WeightedSoftmaxTD(around(kernel), 4).fit(context)(x)
    torch.testing.assert_close(found, WeightedSoftmaxTD(lambda a, b: around(kernel)(a, b), 4).fit(context)(x))
