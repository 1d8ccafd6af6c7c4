"""What InContextPPO takes from a rollout, and what becomes of models that are trained, normalised or loaded."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.wrappers import ClipReward, RecordEpisodeStatistics

from icrl_agents import collect
from icrl_agents.evaluators import WeightedSoftmaxTD
from icrl_agents.kernels import Laplace
from icrl_envs import FixedPolicy

pytest.importorskip("stable_baselines3")

from stable_baselines3 import DQN, PPO, SAC, HerReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnvWrapper, VecMonitor, VecNormalize

from icrl_agents.integrations.sb3 import InContextPPO
from icrl_agents.integrations.sb3_models import load_model

SMALL = {"n_steps": 64, "batch_size": 32, "n_epochs": 1, "device": "cpu", "seed": 0}
EVALUATOR = WeightedSoftmaxTD(Laplace(0.5), num_sweeps=20)


class Shaped(BaseCallback):
    """Adds to the rewards in place, which is how a callback shapes them."""

    def _on_step(self):
        self.locals["rewards"] += self.locals["new_obs"][:, 2] ** 2
        return True


class Reused(VecEnvWrapper):
    """Gives all final observations in one array, which it writes into at the next step."""

    def __init__(self, venv, reuse=True):
        super().__init__(venv)
        self.final, self.reuse = np.zeros(4, dtype=np.float32), reuse

    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        observations, rewards, dones, infos = self.venv.step_wait()
        self.final = self.final if self.reuse else self.final.copy()
        self.final[:] = 1e3
        for i in np.flatnonzero(dones):
            self.final[:] = infos[i]["terminal_observation"]
            infos[i]["terminal_observation"] = self.final
        return observations, rewards, dones, infos


def test_rewards_that_a_callback_shapes_are_those_of_the_critic():
    learned = PPO("MlpPolicy", "CartPole-v1", **SMALL).learn(64, callback=Shaped()).rollout_buffer.rewards
    assert learned.min() > 1.0
    model = InContextPPO("MlpPolicy", "CartPole-v1", EVALUATOR, **SMALL).learn(64, callback=Shaped())
    np.testing.assert_array_equal(model.rollout_buffer.rewards, learned)  # the same actor, and no episode is cut
    rewards = model.critic.state_dict()["batches"][0]["rewards"]
    torch.testing.assert_close(rewards, torch.from_numpy(learned[:, 0]), rtol=0.0, atol=0.0)


def test_final_observations_that_are_written_into_later_are_those_of_their_step():
    advantages = []
    for reuse in (True, False):
        env = DummyVecEnv([lambda: gym.make("CartPole-v1", max_episode_steps=7)])
        model = InContextPPO("MlpPolicy", Reused(env, reuse), EVALUATOR, **SMALL).learn(64)
        advantages.append(model.rollout_buffer.advantages)
    np.testing.assert_array_equal(*advantages)


@pytest.mark.parametrize(
    "model",
    [
        lambda: PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu", seed=0),
        lambda: DQN("MlpPolicy", "CartPole-v1", learning_starts=1, device="cpu", seed=0),
        lambda: SAC("MlpPolicy", "Pendulum-v1", learning_starts=1, device="cpu", seed=0),
    ],
    ids=["PPO", "DQN", "SAC"],
)
def test_a_loaded_model_predicts_and_refuses_to_be_trained(model, tmp_path):
    saved = model()
    saved.save(tmp_path / "model")
    loaded, observation = load_model(tmp_path / "model"), saved.observation_space.sample()
    actions = [each.predict(observation, deterministic=True)[0] for each in (saved, loaded)]
    np.testing.assert_array_equal(*actions)
    loaded.set_env(saved.get_env())
    with pytest.raises(ValueError, match=r"load_model: the model is for prediction, .* PPO.load"):
        loaded.learn(16)


def test_a_model_of_normalised_observations_is_no_policy_of_observations_as_they_are():
    normaliser, env = VecNormalize(make_vec_env("CartPole-v1")), gym.make("CartPole-v1")
    model = InContextPPO("MlpPolicy", normaliser, EVALUATOR, **SMALL).learn(64)
    refusal = r"policy: expected a model of observations as they are, .* VecNormalize"
    with pytest.raises(ValueError, match=refusal):
        collect(env, gamma=0.9, seed=0, num_steps=5, policy=model)
    with pytest.raises(ValueError, match=refusal):
        FixedPolicy(env, model)

    def normalised(observation, rng):
        return model.predict(normaliser.normalize_obs(observation), deterministic=True)[0]

    collect(env, gamma=0.9, seed=0, num_steps=5, policy=normalised)
    of_rewards = VecNormalize(make_vec_env("CartPole-v1"), norm_obs=False)
    collect(env, gamma=0.9, seed=0, num_steps=5, policy=InContextPPO("MlpPolicy", of_rewards, EVALUATOR, **SMALL))


def test_discrete_actions_that_do_not_start_at_0_are_refused():
    env = gym.make("CartPole-v1")
    shifted = gym.wrappers.TransformAction(env, lambda action: action - 1, spaces.Discrete(2, start=1))
    with pytest.raises(ValueError, match=r"env: expected discrete actions from 0 on, .* got Discrete\(2, start=1\)"):
        InContextPPO("MlpPolicy", shifted, device="cpu")


def unbounded():
    """Observations without bounds, as MuJoCo's are, so that bounds do not tell."""
    free = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    return gym.wrappers.TransformObservation(gym.make("Pendulum-v1"), lambda x: x, free)


def test_a_model_of_observations_as_they_are_is_refused_in_an_environment_that_normalises_them():
    model = PPO("MlpPolicy", unbounded(), n_steps=8, batch_size=8, device="cpu")
    normal = gym.wrappers.NormalizeObservation(unbounded())
    with pytest.raises(ValueError, match=r"policy: .* got one of them as they are; .* NormalizeObservation after"):
        FixedPolicy(normal, model)
    after = gym.wrappers.NormalizeObservation(FixedPolicy(unbounded(), model))
    after.update_running_mean = False
    collect(after, gamma=0.9, seed=0, num_steps=5)


def test_a_model_whose_own_environment_normalises_observations_is_refused_where_none_does():
    normal = gym.wrappers.NormalizeObservation(unbounded())
    model = PPO("MlpPolicy", normal, n_steps=8, batch_size=8, device="cpu").learn(8)
    for env in (unbounded(), gym.vector.SyncVectorEnv([unbounded] * 2)):
        with pytest.raises(ValueError, match=r"policy: .* NormalizeObservation makes .* wrap this environment"):
            collect(env, gamma=0.9, seed=0, num_steps=5, policy=model)
    normal.update_running_mean = False
    collect(normal, gamma=0.9, seed=0, num_steps=5, policy=model)
    vector = gym.wrappers.vector.NormalizeObservation(gym.vector.SyncVectorEnv([unbounded] * 2))
    vector.update_running_mean, vector.obs_rms = False, normal.obs_rms
    for each in (vector, gym.vector.SyncVectorEnv([lambda: normal])):
        collect(each, gamma=0.9, seed=0, num_steps=5, policy=model)


class Goal(gym.Env):
    """Reaches a goal on a line, or not; observations as hindsight replay has them."""

    parts = ("observation", "achieved_goal", "desired_goal")
    observation_space = spaces.Dict({name: spaces.Box(-9, 9, (1,)) for name in parts})
    action_space = spaces.Box(-2, 2, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.goal, self.steps = 0.0, self.np_random.normal(), 0
        return self.observe(), {}

    def step(self, action):
        self.at, self.steps = self.at + float(action[0]), self.steps + 1
        return self.observe(), float(-abs(self.at - self.goal)), False, self.steps == 5, {}

    def observe(self):
        numbers = (self.at, self.at, self.goal)
        return {name: np.array([x], np.float32) for name, x in zip(self.parts, numbers, strict=True)}

    def compute_reward(self, achieved, desired, info):
        return -np.abs(achieved - desired)[..., 0]


def test_a_model_of_hindsight_replay_is_loaded_without_its_environment(tmp_path):
    saved = SAC(
        "MultiInputPolicy", Goal(), replay_buffer_class=HerReplayBuffer, learning_starts=9, device="cpu", seed=0
    )
    saved.learn(12).save(tmp_path / "model")
    contexts = [
        collect(Goal(), gamma=0.9, seed=0, num_steps=12, policy=each)
        for each in (saved, load_model(tmp_path / "model"))
    ]
    assert torch.equal(contexts[0].states, contexts[1].states)


class Paid(gym.RewardWrapper):
    """100 more for each step."""

    def reward(self, reward):
        return reward + 100.0


def test_a_critic_forgets_the_rollouts_of_another_environment_and_keeps_those_of_its_own(tmp_path):
    own = gym.make("Pendulum-v1")
    model = InContextPPO("MlpPolicy", own, EVALUATOR, window=3, **SMALL).learn(128)
    model.save(tmp_path / "model")
    for same in (model.get_env(), own):
        model.set_env(same)
        assert len(model.critic.state_dict()["batches"]) == 2
    model.set_env(Paid(own))
    assert not model.policy.predict_values(torch.zeros(1, 3)).any()
    model.learn(64)
    (batch,) = model.critic.state_dict()["batches"]
    assert float(batch["rewards"].min()) > 80.0
    loaded = InContextPPO.load(tmp_path / "model", device="cpu")
    loaded.set_env(gym.make("Pendulum-v1"))  # the first that it is given
    assert len(loaded.critic.state_dict()["batches"]) == 2


def test_a_loaded_critic_forgets_the_rollouts_of_another_environment_than_that_of_its_file(tmp_path):
    model = InContextPPO("MlpPolicy", "Pendulum-v1", EVALUATOR, window=3, **SMALL).learn(128)
    model.save(tmp_path / "model")

    def batches(env):
        loaded = InContextPPO.load(tmp_path / "model", env=env, device="cpu")
        given = InContextPPO.load(tmp_path / "model", device="cpu")
        given.n_envs = 1 if isinstance(env, gym.Env) else env.num_envs
        given.set_env(env)
        counts = {len(each.critic.state_dict()["batches"]) for each in (loaded, given)}
        assert loaded.policy.predict_values(torch.ones(1, 3)).any() == (counts != {0})
        return counts

    plain = gym.make("Pendulum-v1")
    same = [plain, gym.make("Pendulum-v1", render_mode="rgb_array", max_episode_steps=50)]
    same += [
        RecordEpisodeStatistics(plain),
        make_vec_env("Pendulum-v1", 2),
        VecMonitor(DummyVecEnv([lambda: gym.make("Pendulum-v1")])),
    ]
    same += [make_vec_env("Pendulum-v1", 2, vec_env_cls=SubprocVecEnv)]
    others = [gym.make("Pendulum-v1", g=5.0), Paid(plain), VecNormalize(make_vec_env("Pendulum-v1"))]
    clipped = make_vec_env("Pendulum-v1", 1, wrapper_class=ClipReward, wrapper_kwargs={"min_reward": -1.0})
    others += [clipped, make_vec_env(PendulumEnv, 1, vec_env_cls=SubprocVecEnv)]
    assert [batches(env) for env in same] == [{2}] * 6
    assert [batches(env) for env in others] == [{0}] * 5
    again = InContextPPO.load(tmp_path / "model", env=Paid(plain), device="cpu").learn(64)
    (batch,) = again.critic.state_dict()["batches"]
    assert float(batch["rewards"].min()) > 80.0
    again.save(tmp_path / "model")  # its own environment is the other one now
    assert [batches(env) for env in (Paid(plain), plain)] == [{1}, {0}]
    own = InContextPPO("MlpPolicy", Shown(), EVALUATOR, window=3, **SMALL).learn(128)
    own.save(tmp_path / "model")
    assert [batches(env) for env in (Shown(), plain)] == [{2}, {0}]


class Shown(PendulumEnv):
    """Says where it is, as environments that draw themselves as text do."""

    def __str__(self):
        return str(self.state)
