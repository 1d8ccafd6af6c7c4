"""Our simulator against the library's own, bit by bit: the library's classes are the oracle, used as it says."""

import pickle
import warnings

import numpy as np
import pytest
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.policies import ENV_POLICY_MAP
from metaworld.types import Task
from scipy.spatial.transform import Rotation

from icrl_envs.metaworld.domains import DOMAINS
from icrl_envs.metaworld.env import MetaWorldEnv
from icrl_envs.metaworld.mrp import MetaWorldMRPEnv
from icrl_envs.metaworld.quaternions import quaternion

MISSION = ("pick-place-v3", "pick-place-wall-v3", "shelf-place-v3", "plate-slide-v3", "button-press-v3")


def stock_simulator(domain, goal, reward_version="v2"):
    """The stock class with a task set, its goal visible."""
    stock = ALL_V3_ENVIRONMENTS[domain](reward_function_version=reward_version)
    data = {"env_cls": type(stock), "rand_vec": goal, "partially_observable": False}
    stock.set_task(Task(env_name=domain, data=pickle.dumps(data)))
    return stock


def stock_rollout(stock, policy, rng, scale, steps):
    """Observations, actions, rewards and infos of the stock loop: noise before the clip."""
    observation, _ = stock.reset()
    observations, actions, rewards, infos = [observation.copy()], [], [], []
    for _ in range(steps):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Constant")
            mean = policy.get_action(observation.copy())
        action = np.clip(mean + scale * rng.standard_normal(4), -1.0, 1.0)
        observation, reward, _, _, info = stock.step(action)
        observations.append(observation.copy())
        actions.append(action)
        rewards.append(float(reward))
        infos.append({key: float(value) for key, value in info.items()})
    return np.array(observations), actions, rewards, infos


@pytest.mark.parametrize("domain", DOMAINS)
def test_observations_rewards_and_infos_are_bit_equal(domain):
    env = MetaWorldEnv(domain, observation="full")
    stock = stock_simulator(domain, env.goals[7])
    observations, actions, rewards, infos = stock_rollout(
        stock, ENV_POLICY_MAP[domain](), np.random.default_rng(5), 0.5, 60
    )
    env.reset(seed=0, options={"goal_index": 3})  # another episode before: its traces must be gone
    for _ in range(5):
        env.step(np.array([0.3, 0.8, -1.0, 1.0]))
    first, info = env.reset(options={"goal_index": 7})
    assert info == {"goal_index": 7}
    assert first.tobytes() == observations[0].tobytes()
    for t, action in enumerate(actions):
        observation, reward, terminated, truncated, info = env.step(action)
        assert observation.tobytes() == observations[t + 1].tobytes(), t
        assert (reward, terminated, truncated) == (rewards[t], False, False), t
        assert {key: float(value) for key, value in info.items()} == infos[t], t
    assert set(info) == {
        "success",
        "near_object",
        "grasp_success",
        "grasp_reward",
        "in_place_reward",
        "obj_to_target",
        "unscaled_reward",
    }


@pytest.mark.slow
@pytest.mark.parametrize("reward_version", ["v1", "v2"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_whole_episodes_are_bit_equal(domain, reward_version):
    env = MetaWorldEnv(domain, observation="full", reward_version=reward_version, task_seed=3)
    for index, scale in ((0, 0.1), (21, 1.0), (49, 3.0)):
        stock = stock_simulator(domain, env.goals[index], reward_version)
        rng = np.random.default_rng(index)
        observations, actions, rewards, infos = stock_rollout(stock, ENV_POLICY_MAP[domain](), rng, scale, 500)
        ours = [env.reset(options={"goal_index": index})[0]]
        for action, reward, info in zip(actions, rewards, infos, strict=True):
            observation, our_reward, _, _, our_info = env.step(action)
            ours.append(observation)
            assert our_reward == reward
            assert {key: float(value) for key, value in our_info.items()} == info
        assert np.array(ours).tobytes() == observations.tobytes()


@pytest.mark.parametrize("domain", [*MISSION, "door-close-v3"])
@pytest.mark.parametrize("noise", [1.0, 0.1])
def test_the_reward_process_is_the_stock_loop(domain, noise):
    """Door-close is there because its policy writes into the observation that it is given."""
    env = MetaWorldMRPEnv(domain, noise, observation="full", goal_visible=False)
    first, info = env.reset(seed=11)
    rng = np.random.default_rng(np.random.SeedSequence(11, spawn_key=(0x706F6C69,)))
    stock = stock_simulator(domain, env.goals[info["goal_index"]])
    observations, _, rewards, _ = stock_rollout(stock, ENV_POLICY_MAP[domain](), rng, noise, 40)
    observations[:, 36:39] = 0.0  # the agent sees no goal; the policy did
    assert first.tobytes() == observations[0].tobytes()
    for t, reward in enumerate(rewards):
        observation, ours, _, _, _ = env.step(0)
        assert observation.tobytes() == observations[t + 1].tobytes()
        assert ours == reward


def test_the_library_itself_is_left_as_it_was():
    before = {name: vars(cls).copy() for name, cls in ALL_V3_ENVIRONMENTS.items()}
    env = MetaWorldMRPEnv("pick-place-v3")
    env.reset(seed=0)
    env.step(0)
    assert {name: vars(cls) for name, cls in ALL_V3_ENVIRONMENTS.items()} == before
    assert type(env.simulator) is not ALL_V3_ENVIRONMENTS["pick-place-v3"]
    with pytest.warns(UserWarning, match="too high"):
        ENV_POLICY_MAP["pick-place-v3"]().get_action(np.zeros(39) + np.arange(39))


def test_quaternions_equal_scipys():
    rng = np.random.default_rng(0)
    right_angles = rng.choice([0.0, np.pi / 2, np.pi, -np.pi / 2, 1e-9, np.pi - 1e-9], size=(300, 3))
    rotations = [Rotation.random(rng=rng) for _ in range(500)]
    rotations += [Rotation.from_euler("xyz", angles) for angles in right_angles]
    for matrix in [np.eye(3), *(rotation.as_matrix() for rotation in rotations)]:
        assert quaternion(matrix).tobytes() == Rotation.from_matrix(matrix).as_quat().tobytes()
