"""Spaces whose columns a Minari dataset would give back in another order."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from icrl_agents import collect_episodes
from icrl_agents.datasets import write_minari_dataset

pytest.importorskip("minari")
pytest.importorskip("h5py")


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
