"""Rollout buffers of one's own, and what is set in a buffer or beside it."""

import numpy as np
import pytest
import torch

from icrl_agents.control import Critic
from icrl_agents.evaluators import LSTD, WeightedSoftmaxTD
from icrl_agents.kernels import Laplace

pytest.importorskip("stable_baselines3")

from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from icrl_agents.integrations.sb3 import InContextPPO
from tests.ascent import Ascent


def model_in(**settings):
    settings = {"n_steps": 20, "batch_size": 10, "n_epochs": 1, "device": "cpu", "seed": 0} | settings
    return InContextPPO("MlpPolicy", make_vec_env(Ascent, 2, seed=0), WeightedSoftmaxTD(Laplace(0.5), 5), **settings)


class Doubled(RolloutBuffer):
    def add(self, obs, *rest):
        super().add(2 * obs, *rest)


class Clipped(RolloutBuffer):
    def add(self, obs, action, reward, *rest):
        super().add(obs, action, np.clip(reward, -0.1, 0.1), *rest)


class Counting(RolloutBuffer):
    added = 0

    def add(self, *given):
        self.added += 1
        super().add(*given)


def test_a_buffer_of_ones_own_keeps_what_comes_or_is_refused():
    for kind in (Doubled, Clipped):
        model = model_in(rollout_buffer_class=kind)
        with pytest.raises(ValueError, match=f"rollout_buffer_class: expected one that keeps .* in a {kind.__name__};"):
            model.learn(40)
    model = model_in(rollout_buffer_class=Counting).learn(40)
    assert model.rollout_buffer.added == 20
    context = model.critic._batches[-1]
    np.testing.assert_allclose(context.next_states - context.states, 1.0, rtol=1e-6)


class Discounts(BaseCallback):
    """Sets γ in the buffer, from where Stable-Baselines3 reads it, at the start of each rollout."""

    def _on_step(self):
        return True

    def _on_rollout_start(self):
        self.model.rollout_buffer.gamma = 0.5


def test_a_discount_that_is_set_in_the_buffer_or_the_model_holds():
    model = model_in().learn(40, callback=Discounts())
    assert model.gamma == model.critic._gamma == 0.5
    model.gamma = 0.75
    model.learn(40)
    assert model.rollout_buffer.gamma == model.critic._gamma == 0.75


def test_another_number_of_steps_than_the_buffer_holds_is_refused():
    model = model_in().learn(40)
    model.n_steps = 8
    with pytest.raises(ValueError, match="n_steps: expected 20, as when the model was made, got 8"):
        model.learn(40)


def test_settings_of_the_critic_are_saved_with_the_model_and_told_of_where_they_are_left_out(tmp_path):
    model = model_in()
    model.critic.evaluator, model.critic.window, model.critic.gae_lambda = WeightedSoftmaxTD(Laplace(2.0), 9), 2, 0.5
    model.learn(80)
    states = torch.linspace(0, 8, 9)[:, None]
    model.save(tmp_path / "model.zip")
    loaded = InContextPPO.load(tmp_path / "model.zip", env=make_vec_env(Ascent, 2, seed=0))
    assert (loaded.window, loaded.gae_lambda, len(loaded.critic._batches)) == (2, 0.5, 2)
    assert torch.equal(loaded.policy.predict_values(states), model.policy.predict_values(states))
    with pytest.warns(UserWarning, match="exclude: evaluator will be missing in the file"):
        model.save(tmp_path / "without.zip", exclude=["evaluator", "verbose"])


def test_another_critic_that_is_set_on_the_model_is_the_one_that_its_policy_asks():
    model, other = model_in(), Critic(WeightedSoftmaxTD(Laplace(2.0), 9), gae_lambda=0.5, window=1, features=None)
    model.critic = other
    model.learn(40)
    states = torch.linspace(0, 8, 9)[:, None]
    assert torch.equal(model.policy.predict_values(states)[:, 0], other(states))
    assert model.policy.predict_values(states).any()
    with pytest.raises(TypeError, match="critic: expected a Critic, got LSTD"):
        model.critic = LSTD()
