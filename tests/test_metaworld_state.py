"""Snapshots, copies and pickles: whatever follows is equal to the last bit, in every domain."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest

from icrl_envs.metaworld.domains import DOMAINS
from icrl_envs.metaworld.env import MetaWorldEnv
from icrl_envs.metaworld.mrp import MetaWorldMRPEnv


def roll(env, steps):
    """Observations and rewards of the next steps as bytes and numbers."""
    return [(step[0].tobytes(), step[1]) for step in (env.step(0) for _ in range(steps))]


def assert_snapshots_are_exact(env, before, after):
    env.reset(seed=1)
    at_reset = env.get_state()
    start = roll(env, before)
    snapshot = env.get_state()
    shown = env.unwrapped._observe()
    future = roll(env, after)
    env.reset(seed=2)  # another goal: it moves bodies and resets flags
    roll(env, 3)
    assert env.set_state(snapshot).tobytes() == shown.tobytes()
    assert roll(env, after) == future
    env.set_state(at_reset)
    assert roll(env, before) == start
    other = pickle.loads(pickle.dumps(env))
    assert roll(other, after) == future == roll(env, after)


@pytest.mark.parametrize("domain", DOMAINS)
def test_snapshots_are_exact(domain):
    assert_snapshots_are_exact(MetaWorldMRPEnv(domain, 0.3, observation="state"), 12, 50)


@pytest.mark.slow
@pytest.mark.parametrize("reward_version", ["v1", "v2"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_snapshots_are_exact_in_mid_episode(domain, reward_version):
    env = MetaWorldMRPEnv(domain, 0.3, observation="state", reward_version=reward_version)
    for before in (60, 250):
        assert_snapshots_are_exact(env, before, 100)


def test_a_snapshot_serves_any_number_of_futures():
    env = MetaWorldMRPEnv("pick-place-v3", "mid")
    env.reset(seed=0)
    roll(env, 30)
    snapshot = env.get_state()
    futures = []
    for seed in (5, 6, 5):
        env.set_state(snapshot, seed=seed)
        futures.append(roll(env, 40))
    assert futures[0] == futures[2] != futures[1]
    env.set_state(snapshot)
    continued = roll(env, 40)
    assert continued not in futures
    env.set_state(pickle.loads(pickle.dumps(snapshot)))
    assert roll(env, 40) == continued


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize("cls", [MetaWorldEnv, MetaWorldMRPEnv])
def test_copies_go_on_alike(cls, copied):
    env = cls("basketball-v3", observation="full", goal_visible=False, split="test", task_seed=3, max_episode_steps=90)
    env.action_space.seed(4)
    env.reset(seed=7, options={"task_seed": 8})
    actions = [env.action_space.sample() for _ in range(100)]
    for action in actions[:20]:
        env.step(action)
    twin = copied(env)
    assert twin.action_space == env.action_space
    assert twin.observation_space == env.observation_space
    assert np.array_equal(twin.action_space.sample(), env.action_space.sample())
    for action in actions[20:90]:
        ours, theirs = env.step(action), twin.step(action)
        assert ours[0].tobytes() == theirs[0].tobytes()
        assert ours[1:] == theirs[1:]
    assert ours[3]
    with pytest.raises(ValueError, match=r"call reset\(\)"):
        twin.step(actions[90])
    assert twin.reset()[0].tobytes() == env.reset()[0].tobytes()  # the streams, too
    assert twin.task_seed == 8
    assert twin.np_random_seed == 7


def test_copies_before_the_first_reset_and_through_wrappers():
    env = gym.make("icrl_envs:icrl/MetaWorldMRP-v0", domain="reach-v3")
    twin = copy.deepcopy(env)
    assert env.reset(seed=3)[0].tobytes() == twin.reset(seed=3)[0].tobytes()
    later = copy.deepcopy(env)
    assert roll(env, 10) == roll(twin, 10) == roll(later, 10)


def test_wrong_snapshots():
    env = MetaWorldEnv("reach-v3")
    with pytest.raises(gym.error.ResetNeeded, match=r"call reset\(\)"):
        env.get_state()
    env.reset(seed=0)
    with pytest.raises(TypeError, match=r"snapshot must come from get_state\(\); got an object of type ndarray"):
        env.set_state(np.zeros(3))
    with pytest.raises(ValueError, match=r"snapshot must belong to 'push-v3' with rewards 'v2'.*got one of 'reach-v3'"):
        MetaWorldEnv("push-v3").set_state(env.get_state())
    with pytest.raises(ValueError, match="with rewards 'v1'"):
        MetaWorldEnv("reach-v3", reward_version="v1").set_state(env.get_state())


def test_a_control_snapshot_in_a_reward_process():
    control, process = MetaWorldEnv("reach-v3"), MetaWorldMRPEnv("reach-v3")
    start, _ = control.reset(seed=0)
    snapshot = control.get_state()
    with pytest.raises(ValueError, match=r"no stream of the policy's noise.*seed"):
        process.set_state(snapshot)
    assert process.set_state(snapshot, seed=1).tobytes() == start.tobytes()
    process.step(0)
    assert control.set_state(process.get_state()).tobytes() == process._observe().tobytes()
    assert not hasattr(control, "_policy_stream")


def test_without_a_seed_the_goals_to_come_are_part_of_the_state_too():
    env = MetaWorldEnv("reach-v3")
    env.reset(options={"goal_index": 0})
    snapshot, copied = env.get_state(), copy.deepcopy(env)
    drawn = [env.reset()[1]["goal_index"] for _ in range(4)]
    env.set_state(snapshot)
    assert [each.reset()[1]["goal_index"] for each in (env, copied) for _ in range(4)] == 2 * drawn
