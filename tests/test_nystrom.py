"""Landmarks in place of all transitions: exact where they are all of them, close and honest where they are not."""

import warnings

import numpy as np
import pytest
import torch

from icrl_agents.context import Context
from icrl_agents.divergence import DivergenceError
from icrl_agents.episode import Episode
from icrl_agents.evaluators import KernelTD, Nystrom, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, DotProduct, Laplace, Linear

pytestmark = pytest.mark.filterwarnings("ignore::icrl_agents.divergence.DivergenceWarning")
RNG = np.random.default_rng(0)
DIM = 3


def draw(*lengths, terminated=()):
    episodes = []
    for i, n in enumerate(lengths):
        x = np.cumsum(0.3 * RNG.normal(size=(n + 1, DIM)), axis=0)
        episodes.append(Episode(x / (1 + 0.1 * np.abs(x)), np.sin(x[:-1].sum(-1)), i in terminated))
    return Context.from_episodes(episodes, 0.9)


SMALL, LONG = draw(20, 9, 11, terminated=(1,)), draw(900, 400, terminated=(0,))
QUERIES = torch.as_tensor(RNG.normal(size=(6, DIM)))


def relative(found, expected):
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("context", [SMALL, Context.concatenate([SMALL, SMALL])], ids=["distinct", "repeated"])
@pytest.mark.parametrize(
    "make",
    [
        lambda **k: WeightedSoftmaxTD(Laplace(0.5), 25, 0.8, **k),
        lambda **k: KernelTD(Laplace(0.5), 25, **k),
        lambda **k: KernelTD(RBF(0.4), 25, 0.1, **k),
        lambda **k: KernelTD(Linear(), 25, **k),
    ],
)
def test_with_all_states_as_landmarks_it_is_exact_at_every_depth(make, context):
    expected = make().fit(context).by_depth(QUERIES)
    found = make(approximation=Nystrom(1_000)).fit(context)
    torch.testing.assert_close(found.by_depth(QUERIES), expected, rtol=1e-6, atol=1e-8)
    assert found.approximation_error < 1e-6
    assert found.at_depth(3).approximation_error == found.approximation_error
    assert make().fit(context).approximation_error is None


@pytest.mark.parametrize("evaluator", [WeightedSoftmaxTD, KernelTD])
@pytest.mark.parametrize("kernel", [RBF(1.5), RBF("median")])
def test_the_error_falls_with_the_landmarks_and_its_estimate_bounds_it(evaluator, kernel):
    expected, errors = evaluator(kernel, 30).fit(LONG)(LONG.states), []
    for landmarks in (10, 40, 160):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            found = evaluator(kernel, 30, approximation=Nystrom(landmarks)).fit(LONG)
        errors.append(relative(found(LONG.states), expected))
        assert errors[-1] < 2 * found.approximation_error + 1e-9
    assert errors[2] < 0.01
    assert errors[2] < errors[0]


def test_the_same_seed_gives_the_same_values_and_single_precision_stays():
    make = lambda seed: WeightedSoftmaxTD(RBF(1.5), 10, approximation=Nystrom(50, seed)).fit(LONG)(QUERIES)  # noqa: E731
    assert torch.equal(make(1), make(1))
    assert not torch.equal(make(1), make(2))
    single = WeightedSoftmaxTD(RBF(1.5), 10, approximation=Nystrom(50, 1)).fit(LONG.to(dtype=torch.float32))
    assert single(QUERIES.float()).dtype == torch.float32
    assert relative(single(QUERIES.float()).double(), make(1)) < 0.01


def test_a_large_error_is_a_warning():
    with pytest.warns(RuntimeWarning, match=r"approximation: estimated relative error .*; take more landmarks than 5"):
        WeightedSoftmaxTD(RBF(0.2), 30, approximation=Nystrom(5)).fit(LONG)


LOPSIDED = torch.eye(DIM) + torch.ones(DIM, DIM).triu(1)
MISTAKES = {
    "landmarks: expected an integer ≥ 1, got 0": lambda: Nystrom(0),
    "sample: expected an integer ≥ 1, got 2.5": lambda: Nystrom(sample=2.5),
    "expected one without batch dimensions": lambda: Nystrom().iterate(None, Context.stack([SMALL]), 1, 1.0),
    "needs a symmetric kernel": (
        lambda: WeightedSoftmaxTD(DotProduct(LOPSIDED), 3, approximation=Nystrom()).fit(SMALL)
    ),
    "positive semi-definite kernel": lambda: KernelTD(torch.cdist, 3, approximation=Nystrom()).fit(SMALL),
}


def with_final_observations_at(distance, length_scale):
    """States of size 1, every sixth transition truncated at a distance from all of them; values near 3."""
    states = torch.as_tensor(np.random.default_rng(4).normal(size=(61, 2)))
    after = states[1:].clone()
    after[::6] *= distance / after[::6].norm(dim=-1, keepdim=True)
    rewards = 1 + states[:-1, 0]
    return Context(states[:-1], rewards, torch.full_like(rewards, 0.7), after), RBF(length_scale)


@pytest.mark.parametrize("distance", [5.0, 15.0, 100.0])
@pytest.mark.parametrize("length_scale", [1.0, 3.0])
@pytest.mark.parametrize(("dtype", "largest"), [(torch.float64, 2e-4), (torch.float32, 3e-4)])
def test_final_observations_far_from_every_landmark_lose_no_digits(distance, length_scale, dtype, largest):
    context, kernel = with_final_observations_at(distance, length_scale)
    expected = WeightedSoftmaxTD(kernel, 30).fit(context)(context.states)
    context = context.to(dtype=dtype)
    found = WeightedSoftmaxTD(kernel, 30, approximation=Nystrom(100)).fit(context)(context.states)
    assert found.dtype == dtype
    assert relative(found.double(), expected) < largest


def test_an_error_at_final_observations_alone_is_a_warning_too():
    context, kernel = with_final_observations_at(
        5.0, 1.5
    )  # near enough to a landmark to go without columns of their own
    expected = WeightedSoftmaxTD(kernel, 30).fit(context)(context.states)
    with pytest.warns(RuntimeWarning, match="take more landmarks"):
        rough = WeightedSoftmaxTD(kernel, 30, approximation=Nystrom(20)).fit(context)
    assert rough.approximation_error is not None
    assert rough.approximation_error > relative(rough(context.states), expected) > 0.1


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named(message):
    with pytest.raises(ValueError, match=message):
        MISTAKES[message]()


def test_an_empty_context_has_the_value_0_as_without_landmarks():
    empty = Context(np.zeros((0, DIM)), [], [], np.zeros((0, DIM)))
    for make in (lambda **k: WeightedSoftmaxTD(RBF(), 4, **k), lambda **k: KernelTD(RBF(), 4, **k)):
        value = make(approximation=Nystrom(3)).fit(empty)
        assert value.max_depth == 4
        assert value.approximation_error == 0.0
        assert torch.equal(value(QUERIES), make().fit(empty)(QUERIES))


def test_what_is_no_approximation_is_refused():
    with pytest.raises(TypeError, match=r"approximation: expected Nystrom\(landmarks\) or None, got 500"):
        WeightedSoftmaxTD(RBF(), 3, approximation=500)


def test_as_many_landmarks_as_distinct_states_are_exact():
    states = torch.as_tensor(np.random.default_rng(1).normal(size=(6, DIM)))
    path = np.random.default_rng(2).integers(6, size=201)
    context = Context(states[path[:-1]], np.random.default_rng(3).normal(size=200), np.full(200, 0.9), states[path[1:]])
    exact = KernelTD(RBF(1.0), 30).fit(context)(states)
    found = KernelTD(RBF(1.0), 30, approximation=Nystrom(6)).fit(context)(states)
    assert relative(found, exact) < 1e-9


@pytest.mark.parametrize("more", [{"landmarks": 10**30}, {"sample": 10**15}])
def test_more_than_there_is_takes_what_there_is(more):
    found = WeightedSoftmaxTD(RBF(0.5), 5, approximation=Nystrom(**more)).fit(SMALL)
    expected = WeightedSoftmaxTD(RBF(0.5), 5).fit(SMALL)
    torch.testing.assert_close(found(SMALL.states), expected(SMALL.states), rtol=1e-6, atol=1e-6)
    assert found.approximation_error is not None
    assert found.approximation_error < 1e-6


def test_episodes_that_all_terminate_have_no_final_observation():
    context = draw(20, 9, terminated=(0, 1))
    found = WeightedSoftmaxTD(RBF(0.5), 5, approximation=Nystrom(100)).fit(context)(QUERIES)
    torch.testing.assert_close(found, WeightedSoftmaxTD(RBF(0.5), 5).fit(context)(QUERIES), rtol=1e-6, atol=1e-8)
    assert RBF(1.0)(torch.zeros(0, 3, 2), torch.zeros(0, 4, 2)).shape == (0, 3, 4)


@pytest.mark.parametrize("step_size", ["auto", 0.05])
def test_gradients_of_the_kernel_are_those_without_landmarks(step_size):
    gradients = []
    for approximation in (None, Nystrom(60)):
        kernel = Laplace(0.7).requires_grad_(True)
        KernelTD(kernel, 10, step_size, approximation).fit(SMALL)(QUERIES).square().sum().backward()
        assert kernel.length_scale is not None
        gradients.append(kernel.length_scale.grad)
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=0)


def test_values_that_leave_the_possible_ones_are_an_error_as_without_landmarks():
    rng, episodes = np.random.default_rng(0), []
    for _ in range(150):
        walk = 0.1 * rng.standard_normal((3, 2)).cumsum(0)
        walk[-1] += 3.0  # truncated far out, where all hangs on the nearest states
        episodes.append(Episode(walk, rng.standard_normal(2) + 1))
    context = Context.from_episodes(episodes, 0.95)
    for approximation in (None, Nystrom(1_000)):
        with pytest.raises(DivergenceError, match="values leave 10 times r_max"):
            WeightedSoftmaxTD(RBF(0.5), 60, approximation=approximation).fit(context)


def with_rare_rewards(seed, distance, n=1_500):
    """States in a square; 18 transitions lead far from it, to a small place whose six states have all the rewards."""
    rng = np.random.default_rng(seed)
    states = torch.as_tensor(rng.uniform(-1, 1, (n, 2)))
    after = (states + 0.1 * torch.as_tensor(rng.normal(size=(n, 2)))).clamp(-1, 1)
    states[:6], after[:24] = (distance + 0.05 * torch.as_tensor(rng.normal(size=(k, 2))) for k in (6, 24))
    rewards = (torch.arange(n) < 6).double()
    return Context(states, rewards, torch.full_like(rewards, 0.9), after)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("evaluator", [WeightedSoftmaxTD, KernelTD])
@pytest.mark.parametrize("distance", [1.5, 5.0])
def test_few_states_that_have_all_rewards_are_not_lost(seed, evaluator, distance):
    context = with_rare_rewards(seed, distance)
    expected = evaluator(RBF(0.3), 20).fit(context)(context.states)
    found = evaluator(RBF(0.3), 20, approximation=Nystrom(50, seed)).fit(context)
    assert relative(found(context.states), expected) < min(0.05, 2 * found.approximation_error)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("evaluator", [WeightedSoftmaxTD, KernelTD])
def test_more_rare_states_than_can_be_landmarks_are_a_warning(seed, evaluator):
    """Of 60 terminal states far from all others two have a reward, which landmarks and samples rarely have in them."""
    rng = np.random.default_rng(seed)
    states = torch.as_tensor(rng.uniform(-1, 1, (3_000, 2)))
    states[:60, 0] = 5 + 5 * torch.arange(60)  # the farthest become landmarks, not the first ones
    rewards, discounts = 1 + states[:, 1], torch.full((3_000,), 0.9)
    rewards[:2], rewards[2:60], discounts[:60] = 1_000.0, 0.0, 0.0
    context = Context(states, rewards, discounts.double(), states.roll(1, 0))
    with pytest.warns(RuntimeWarning, match="take more landmarks than 50"):
        found = evaluator(RBF(0.4), 20, approximation=Nystrom(50, seed)).fit(context)
    assert found.approximation_error is not None
    assert found.approximation_error > 0.5
