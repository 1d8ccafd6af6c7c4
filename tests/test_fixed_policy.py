"""Any policy in any environment becomes a Markov reward process."""

import inspect
import json
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import icrl_agents
import icrl_envs
from icrl_envs import FixedPolicy
from icrl_envs.fixed_policy import fitting_action

ROOT = Path(icrl_envs.__file__).parents[1]


def noisy(observation, rng):
    """Balance the pole, with random actions now and then."""
    return int(rng.integers(2)) if rng.random() < 0.3 else int(observation[2] + observation[3] > 0)


class Model:
    """Predicts as models of Stable-Baselines3 do: an array and a recurrent state."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        return np.array(int(observation[2] > 0)), state


class Script:
    """Acts as scripted policies do."""

    def get_action(self, observation):
        return int(observation[2] > 0)


def trace(env, seed, steps=40):
    observation, _ = env.reset(seed=seed)
    seen = [observation.tolist()]
    for _ in range(steps):
        observation, _, terminated, truncated, _ = env.step(0)
        seen.append(observation.tolist())
        if terminated or truncated:
            seen.append(env.reset()[0].tolist())
    return seen


@pytest.mark.parametrize("policy", [Model(), Script(), lambda observation, rng: int(observation[2] > 0)])
def test_every_kind_of_policy_equals_the_plain_loop(policy):
    env = FixedPolicy(gym.make("CartPole-v1"), policy)
    assert env.action_space == gym.spaces.Discrete(1)
    plain = gym.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    expected, _ = plain.reset(seed=0)
    for _ in range(30):
        np.testing.assert_array_equal(observation, expected)
        observation, *outcome, _ = env.step(0)
        expected, *expected_outcome, _ = plain.step(1 if expected[2] > 0 else 0)
        assert outcome == expected_outcome
        if outcome[1]:
            break


def test_seeds_fix_the_policys_noise_here_and_in_another_process():
    code = f"""
import json, gymnasium as gym
from icrl_envs import FixedPolicy
{inspect.getsource(noisy)}
{inspect.getsource(trace)}
print(json.dumps(trace(FixedPolicy(gym.make("CartPole-v1"), noisy), 7)))
"""
    first = trace(FixedPolicy(gym.make("CartPole-v1"), noisy), 7)
    env = FixedPolicy(gym.make("CartPole-v1"), noisy)
    assert trace(env, 7) == first
    assert trace(env, 7) == first
    assert trace(env, 8) != first
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == first


def test_the_policys_stream_is_its_own_and_continues_without_a_seed():
    drawn = []
    env = FixedPolicy(gym.make("CartPole-v1"), lambda observation, rng: drawn.append(rng.random()) or 0)
    for seed in (7, None, 7, None):
        env.reset(seed=seed)
        env.step(0)
    assert drawn[:2] == drawn[2:]
    assert drawn[0] != drawn[1]
    other = gym.make("CartPole-v1")
    other.reset(seed=7)
    assert not set(drawn) & set(np.random.default_rng(7).random(1000))
    assert drawn[0] != other.unwrapped.np_random.random()


def test_without_any_seed_the_policy_still_acts():
    env = FixedPolicy(gym.make("CartPole-v1"), noisy)
    env.reset()
    assert env.step(0)[1] == 1.0


def test_the_policy_sees_its_own_copy_of_the_observation():
    def vandal(observation, rng):
        action = int(observation[2] > 0)
        observation[:] = np.nan
        return action

    assert trace(FixedPolicy(gym.make("CartPole-v1"), vandal), 3) == trace(
        FixedPolicy(gym.make("CartPole-v1"), Script()), 3
    )
    env = FixedPolicy(gym.make("CartPole-v1"), Script())
    observation, _ = env.reset(seed=3)
    expected = trace(FixedPolicy(gym.make("CartPole-v1"), Script()), 3)[1]
    observation[:] = np.nan
    assert env.step(0)[0].tolist() == expected


def test_box_actions_reach_the_environment_clipped_and_in_its_dtype():
    received = []

    class Listen(gym.Wrapper):
        def step(self, action):
            received.append(action)
            return self.env.step(action)

    wanted = iter([[7.5], [-7], [0.25]])
    env = FixedPolicy(Listen(gym.make("MountainCarContinuous-v0")), lambda observation, rng: next(wanted))
    env.reset(seed=0)
    for _ in range(3):
        env.step(0)
    assert [action.tolist() for action in received] == [[1.0], [-1.0], [0.25]]
    assert {action.dtype for action in received} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("id", "action"),
    [
        ("CartPole-v1", 2),
        ("CartPole-v1", 1.0),
        ("CartPole-v1", None),
        ("CartPole-v1", np.array([1])),
        ("MountainCarContinuous-v0", [0.1, 0.2]),
        ("MountainCarContinuous-v0", 0.1),
        ("MountainCarContinuous-v0", [np.nan]),
    ],
)
def test_actions_that_do_not_fit_are_refused(id, action):
    env = FixedPolicy(gym.make(id), lambda observation, rng: action)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"the policy's action must be .*got"):
        env.step(0)


@pytest.mark.parametrize("policy", [3, None, "left", lambda observation: 0])
def test_what_is_not_a_policy_is_refused(policy):
    with pytest.raises(TypeError, match=r"policy must be a callable \(observation, rng\) -> action, or have predict"):
        FixedPolicy(gym.make("CartPole-v1"), policy)


def test_a_classifier_is_told_how_to_be_passed():
    class Classifier:
        def predict(self, X):
            return np.ones(len(X), int)

    with pytest.raises(
        TypeError, match=r"policy: expected predict\(observation, deterministic=True\), .* got one with"
    ):
        FixedPolicy(gym.make("CartPole-v1"), Classifier())
    FixedPolicy(gym.make("CartPole-v1"), lambda x, rng: Classifier().predict(x[None])[0])


def test_wrong_calls_are_named():
    with pytest.raises(TypeError, match="env"):
        FixedPolicy("CartPole-v1", noisy)
    for kind in (Model, Script):
        with pytest.raises(TypeError, match=rf"policy must be an object, such as {kind.__name__}\(\.\.\.\)"):
            FixedPolicy(gym.make("CartPole-v1"), kind)
    env = FixedPolicy(gym.make("CartPole-v1"), noisy)
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action must be 0, which lets the policy act"):
        env.step(1)


def test_the_spec_rebuilds_environment_and_policy():
    env = FixedPolicy(gym.make("CartPole-v1", max_episode_steps=20), noisy)
    rebuilt = gym.make(env.spec)
    assert isinstance(rebuilt, FixedPolicy)
    assert trace(rebuilt, 7) == trace(env, 7)


def test_check_env_accepts_the_wrapper():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*different from the unwrapped version")
        warnings.filterwarnings("ignore", ".*A Box observation space m(in|ax)imum value is -?infinity")
        check_env(FixedPolicy(gym.make("CartPole-v1"), noisy), skip_render_check=True)


@pytest.mark.filterwarnings("ignore:Constant.* may be too high")  # the scripted policies' own remark
def test_a_scripted_policy_solves_its_metaworld_domain():
    from metaworld.policies import ENV_POLICY_MAP

    domain = "plate-slide-v3"
    env = FixedPolicy(gym.make("icrl/MetaWorld-v0", domain=domain, observation="full"), ENV_POLICY_MAP[domain]())
    env.reset(seed=0)
    rewards = [env.step(0)[1] for _ in range(150)]
    assert np.mean(rewards[-20:]) > 5 > 3 > rewards[0]
    env.close()


def test_copies_in_a_vector_environment_differ():
    envs = gym.vector.SyncVectorEnv([lambda: FixedPolicy(gym.make("CartPole-v1"), noisy)] * 3)
    envs.reset(seed=0)
    observations = np.stack([envs.step(np.zeros(3, dtype=int))[0] for _ in range(10)], axis=1)
    assert len({copy.tobytes() for copy in observations}) == 3
    envs.close()


def test_actions_are_clipped_before_they_are_cast_and_never_rounded():
    space = spaces.Box(0, 255, (3,), np.uint8)
    assert fitting_action([300, -5, 7.0], space).tolist() == [255, 0, 7]
    assert fitting_action([300, -5, 7.0], space).dtype == np.uint8
    with pytest.raises(ValueError, match="the policy's action must be whole numbers"):
        fitting_action([1.5, 0, 0], space)
    with pytest.raises(ValueError, match="the policy's action must be finite and of shape"):
        fitting_action(np.ma.masked_array([1.0, 0.0, 0.0], [True, False, False]), space)
    with pytest.raises(ValueError, match="the policy's action must be finite and of shape"):
        fitting_action(["1", "2", "3"], space)


def test_bits_that_a_model_gives_as_floats_are_an_action_in_vector_environments_too():
    def make():
        return gym.wrappers.TransformAction(gym.make("CartPole-v1"), lambda bits: int(bits[1]), spaces.MultiBinary(2))

    class Bits(Model):
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            return np.stack([np.zeros(len(observation)), observation[:, 2] > 0], -1).astype(np.float32), state

    copies = icrl_agents.collect_episodes(gym.vector.SyncVectorEnv([make]), num_steps=20, seed=0, policy=Bits())
    own = icrl_agents.collect_episodes(gym.make("CartPole-v1"), num_steps=20, seed=0, policy=Model())
    np.testing.assert_array_equal(copies[0].observations, own[0].observations)
