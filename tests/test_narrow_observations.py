"""Observations that float32 has rounded, in the float64 contexts that collecting makes of them."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from icrl_agents.collection import collect, collect_episodes
from icrl_agents.context import Context
from icrl_agents.control.features import standardising
from icrl_agents.diagnostics import relative_centred_msve
from icrl_agents.episode import Episode
from icrl_agents.evaluators import MonteCarlo, TabularTD
from icrl_agents.ground_truth import nearest
from icrl_agents.magnitudes import resolution
from icrl_agents.studies.evaluate.features import Standardisation


class WithNorm(gym.ObservationWrapper):
    """Pendulum, and cos² + sin² of its angle."""

    def __init__(self):
        super().__init__(gym.make("Pendulum-v1"))
        self.observation_space = spaces.Box(-8, 8, (4,), np.float32)

    def observation(self, observation):
        return np.append(observation, observation[0] ** 2 + observation[1] ** 2).astype(np.float32)


def test_what_is_constant_but_for_rounding_to_float32_is_0_when_standardised():
    episodes = collect_episodes(WithNorm(), num_steps=150, seed=0)
    context, x = Context.from_episodes(episodes, 0.9), np.concatenate([each.observations for each in episodes])
    assert 0 < x[:, 3].astype(float).std() < 1e-7
    for rows in (
        standardising(context)(context.points),
        standardising(context.to(dtype=torch.float32))(context.points),
    ):
        assert bool((rows[:, 3] == 0).all())
        assert (rows.std(0, correction=0)[:3] - 1).abs().max() < 0.05
    standardised = np.concatenate([each.observations for each in Standardisation(episodes)(episodes)])
    assert (standardised[:, 3] == 0).all()
    np.testing.assert_allclose(standardised[:, :3].std(0), 1.0)
    np.testing.assert_array_equal(nearest(x), nearest(x[:, :3]))
    apart = np.random.default_rng(0).normal(size=(50, 1)) * [1.0, 1e-8] + [0.0, 1.0]  # which double precision tells
    assert (
        np.abs(Standardisation([Episode(apart, np.zeros(49))])([Episode(apart, np.zeros(49))])[0].observations).min()
        > 0
    )


def test_large_whole_numbers_that_differ_little_are_not_constant():
    x = np.random.default_rng(0).permutation(50)[:, None] % 2 + 1e7
    episode = Episode(x, np.zeros(49))
    assert np.abs(Standardisation([episode])([episode])[0].observations).min() > 0.5
    assert (x[nearest(x)] == x).all()
    assert standardising(Context.from_episodes([episode], 0.9))(torch.as_tensor(x)).abs().min() > 0.5


class Line(gym.Env):
    """Walks along tenths, summed in single precision, to one side or to and fro."""

    observation_space, action_space = spaces.Box(-99, 99, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = np.zeros(1, np.float32), 0
        return self.place.copy(), {}

    def step(self, action):
        self.steps += 1
        self.place += np.float32(0.1) if action else np.float32(-0.1)
        return self.place.copy(), 1.0, False, self.steps == 15, {}


@pytest.mark.parametrize("evaluator", [TabularTD(50), MonteCarlo()])
def test_tabular_values_of_sums_in_single_precision_are_told_of(evaluator):
    context = collect(Line(), num_episodes=3, gamma=0.9, seed=0, policy=lambda x, rng: 1)
    value = evaluator.fit(context)
    with pytest.warns(UserWarning, match="some equal a state of the context but for rounding"):
        value(np.array([[k / 10] for k in range(15)], np.float32))
    value(context.states)
    with pytest.warns(UserWarning, match="that was visited, or count as two; round both alike"):
        evaluator.fit(collect(Line(), num_episodes=20, gamma=0.9, seed=0))(context.states[:1])


def test_targets_that_are_equal_but_for_rounding_to_float32_have_no_scale():
    targets = torch.nextafter(torch.full((9,), 0.1), torch.tensor([-1.0, 0.0, 1.0] * 3)).double()
    assert relative_centred_msve(targets + 1, targets).isnan()
    assert not relative_centred_msve(targets + 1, torch.linspace(0, 1, 9).double()).isnan()


def test_whole_targets_that_differ_little_have_a_scale():
    targets = 1e6 + np.arange(3.0)
    assert float(relative_centred_msve(targets + np.array([0.0, 0.1, 0.0]), targets)) == pytest.approx(
        1 / 300, rel=1e-6
    )


def test_numbers_that_half_precision_holds_were_not_rounded():
    single, double = (torch.finfo(kind).eps for kind in (torch.float32, torch.float64))
    columns = torch.tensor([[0.5, 0.1, np.float32(0.1), 1e6], [1.0, 0.2, np.float32(0.2), 0.5]], dtype=torch.float64)
    assert resolution(columns).tolist() == [[double, double, single, double]]
    assert resolution(columns.float()).tolist() == [[single] * 4]
    grid, steps = torch.arange(50, dtype=torch.float64)[:, None] % 9 * 0.25 + 500_000.25, torch.zeros(0, 1)
    assert resolution(grid).tolist() == [[double]]
    assert resolution((grid + 0.1).float().double()).tolist() == [[single]]
    assert resolution(steps).tolist() == [[single]]


def test_large_numbers_of_states_are_not_taken_for_rounded_ones():
    numbers = torch.arange(1e6, 1e6 + 50, dtype=torch.float32)[:, None]
    rewards = torch.ones(49, dtype=torch.float32)
    values = TabularTD(5).fit(Context(numbers[:-1], rewards, 0.5 * rewards, numbers[1:]))
    assert float(values(numbers[:1])[0]) == 1.9375
    with pytest.warns(UserWarning, match="states: some equal a state of the context but for rounding"):
        values(numbers[:1] + 0.0625)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_states_that_are_near_others_by_chance_are_not_told_of_however_many_there_are(dtype):
    states = np.random.default_rng(0).uniform(size=(8_001, 1)).astype(np.float32).astype(dtype)
    rewards = np.ones(8_000, dtype)
    assert float(MonteCarlo().fit(Context(states[:-1], rewards, 0.5 * rewards, states[1:]))(states[:500]).min()) > 1.0
