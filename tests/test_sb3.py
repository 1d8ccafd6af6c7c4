"""Stable-Baselines3's PPO with an in-context critic: what it computes, and that everything else still works."""

import re
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from icrl_agents.control import quadratic_features
from icrl_agents.evaluators import LSTD, WeightedSoftmaxTD
from icrl_agents.kernels import Laplace

pytest.importorskip("stable_baselines3")

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

from icrl_agents.command_line import main
from icrl_agents.integrations.sb3 import ActorOnly, InContextPPO
from icrl_agents.integrations.sb3_models import load_model

DOCUMENTATION = Path(__file__).parents[1] / "docs" / "control.md"
SMALL = {"n_steps": 64, "batch_size": 32, "n_epochs": 2, "device": "cpu", "seed": 0}
EVALUATOR = WeightedSoftmaxTD(Laplace(0.5), num_sweeps=20)


class Cut(gym.Wrapper):
    """Ends episodes by turns: three steps and terminated, five steps and truncated."""

    def reset(self, **settings):
        self.count, self.round = 0, getattr(self, "round", 0) + 1
        return self.env.reset(**settings)

    def step(self, action):
        observation, reward, *_, info = self.env.step(action)
        self.count += 1
        odd = self.round % 2 == 1
        return observation, reward, odd and self.count == 3, not odd and self.count == 5, info


def test_advantages_are_those_of_the_critic_by_a_plain_loop():
    seen = []

    class Watch(BaseCallback):
        def _on_step(self):
            info, done = self.locals["infos"][0], bool(self.locals["dones"][0])
            cut = info.get("TimeLimit.truncated", False)
            following = info["terminal_observation"] if done else self.locals["new_obs"][0]
            seen.append((float(self.locals["rewards"][0]), done and not cut, done, following.copy()))
            return True

        def _on_rollout_end(self):
            buffer, critic = self.model.rollout_buffer, self.model.critic
            next_values = critic(torch.from_numpy(np.stack([row[3] for row in seen]))).numpy()
            values = critic(torch.from_numpy(buffer.observations[:, 0])).numpy()
            following, expected = 0.0, np.zeros(64)
            for t in reversed(range(64)):
                reward, terminated, ended, _ = seen[t]
                delta = reward + (0.0 if terminated else 0.99 * next_values[t]) - values[t]
                following = delta + (0.0 if ended else 0.99 * 0.95 * following)
                expected[t] = following
            np.testing.assert_allclose(buffer.values[:, 0], values, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(buffer.advantages[:, 0], expected, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(buffer.returns, buffer.advantages + buffer.values, rtol=1e-5)
            self.checked = True

    watch = Watch()
    InContextPPO("MlpPolicy", Cut(gym.make("Pendulum-v1")), EVALUATOR, **SMALL).learn(64, callback=watch)
    assert watch.checked
    assert sum(row[1] for row in seen) > 3
    assert sum(row[2] and not row[1] for row in seen) > 3


def test_the_actor_starts_as_that_of_ppo_and_there_is_no_value_network():
    model, reference = InContextPPO("MlpPolicy", "CartPole-v1", **SMALL), PPO("MlpPolicy", "CartPole-v1", **SMALL)
    theirs = dict(reference.policy.named_parameters())
    ours = dict(model.policy.named_parameters())
    assert {name for name in theirs if "value" not in name} == set(ours)
    for name, parameter in ours.items():
        torch.testing.assert_close(parameter, theirs[name], rtol=0.0, atol=0.0)
    assert float(model.policy.predict_values(torch.zeros(1, 4))) == 0.0


def test_vec_envs_callbacks_logging_and_reproducibility(tmp_path):
    calls = []

    def run():
        env = VecNormalize(make_vec_env("CartPole-v1", n_envs=2, seed=0))
        model = InContextPPO("MlpPolicy", env, EVALUATOR, window=2, **SMALL)
        model.set_logger(configure(str(tmp_path), ["csv"]))
        model.learn(256, callback=lambda local, _: calls.append(local["n_steps"]) is None)
        model.logger.close()
        return model

    first, second = run(), run()
    assert len(calls) == 2 * 128
    for parameter, other in zip(first.policy.parameters(), second.policy.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=0.0, atol=0.0)
    header = (tmp_path / "progress.csv").read_text().splitlines()[0]
    assert "train/value_loss" in header
    assert "rollout/ep_rew_mean" in header
    values = first.rollout_buffer.values
    assert np.isfinite(values).all()
    assert values.std() > 0


def test_a_saved_model_predicts_the_same_and_goes_on_learning(tmp_path):
    model = InContextPPO("MlpPolicy", "CartPole-v1", LSTD(0.5), features=quadratic_features, **SMALL).learn(128)
    model.save(tmp_path / "model.zip")
    loaded = InContextPPO.load(tmp_path / "model.zip", env=gym.make("CartPole-v1"), device="cpu")
    observation = np.array([0.01, -0.2, 0.03, 0.4], dtype=np.float32)
    assert loaded.predict(observation, deterministic=True)[0] == model.predict(observation, deterministic=True)[0]
    assert loaded.evaluator == LSTD(0.5)
    assert loaded.features is quadratic_features
    loaded.learn(64, reset_num_timesteps=False)
    assert loaded.num_timesteps == 128 + 64
    values = loaded.policy.predict_values(torch.from_numpy(observation)[None])
    assert values.shape == (1, 1)
    assert float(values) != 0.0
    plain = PPO("MlpPolicy", "CartPole-v1", **SMALL)
    assert sum(p.numel() for p in model.policy.parameters()) < sum(p.numel() for p in plain.policy.parameters())


class Views(gym.Env):
    """A dictionary of a picture and a vector."""

    observation_space = spaces.Dict(
        {"picture": spaces.Box(0, 255, (36, 36, 3), np.uint8), "x": spaces.Box(-1, 1, (2,))}
    )
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._observed(), {}

    def step(self, action):
        self.count += 1
        return self._observed(), float(action[0]), False, self.count == 7, {}

    def _observed(self):
        picture = self.np_random.integers(0, 256, (36, 36, 3), dtype=np.uint8)
        return {"picture": picture, "x": self.np_random.uniform(-1, 1, 2).astype(np.float32)}


def test_dictionaries_and_pictures_are_encoded_by_the_policy():
    small = {"n_steps": 16, "batch_size": 8, "n_epochs": 1, "device": "cpu", "seed": 0}
    model = InContextPPO("MultiInputPolicy", Views(), EVALUATOR, **small).learn(32)
    assert model.critic._fitted is not None
    assert model.rollout_buffer.values.std() > 0


def test_processes_as_copies():
    env = make_vec_env(
        "Pendulum-v1", n_envs=2, seed=0, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "spawn"}
    )
    model = InContextPPO("MlpPolicy", env, EVALUATOR, use_sde=True, **SMALL).learn(128)
    env.close()
    assert model.num_timesteps == 128


def test_the_blocks_of_the_documentation_run():
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENTATION.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    assert len(blocks[0].strip().splitlines()) <= 10
    done = subprocess.run([sys.executable, "-W", "error", "-c", blocks[0]], capture_output=True, text=True, check=True)
    assert "tensor(" in done.stdout


def test_a_loaded_model_values_as_the_saved_one_without_a_rollout(tmp_path):
    model = InContextPPO("MlpPolicy", "CartPole-v1", EVALUATOR, window=2, **SMALL)
    observations = torch.linspace(-1, 1, 20).reshape(5, 4)
    model.save(tmp_path / "fresh.zip")
    assert not InContextPPO.load(tmp_path / "fresh.zip", device="cpu").policy.predict_values(observations).any()
    model.learn(192).save(tmp_path / "model.zip")
    loaded = InContextPPO.load(tmp_path / "model.zip", device="cpu")
    values = model.policy.predict_values(observations)
    assert values.std() > 0
    torch.testing.assert_close(loaded.policy.predict_values(observations), values, rtol=0.0, atol=0.0)
    assert loaded.critic.divergences == model.critic.divergences
    with zipfile.ZipFile(tmp_path / "model.zip") as archive, archive.open("critic.pth") as file:
        state = torch.load(file, weights_only=True)  # tensors and numbers: nothing in it is unpickled
    assert [len(batch["rewards"]) for batch in state["batches"]] == [64, 64]


def test_the_command_line_takes_a_saved_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = InContextPPO("MlpPolicy", "CartPole-v1", EVALUATOR, **SMALL).learn(64)
    model.save("mine")  # in mine.zip
    loaded, observations = load_model("mine"), torch.linspace(-1, 1, 20).reshape(5, 4)
    assert isinstance(loaded, InContextPPO)
    torch.testing.assert_close(loaded.policy.predict_values(observations), model.policy.predict_values(observations))
    command = "collect CartPole-v1 --policy mine.zip --num-steps 20 --out a.npz"
    assert main(command.split()) == 0, capsys.readouterr().err


def test_a_policy_that_was_saved_without_its_critic_has_no_values(tmp_path):
    InContextPPO("MlpPolicy", "CartPole-v1", EVALUATOR, **SMALL).policy.save(tmp_path / "policy.zip")
    alone, observations = ActorOnly.load(tmp_path / "policy.zip", device="cpu"), torch.zeros(2, 4)
    assert alone.predict(observations.numpy())[0].shape == (2,)
    with pytest.raises(ValueError, match="policy: has no critic, so no values; save and load the InContextPPO"):
        alone.predict_values(observations)


@pytest.mark.parametrize(
    "settings",
    [{"vf_coef": 0.5}, {"clip_range_vf": 0.2}, {"policy_kwargs": {"net_arch": {"pi": [8], "vf": [8]}}}],
    ids=["vf_coef", "clip_range_vf", "net_arch"],
)
def test_what_only_a_value_network_reads_is_warned_of(settings):
    with pytest.warns(UserWarning, match=rf"{next(iter(settings))}.*: without effect, since InContextPPO has no value"):
        InContextPPO("MlpPolicy", "CartPole-v1", **SMALL, **settings)
    InContextPPO("MlpPolicy", "CartPole-v1", vf_coef=0.0, policy_kwargs={"net_arch": {"pi": [8]}}, **SMALL)


def test_the_value_network_of_a_class_of_ones_own_is_not_trained():
    weights = []
    for settings in ({"vf_coef": 0.5}, {}):
        with warnings.catch_warnings(action="ignore"):
            model = InContextPPO(ActorCriticPolicy, "CartPole-v1", EVALUATOR, **SMALL, **settings)
        before = {name: weight.clone() for name, weight in model.policy.named_parameters()}
        weights.append(dict(model.learn(128).policy.named_parameters()))
        changed = {name for name, weight in weights[-1].items() if not torch.equal(weight, before[name])}
        assert changed == {name for name in before if "value" not in name}
    torch.testing.assert_close(*weights, rtol=0.0, atol=0.0)


def test_what_is_no_evaluator_is_named():
    with pytest.raises(TypeError, match="evaluator: expected an object with fit"):
        InContextPPO("MlpPolicy", "CartPole-v1", "softmax")
    with pytest.raises(ValueError, match="window must be an integer"):
        InContextPPO("MlpPolicy", "CartPole-v1", window=0)


def test_a_missing_library_gives_the_line_that_installs_it():
    code = "import sys; sys.modules['stable_baselines3'] = None\nimport icrl_agents.integrations.sb3"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'icrl[sb3]'" in done.stderr.splitlines()[-1]
