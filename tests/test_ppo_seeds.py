"""Randomness that the seed of ``ppo`` does not reach is told of."""

import random

import numpy as np
import pytest
import torch

from icrl_agents.control import PPOConfig, ppo
from icrl_agents.evaluators import TabularTD
from tests.ascent import Ascent


class Placed(Ascent):
    """A start that is drawn from a global generator."""

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return observation + np.float32(random.random()), info


class Networks:
    """Features that are drawn anew for each fit."""

    def fit(self, context):
        return TabularTD(1).fit(context) if torch.rand(1) < 2 else None


def test_ppo_hears_what_the_first_reset_draws_and_the_evaluator():
    config = PPOConfig(rollout_steps=8, batch_size=4)
    with pytest.warns(UserWarning, match="seed: 0 does not decide the result, since the environment or the policy"):
        ppo(Placed(), TabularTD(1), total_steps=8, seed=0, config=config)
    with pytest.warns(UserWarning, match="seed: 0 does not decide the result, since the evaluator or the features"):
        ppo(Ascent(), Networks(), total_steps=8, seed=0, config=config)
