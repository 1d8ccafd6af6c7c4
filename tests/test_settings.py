"""Attributes of environments that are what they were when these were made."""

import copy

import gymnasium as gym
import pytest

import icrl_envs  # noqa: F401 - registers the environments
from icrl_envs import FixedPolicy


@pytest.mark.parametrize(
    ("env_id", "names"),
    [
        ("icrl/BoyanChain-v0", ["task_seed"]),
        (
            "icrl/MetaWorldMRP-v0",
            ["domain", "noise", "noise_scale", "observation", "split", "task_seed"],
        ),
    ],
)
def test_settings_that_would_have_no_effect_later_are_refused(env_id, names):
    env = gym.make(env_id).unwrapped
    for copied in (env, copy.deepcopy(env)):
        for name in names:
            before = getattr(copied, name)
            with pytest.raises(AttributeError, match=f"{name}: is fixed when the environment is made"):
                setattr(copied, name, before)
            assert getattr(copied, name) == before
        copied.reset(seed=0, options={"task_seed": 7})
        assert copied.task_seed == 7
    folded = FixedPolicy(gym.make("CartPole-v1"), lambda observation, rng: 0)
    with pytest.raises(AttributeError, match="policy: is fixed"):
        folded.policy = lambda observation, rng: 1
