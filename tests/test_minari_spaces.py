"""Minari datasets: spaces whose columns they would give back in another order, and who may read them."""

import os
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from icrl_agents import collect_episodes
from icrl_agents.command_line import main
from icrl_agents.datasets import minari_episodes, write_minari_dataset

pytest.importorskip("minari")
h5py = pytest.importorskip("h5py")


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def test_keys_that_minari_would_sort_are_refused(root):
    class Goals(gym.Env):
        observation_space = spaces.Dict(observation=spaces.Box(0, 9, (2,)), achieved_goal=spaces.Box(0, 9, (1,)))
        action_space = spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return {"observation": np.array([1, 2], np.float32), "achieved_goal": np.array([3], np.float32)}, {}

        def step(self, action):
            return self.reset()[0], 0.0, True, False, {}

    episodes = collect_episodes(Goals(), seed=0, num_episodes=1, keep_actions=True)
    with pytest.raises(ValueError, match=r"keys of its spaces in alphabetical order.* got observation, achieved_goal"):
        write_minari_dataset("goals-v0", Goals(), episodes)
    assert not list(root.rglob("*"))


def test_observations_of_another_shape_than_their_space_are_refused_though_they_have_as_many_numbers(root):
    with gym.make("CartPole-v1") as cart:
        env = gym.wrappers.ReshapeObservation(cart, (2, 2))
        write_minari_dataset("tables-v0", env, collect_episodes(env, seed=0, num_episodes=1, keep_actions=True))
    (episode,) = minari_episodes("tables-v0")
    for shape, right in {(2, 2): True, (1, 2, 2): True, (4,): True, (4, 1): False, (2, 3): False}.items():
        with h5py.File(root / "tables-v0" / "data" / "main_data.hdf5", "r+") as file:
            del file["episode_0"]["observations"]
            file["episode_0"]["observations"] = np.resize(episode.observations, (len(episode) + 1, *shape))
        if right:
            np.testing.assert_array_equal(minari_episodes("tables-v0")[0].observations, episode.observations)
        else:
            with pytest.raises(ValueError, match=r"expected observations of .* as in Box"):
                minari_episodes("tables-v0")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a umask")
@pytest.mark.parametrize("umask", [0o077, 0o002])
def test_who_may_read_a_dataset_is_the_users_choice(umask, root):
    with gym.make("CartPole-v1") as env:
        episodes = collect_episodes(env, seed=0, num_episodes=1, keep_actions=True)
        before = os.umask(umask)
        try:
            write_minari_dataset("group-v0", env, episodes)
        finally:
            os.umask(before)
    assert (root / "group-v0").stat().st_mode & 0o777 == 0o777 & ~umask


class Walker(gym.Env):
    """Observations under a key, as of a space."""

    action_space = spaces.Discrete(2)

    def __init__(self, key="height", action_space=None):
        self.key, self.observation_space = key, spaces.Dict({key: spaces.Box(0, 9, (1,))})
        self.action_space = action_space or self.action_space

    def reset(self, *, seed=None, options=None):
        return {self.key: np.ones(1, np.float32)}, {}

    def step(self, action):
        return self.reset()[0], 0.0, True, False, {}


@pytest.mark.parametrize("key", ["walker/height", "/height", ".", "", 3])
def test_keys_that_are_no_names_in_a_file_are_refused(root, key):
    env = Walker(key)
    episodes = collect_episodes(env, seed=0, num_episodes=1, keep_actions=True)
    with pytest.raises(ValueError, match="env: expected keys of its spaces that Minari can keep, strings without a"):
        write_minari_dataset("walker-v0", env, episodes)
    assert not list(root.rglob("*"))


def test_what_minari_cannot_keep_is_refused_before_a_command_collects(root, monkeypatch, capsys):
    gym.register("Slashed-v0", Walker, kwargs={"key": "walker/height"})
    gym.register("Either-v0", Walker, kwargs={"action_space": spaces.OneOf((spaces.Discrete(2), spaces.Discrete(3)))})
    monkeypatch.setattr("icrl_agents.studies.collect.run.collect_episodes", None)
    try:
        for name, message in (
            ("Slashed-v0", "strings without a slash"),
            ("Either-v0", "Minari cannot keep its spaces"),
        ):
            assert main(["collect", name, "--num-episodes", "1", "--minari", "walker-v0"]) == 2
            assert message in capsys.readouterr().err
    finally:
        for name in ("Slashed-v0", "Either-v0"):
            del gym.registry[name]
    assert not list(root.rglob("*"))
