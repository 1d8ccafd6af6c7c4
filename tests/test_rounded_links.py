"""Next states that are the next row's states but for rounding, as an encoder gives them that is asked for both."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agents import Context, Episode, collect, kernels
from icrl_agents.adaptive.folds import folds, subset
from icrl_agents.evaluators import LSTD, MonteCarlo, TabularTD, TDLambda

STEPS, GAMMA = 30, 0.9


def encoded(dtype, rounded=True):
    """Parts of a context of three trajectories, its next states a unit in the last place off, and its returns."""
    rng = np.random.default_rng(0)
    walks = torch.tensor(np.cumsum(rng.normal(size=(3, STEPS + 1, 2)), 1), dtype=dtype)
    rewards = torch.zeros(3, STEPS, dtype=dtype)
    rewards[:, -1] = 1.0
    after = torch.nextafter(walks[:, 1:], torch.tensor(torch.inf, dtype=dtype)) if rounded else walks[:, 1:]
    discounts = torch.full_like(rewards, GAMMA)
    discounts[:, -1] = 0.0
    parts = walks[:, :-1].flatten(0, 1), rewards.flatten(), discounts.flatten(), after.flatten(0, 1)
    return parts, torch.tensor([GAMMA ** (STEPS - 1 - k) for k in range(STEPS)] * 3, dtype=torch.float64)


def contiguous():
    return (torch.arange(3 * STEPS) + 1) % STEPS > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_links_that_rounding_hides_are_told_of(dtype):
    (states, rewards, discounts, after), _ = encoded(dtype)
    for wider in (rewards, rewards.double()):  # which promotes float32 states
        with pytest.warns(RuntimeWarning, match=rf"next_states: {3 * (STEPS - 1)} differ .* by rounding alone"):
            context = Context(states, wider, discounts, after)
        assert not bool(context.contiguous.any())
    Context(*encoded(dtype, rounded=False)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_told_to_continue_may_differ_by_rounding(dtype):
    parts, returns = encoded(dtype)
    context = Context(*parts, contiguous=contiguous())
    torch.testing.assert_close(context.returns()[0].double(), returns, atol=1e-6, rtol=0)
    assert torch.equal(context.next_states, parts[3]), "each keeps its own digits"
    right = Context(*encoded(dtype, rounded=False)[0])
    for evaluator in (MonteCarlo(kernels.Laplace(0.3)), TDLambda(0.9, num_sweeps=50), LSTD(ridge=0.1)):
        torch.testing.assert_close(evaluator.fit(context)(parts[0]), evaluator.fit(right)(parts[0]), atol=1e-5, rtol=0)
    for again in (
        Context.concatenate([context, context]),
        Context.stack([context, context], padding="left"),
        subset(context, folds(context, 3)[1]),
        context.to(dtype=torch.float64),
    ):
        assert int(again.contiguous.sum()) == int(again.mask.sum()) // STEPS * (STEPS - 1)


def test_an_encoder_that_is_asked_for_states_and_next_states():
    torch.manual_seed(0)
    layers = torch.nn.Linear(17, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8)
    encoder = torch.nn.Sequential(*layers).double().requires_grad_(False)
    walk = torch.tensor(np.cumsum(np.random.default_rng(0).normal(size=(STEPS + 1, 17)) * 0.1, 0))
    states, after = encoder(walk[:-1]), torch.cat([encoder(each[None]) for each in walk[1:]])
    rewards, discounts = torch.eye(STEPS, dtype=torch.float64)[-1], torch.full((STEPS,), GAMMA, dtype=torch.float64)
    told = Context(states, rewards, discounts, after, contiguous=torch.arange(STEPS) < STEPS - 1)
    right = Context.from_episodes([Episode(encoder(walk).numpy(), rewards.numpy())], GAMMA)
    torch.testing.assert_close(told.returns()[0], right.returns()[0], atol=1e-12, rtol=0)


def test_states_that_only_look_alike_are_no_continuation_and_not_told_of():
    count = 100
    base = torch.arange(count, dtype=torch.float64)
    for states, after in (
        (base[:, None] + 1e6, base[:, None] + 1e6 + 3),  # whole numbers, which float32 holds
        (1.7e9 + base[:, None] / 10, 1.7e9 + base[:, None] / 10 + 0.05),  # times in seconds
        (torch.stack([base, torch.sin(base)], -1), torch.stack([base + 1, torch.sin(base + 1) + 1e-9], -1)),
    ):
        context = Context(states, torch.ones(count), torch.full((count,), 0.9), after)
        assert not bool(context.contiguous.any())
        with pytest.raises(ValueError, match="contiguous: True where"):
            Context(states, torch.ones(count), torch.full((count,), 0.9), after, contiguous=torch.ones(count) > 0)
    pressures = [torch.stack([torch.full((count,), 101_325.5), column], -1) for column in (base.sin(), base.cos())]
    assert not bool(Context(pressures[0], torch.ones(count), torch.full((count,), 0.9), pressures[1]).contiguous.any())


def test_ends_that_are_told_or_terminate_are_not_told_of():
    (states, rewards, discounts, after), _ = encoded(torch.float64)
    Context(states, rewards, discounts, after, contiguous=torch.zeros(3 * STEPS, dtype=torch.bool))
    Context(states[:2], rewards[:2], torch.tensor([0.0, 0.9]), after[:2])


def test_a_restart_at_the_state_where_an_episode_came_to_rest_is_no_rounding():
    """Each episode is kicked away from the state where it starts, and comes back but for rounding until it is cut."""
    kicks, rest = np.random.default_rng(0).normal(size=(4, 1, 2)), np.array([1.0, 0.3])
    decay = np.concatenate([np.zeros(1), 0.8 ** np.arange(60)])[:, None]
    walks = torch.tensor(rest + kicks * decay, dtype=torch.float32)
    states, after = walks[:, :-1].flatten(0, 1), walks[:, 1:].flatten(0, 1)
    context = Context(states, torch.ones(240), torch.full((240,), GAMMA), after)
    assert (~context.contiguous).nonzero().flatten().tolist() == [59, 119, 179, 239]
    with pytest.warns(RuntimeWarning, match="next_states: 239 differ .* by rounding alone"):  # an encoder's, at rest
        Context(states * 0 + 1, torch.ones(240), torch.full((240,), GAMMA), torch.nextafter(states * 0 + 1, states[:1]))


def test_states_in_single_and_next_states_in_double_precision_are_told_of():
    rng = np.random.default_rng(1)
    walk = np.cumsum(rng.normal(size=(41, 3)), 0)
    with pytest.warns(RuntimeWarning, match="next_states: 39 differ .* by rounding alone"):
        Context(walk[:-1].astype(np.float32), np.ones(40), np.full(40, 0.9), walk[1:])
    Context(walk[:-1].astype(np.float32), np.ones(40), np.full(40, 0.9), walk[1:].astype(np.float32))


def test_numbers_beside_those_that_an_encoder_rounded_hide_nothing():
    """A column in float64, such as the time, says nothing of the others; one of whole numbers was not rounded."""
    (states, rewards, discounts, after), returns = encoded(torch.float32)
    time = (torch.arange(3 * STEPS + 1, dtype=torch.float64) / 10)[:, None]
    timed = [torch.cat([a.double(), t], -1) for a, t in ((states, time[:-1]), (after, time[1:]))]
    with pytest.warns(RuntimeWarning, match=rf"next_states: {3 * (STEPS - 1)} differ .* by rounding alone"):
        Context(timed[0], rewards, discounts, timed[1])
    told = Context(timed[0], rewards, discounts, timed[1], contiguous=contiguous())
    torch.testing.assert_close(told.returns()[0], returns, atol=1e-6, rtol=0)
    counted = [torch.cat([a.double(), 1e6 + 10 * t + 1], -1) for a, t in ((states, time[:-1]), (after, time[:-1]))]
    assert not bool(Context(counted[0], rewards, discounts, counted[1]).contiguous.any())
    with pytest.raises(ValueError, match="contiguous: True where"):
        Context(counted[0], rewards, discounts, counted[1], contiguous=contiguous())


class Ring(gym.Env):
    """Three places, one after the other, a reward of 1 for each step; cut after three."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, at_reset, at_step):
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.types, self.steps = (at_reset, at_step), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.array([0.3, 0.0], self.types[0]), {}

    def step(self, action):
        self.steps += 1
        return np.array([(0.3, 0.4, 0.5)[self.steps % 3], 0.0], self.types[1]), 1.0, False, self.steps == 3, {}


def test_an_environment_whose_reset_and_step_have_two_types_is_told_of():
    for types in ((np.float64, np.float32), (np.float32, np.float64)):
        with pytest.warns(RuntimeWarning, match="states: 1 are there in double precision and rounded to float32"):
            collect(Ring(*types), num_episodes=3, gamma=GAMMA, seed=0)
    for kind in (np.float32, np.float64):
        context = collect(Ring(kind, kind), num_episodes=3, gamma=GAMMA, seed=0)
        np.testing.assert_allclose(TabularTD(500).fit(context)(context.states), 10.0)


def test_episodes_and_contexts_of_two_types_are_told_of_where_states_meet():
    walk = np.cumsum(np.random.default_rng(2).normal(size=(6, 2)), 0)
    single, double = Episode(walk.astype(np.float32), np.ones(5)), Episode(walk, np.ones(5))
    with pytest.warns(RuntimeWarning, match="states: 6 are there in double precision and rounded to float32"):
        Context.from_episodes([single, double], GAMMA)
    parts = [Context.from_episodes([each], GAMMA) for each in (single, double)]
    with pytest.warns(RuntimeWarning, match="states: 6 are there in double precision and rounded to float32"):
        Context.concatenate(parts)
    Context.stack(parts)  # in contexts of their own they do not meet
    other = Episode(walk + 1e-3, np.ones(5))
    Context.from_episodes([single, other], GAMMA)


def test_states_near_a_round_number_are_no_rounding():
    towards = 0.5 + 0.5 ** np.arange(60.0)[:, None]  # ends on 0.5 itself
    Context.from_episodes([Episode(towards, np.ones(59))], GAMMA)
    Context.from_episodes([Episode(4_649_776.0 + np.arange(30.0)[:, None] / 8.1, np.ones(29))], GAMMA)
