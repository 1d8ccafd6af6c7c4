"""Episodes and contexts of one's own arrays: buffers that are filled anew, and flags in the place of discounts."""

import warnings
from collections import deque

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from icrl_agents.collection import collect_episodes
from icrl_agents.compressed import CompressedContexts
from icrl_agents.context import Context
from icrl_agents.episode import Episode


@pytest.mark.parametrize("of", [np.asarray, torch.as_tensor])
def test_a_buffer_that_is_filled_anew_for_each_episode_changes_none_before(of):
    states, rewards, actions = np.zeros((4, 1)), np.zeros(3), np.zeros((3, 1))
    episodes = []
    for first in range(3):
        states[:, 0] = first + np.arange(4.0)
        rewards[:], actions[:] = first, first
        length = 3 - first
        episodes.append(Episode(of(states)[: length + 1], of(rewards)[:length], False, of(actions)[:length]))
    context = Context.from_episodes(episodes, 0.9)
    assert context.states[:, 0].tolist() == [0.0, 1.0, 2.0, 1.0, 2.0, 2.0]
    assert context.rewards.tolist() == [0.0, 0.0, 0.0, 1.0, 1.0, 2.0]
    assert [float(episode.actions[0, 0]) for episode in episodes] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("kind", [list, deque])
def test_lists_that_are_cleared_and_appended_to_anew_change_no_episode_before(kind):
    observations, rewards, actions, episodes = kind(), kind(), kind(), []
    for first in range(3):
        for each in (observations, rewards, actions):
            each.clear()
        observations.append(state := np.array([first]) * 1.0)
        for step in range(2):
            observations.append(np.array([first + step + 1.0]))
            rewards.append(float(first))
            actions.append([step])
        episodes.append(Episode(observations, rewards, False, actions))
        state[:] = 99.0
    context = Context.from_episodes(episodes, 0.9)
    assert context.states[:, 0].tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 3.0]
    assert context.rewards.tolist() == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    assert [len(episode.actions) for episode in episodes] == [2, 2, 2]


def test_one_array_that_was_appended_again_and_again_is_told_of():
    state, observations = np.zeros(1), []
    for _ in range(4):
        state += 1.0
        observations.append(state)
    with pytest.warns(UserWarning, match="observations: one ndarray, 4 times, .* append a copy of each"):
        Episode(observations, np.ones(3))
    Episode([each.copy() for each in observations], np.ones(3))


@pytest.mark.parametrize("kept", [torch.from_numpy, np.ravel, lambda state: state[:], lambda state: state])
def test_views_of_one_array_tuples_of_it_and_contexts_of_it_are_told_of_too(kept):
    state, observations = np.zeros(1), []
    for _ in range(4):
        state += 1.0
        observations.append(kept(state))
    with pytest.warns(UserWarning, match="observations: one .*, 4 times"):
        Episode(tuple(observations), np.ones(3))
    with pytest.warns(UserWarning, match="states: one .*, 3 times"):
        Context(observations[:-1], [1.0] * 3, [0.9] * 3, observations[1:])
    table = np.eye(3)
    Episode([table[0], table[0]], [1.0])  # a row of a table that an environment has


def test_a_tuple_of_arrays_is_kept_as_it_was():
    first, second = np.zeros(1), np.ones(1)
    episode = Episode((first, second), (1.0,))
    second[:] = 9.0
    assert Context.from_episodes([episode], 0.9).next_states.tolist() == [[1.0]]


def test_an_episode_of_a_tensor_with_a_gradient_passes_it_on():
    rows = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    Context.from_episodes([Episode(rows, np.ones(3))], 0.9).states.sum().backward()
    assert rows.grad.tolist() == [[1.0, 1.0]] * 3 + [[0.0, 0.0]]


class Frames(gym.Env):
    """Shows its last 32 vectors of 32 numbers."""

    observation_space, action_space = spaces.Box(-1.0, 1.0, (32, 32)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((32, 32), np.float32), {}

    def step(self, action):
        return np.zeros((32, 32), np.float32), 0.0, False, False, {}


def test_stacked_vectors_that_look_like_a_picture_have_a_way_out():
    with pytest.raises(ValueError, match=r"gymnasium\.wrappers\.FlattenObservation where they are no picture"):
        collect_episodes(Frames(), num_steps=2, seed=0)
    (episode,) = collect_episodes(gym.wrappers.FlattenObservation(Frames()), num_steps=2, seed=0)
    assert episode.observations.shape == (3, 1024)


def chain(ends):
    """Three episodes of five steps; ``ends (15,)`` of floats to discounts."""
    steps = np.arange(15)
    states = np.where(steps % 5 == 0, 0, steps)[:, None].astype(float)
    following = (steps + 1)[:, None].astype(float)
    return Context(states, np.ones(15), ends((steps % 5 == 4).astype(float)), following)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_flags_of_ends_in_the_place_of_discounts_are_told_of(gamma):
    with pytest.warns(
        RuntimeWarning, match=r"discounts: 0 in 12 transitions that the next row continues, .*γ \* \(1 - "
    ):
        chain(lambda ends: gamma * ends)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chain(lambda ends: gamma * (1 - ends))
        chain(np.zeros_like)  # a mean of rewards
        chain(lambda ends: np.full_like(ends, gamma))


def test_tensors_that_are_filled_anew_change_no_compressed_contexts():
    ones = torch.ones(1, 2, dtype=torch.float64)
    arrays = ones[..., None].clone(), ones.clone(), torch.tensor([[0, 1, 0]]), 0.5 * ones
    contexts = CompressedContexts(*arrays)
    for each in arrays:
        each.fill_(0)
    assert contexts.counts.tolist() == [[1.0, 1.0]]
    assert contexts.context.rewards.tolist() == [[1.0, 1.0]]
    assert contexts.points.tolist() == [[[1.0], [1.0]]]
