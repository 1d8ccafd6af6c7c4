"""An environment that is moved between two steps of the training: no row goes from one episode to another."""

import contextlib

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from icrl_agents.evaluators import LSTD, WeightedSoftmaxTD
from icrl_agents.kernels import Laplace

pytest.importorskip("stable_baselines3")

from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from icrl_agents.integrations.sb3 import InContextPPO
from tests.ascent import Ascent


class Resets(BaseCallback):
    """Resets the environment of the training at the end of each rollout, and says so or not."""

    def __init__(self, says_so):
        super().__init__()
        self.says_so = says_so

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        shown = self.training_env.reset()
        if self.says_so:
            self.model._last_obs = shown


def trained_in(env):
    evaluator = WeightedSoftmaxTD(Laplace(0.5), num_sweeps=5)
    return InContextPPO("MlpPolicy", env, evaluator, n_steps=20, batch_size=10, n_epochs=1, device="cpu", seed=0)


def copies(kind=DummyVecEnv, number=2):
    return make_vec_env(Ascent, number, seed=0, vec_env_cls=kind)


def all_rows_ascend(model):
    context = model.critic._batches[-1]
    return np.allclose((context.next_states - context.states).numpy(), 1.0)


@pytest.mark.parametrize("kind", [DummyVecEnv, SubprocVecEnv])
def test_a_callback_that_evaluates_in_the_environment_of_the_training_is_refused(kind):
    env, other = copies(kind), copies(kind)
    try:
        model = trained_in(env)
        model.learn(80, callback=EvalCallback(other, eval_freq=5, n_eval_episodes=1, verbose=0))
        assert all_rows_ascend(model)
        with pytest.raises(
            ValueError, match="callback: expected the callbacks to leave the environment of the training"
        ):
            model.learn(80, callback=EvalCallback(env, eval_freq=5, n_eval_episodes=1, verbose=0))
    finally:
        env.close()
        other.close()


def test_a_reset_between_rollouts_is_refused_unless_the_model_is_told_of_it():
    model = trained_in(copies())
    model.learn(80, callback=Resets(says_so=True))
    assert all_rows_ascend(model)
    with pytest.raises(ValueError, match="callback: expected the callbacks to leave the environment of the training"):
        model.learn(80, callback=Resets(says_so=False))


def test_settings_of_the_critic_that_are_changed_later_hold_from_the_next_rollout_on(tmp_path):
    model, other = trained_in(copies()).learn(40), LSTD(0.1)
    model.window, model.evaluator, model.gae_lambda = 3, other, 0.5
    model.learn(80, reset_num_timesteps=False)
    assert (len(model.critic._batches), model.critic.evaluator, model.critic.gae_lambda) == (3, other, 0.5)
    model.rollout_buffer.gae_lambda = 0.0
    model.learn(40)
    advantages, batch = model.rollout_buffer.advantages.T.ravel(), model.critic._batches[-1]
    errors = batch.td_errors(model.critic(batch.points))
    np.testing.assert_allclose(advantages, errors, atol=1e-5)
    model.save(tmp_path / "model.zip")
    loaded = InContextPPO.load(tmp_path / "model.zip", env=copies())
    assert (loaded.critic.window, loaded.critic.gae_lambda, loaded.rollout_buffer.gae_lambda) == (3, 0.0, 0.0)
    with pytest.raises(ValueError, match="window must be an integer ≥ 1; got 0"):
        model.window = 0
    assert model.window == model.critic.window == 3


@pytest.mark.parametrize("kind", [DummyVecEnv, SubprocVecEnv])
def test_a_training_goes_on_with_a_new_episode_where_the_environment_was_evaluated_in_meanwhile(kind, tmp_path):
    env = copies(kind)
    try:
        model = trained_in(env).learn(40)
        shown = model._last_obs
        model.learn(40, reset_num_timesteps=False)
        assert all_rows_ascend(model)
        assert model.critic._batches[-1].states[0] == shown[0]  # where nothing has moved it, its episode goes on
        evaluate_policy(model, env, n_eval_episodes=1)
        env.step(np.zeros(2, dtype=int))
        model.learn(40, reset_num_timesteps=False)
        assert all_rows_ascend(model)
        model.save(tmp_path / "model.zip")
        model = InContextPPO.load(tmp_path / "model.zip", env=env).learn(40, reset_num_timesteps=False)
        assert all_rows_ascend(model)
    finally:
        env.close()


def test_rollouts_that_are_collected_by_hand_are_assessed_or_refused():
    model = InContextPPO(
        "MlpPolicy", "CartPole-v1", WeightedSoftmaxTD(Laplace(1.0), 3), n_steps=16, batch_size=8, seed=0
    )
    _, callback = model._setup_learn(16)
    with pytest.raises(ValueError, match="callback: expected what learn makes of callbacks"):
        model.collect_rollouts(model.env, ConvertCallback(None), model.rollout_buffer, 16)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, 16)
    assert np.abs(model.rollout_buffer.values).max() > 0


@pytest.mark.parametrize("made", [lambda: gym.make("CartPole-v1"), lambda: Monitor(gym.make("CartPole-v1")), Ascent])
def test_the_environment_that_a_model_was_made_with_is_not_evaluated_in(made):
    """Stable-Baselines3 wraps a single one anew for each of both."""
    env = made()
    model = trained_in(env)
    with pytest.raises(ValueError, match="callback: expected the callbacks to leave the environment of the training"):
        model.learn(80, callback=EvalCallback(env, eval_freq=5, n_eval_episodes=1, verbose=0, warn=False))
    model = trained_in(env).learn(35)
    evaluate_policy(model, env, n_eval_episodes=1, warn=False)
    rows = model.num_timesteps
    model.learn(20, reset_num_timesteps=False)
    assert model.num_timesteps == rows + 20
    assert np.abs(model.critic._batches[-1].states[0].numpy()).max() <= 1.0  # a start
    model.learn(40, callback=EvalCallback(made(), eval_freq=5, n_eval_episodes=1, verbose=0, warn=False))


class Ends(BaseCallback):
    """Ends a training at its 13th step, between an observation and the next, by what it is given."""

    def __init__(self, end):
        super().__init__()
        self.end = end

    def _on_step(self):
        return self.n_calls != 13 or self.end()


class Crash(gym.Wrapper):
    """Fails once, after it has made the 13th step."""

    steps = 0

    def step(self, action):
        shown = self.env.step(action)
        self.steps += 1
        if self.steps == 13:
            raise KeyboardInterrupt
        return shown


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("end", [lambda: False, interrupt, None], ids=["stop", "interrupt", "crash"])
def test_a_training_that_ended_in_a_step_goes_on_with_a_new_episode(end):
    env = gym.wrappers.TimeLimit(Ascent(), 100)
    model = trained_in(env if end else Crash(env))
    with contextlib.suppress(KeyboardInterrupt):
        model.learn(40, callback=Ends(end) if end else None)
    model.learn(40, reset_num_timesteps=False)
    assert all_rows_ascend(model)
    assert len(model.critic._batches[-1]) == 20


def test_another_environment_begins_with_an_episode_of_its_own_without_force_reset():
    model, other = trained_in(copies()).learn(40), copies()
    other.reset()
    model.set_env(other, force_reset=False)
    model.learn(40, reset_num_timesteps=False)
    assert all_rows_ascend(model)


class Level(gym.Env):
    """Goes up by 1 from 0, without chance or anything that counts its steps."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (1,), np.float64), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.place = np.zeros(1)
        return self.place.copy(), {}

    def step(self, action):
        self.place = self.place + 1.0
        return self.place.copy(), 1.0, False, bool(self.place[0] > 8.0), {}


@pytest.mark.parametrize("use", [lambda env: env.reset(), lambda env: env.step(0)], ids=["reset", "step"])
def test_a_callback_that_moves_a_copy_itself_is_refused_whatever_it_is(use):
    env, methods = Level(), (Level.reset, Level.step)
    model = trained_in(env)
    other = Level()
    other.reset()
    model.learn(40, callback=lambda *_: use(other) is not None)
    assert all_rows_ascend(model)
    with pytest.raises(ValueError, match="callback: expected the callbacks to leave the environment of the training"):
        model.learn(40, callback=lambda *_: use(env) is not None)
    assert (Level.reset, Level.step) == methods
