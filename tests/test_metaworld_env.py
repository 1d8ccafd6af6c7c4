"""The MetaWorld environments keep Gymnasium's contract, in all domains."""

import functools
import hashlib
import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from icrl_envs.metaworld.domains import DOMAINS
from icrl_envs.metaworld.env import MetaWorldEnv
from icrl_envs.metaworld.mrp import MetaWorldMRPEnv

CONTROL, PROCESS = "icrl_envs:icrl/MetaWorld-v0", "icrl_envs:icrl/MetaWorldMRP-v0"

allow_unbounded_boxes = pytest.mark.filterwarnings(
    "ignore:.*A Box observation space (minimum|maximum) value is -?infinity"
)


def an_action(env, t):
    """The only action, or one that changes with t."""
    return 0 if isinstance(env.unwrapped, MetaWorldMRPEnv) else np.sin(0.3 * t + np.arange(4.0))


def digest(env, seed, steps=60):
    """A rollout from the start, to the last bit."""
    sha = hashlib.sha256(env.reset(seed=seed)[0].tobytes())
    for t in range(steps):
        observation, reward, *_ = env.step(an_action(env, t))
        sha.update(observation.tobytes() + np.float64(reward).tobytes())
    return sha.hexdigest()


@allow_unbounded_boxes
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("cls", [MetaWorldEnv, MetaWorldMRPEnv])
def test_check_env(cls, domain):
    observation = ("core", "full", "state")[DOMAINS.index(domain) % 3]
    check_env(cls(domain, observation=observation), skip_render_check=True)


@allow_unbounded_boxes
@pytest.mark.parametrize("observation", ["core", "full", "state"])
@pytest.mark.parametrize("env_id", [CONTROL, PROCESS])
def test_check_env_by_id(env_id, observation):
    env = gym.make(env_id, observation=observation, goal_visible=False, split="all")
    check_env(env.unwrapped, skip_render_check=True)
    assert env.spec is not None
    digest(env, 0)  # under Gymnasium's passive checker


def assert_observations_stay_in_the_space(env, seed):
    observation, _ = env.reset(seed=seed)
    for t in range(500):
        assert observation in env.observation_space, t
        assert observation.dtype == env.observation_space.dtype == np.float64
        observation, reward, terminated, truncated, _ = env.step(an_action(env, t))
        assert type(reward) is float
        assert (terminated, truncated) == (False, t == 499)
    assert observation in env.observation_space
    assert not env.simulator.data.warning.number.any()  # no instability anywhere


@pytest.mark.parametrize("domain", ["pick-place-v3", "shelf-place-v3", "plate-slide-v3", "door-lock-v3"])
def test_observations_stay_in_the_space(domain):
    assert_observations_stay_in_the_space(MetaWorldMRPEnv(domain, observation="state"), 0)


@pytest.mark.slow
@pytest.mark.parametrize("domain", DOMAINS)
def test_observations_stay_in_the_space_in_every_domain(domain):
    for seed, noise in enumerate((0.1, 1.0, 3.0)):
        assert_observations_stay_in_the_space(MetaWorldMRPEnv(domain, noise, observation="state", split="all"), seed)
    assert_observations_stay_in_the_space(MetaWorldEnv(domain, observation="state"), 0)


@pytest.mark.slow
@pytest.mark.parametrize("domain", DOMAINS)
def test_every_start_is_in_the_space(domain):
    for split in ("train", "test"):
        env = MetaWorldEnv(domain, observation="state", split=split)
        for index in range(50):
            assert env.reset(options={"goal_index": index})[0] in env.observation_space


@pytest.mark.parametrize("cls", [MetaWorldEnv, MetaWorldMRPEnv])
def test_the_seed_decides_everything(cls):
    env = cls("push-v3")
    first = digest(env, 7)
    env.reset(seed=3)
    assert digest(env, 7) == first == digest(cls("push-v3"), 7)
    assert digest(env, 8) != first
    env.reset(seed=7)
    unseeded = [env.reset()[0].tobytes() for _ in range(3)]
    env.reset(seed=7)
    assert [env.reset()[0].tobytes() for _ in range(3)] == unseeded
    assert len(set(unseeded)) > 1


def test_the_seed_decides_everything_in_another_process():
    code = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import test_metaworld_env as tests\n" + (
        "print(*(tests.digest(tests.gym.make(name), 7) for name in (tests.CONTROL, tests.PROCESS)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [digest(gym.make(name), 7) for name in (CONTROL, PROCESS)]


def test_noise_and_goals_have_streams_of_their_own():
    """Noise leaves the goals as they are, and a goal that is chosen leaves the noise as it is."""
    quiet, noisy = (MetaWorldMRPEnv("reach-v3", noise) for noise in (0.0, 1.0))
    goals = [[env.reset(seed=5)[1]["goal_index"]] for env in (quiet, noisy)]
    for _ in range(3):
        for env, drawn in zip((quiet, noisy), goals, strict=True):
            env.step(0)
            drawn.append(env.reset()[1]["goal_index"])
    assert goals[0] == goals[1]
    streams = []
    for options in (None, {"goal_index": 0}, {"goal_index": 30}, {"task_seed": 2}):
        noisy.reset(seed=5, options=options)
        noisy.step(0)
        streams.append(noisy._policy_stream.bit_generator.state)
    assert all(stream == streams[0] for stream in streams)


@pytest.mark.parametrize("split", ["train", "all"])
def test_the_global_generator_is_neither_used_nor_changed(split):
    digests = []
    for seed in (0, 1):
        np.random.seed(seed)  # noqa: NPY002 (the global generator is the subject)
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        env = gym.make(PROCESS, domain="soccer-v3", split=split, task_seed=17)
        digests.append(digest(env, 4, steps=100))
        assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert digests[0] == digests[1]


@pytest.mark.parametrize("observation", ["core", "full", "state"])
def test_a_hidden_goal_reads_zero_in_every_row_and_changes_nothing_else(observation):
    goal = slice(7, 10) if observation == "core" else slice(36, 39)
    seen, hidden = (MetaWorldMRPEnv("push-v3", observation=observation, goal_visible=flag) for flag in (True, False))
    rows = [(seen.reset(seed=1)[0], hidden.reset(seed=1)[0])]
    rows += [(seen.step(0)[0], hidden.step(0)[0]) for _ in range(80)]
    for with_goal, without in rows:
        assert not without[goal].any()
        assert with_goal[goal].any()
        without[goal] = with_goal[goal]
        assert without.tobytes() == with_goal.tobytes()


def test_the_observations_contain_one_another():
    core, full, state = (MetaWorldMRPEnv("hammer-v3", observation=name) for name in ("core", "full", "state"))
    rows = [[env.reset(seed=1)[0] for env in (core, full, state)]]
    rows += [[env.step(0)[0] for env in (core, full, state)] for _ in range(20)]
    for before, (small, middle, large) in zip([rows[0], *rows], rows, strict=False):
        assert np.array_equal(small, middle[[0, 1, 2, 3, 4, 5, 6, 36, 37, 38]])
        assert np.array_equal(middle, large[:39])
        assert np.array_equal(middle[18:36], before[1][:18])  # the frame before
    data = state.simulator.data
    assert np.array_equal(large[39:], np.concatenate([data.mocap_pos[0], data.qvel]))
    assert not np.shares_memory(large, data.qvel)


def test_reward_versions_differ_in_the_reward_only():
    new, old = (MetaWorldMRPEnv("reach-v3", reward_version=version) for version in ("v2", "v1"))
    new.reset(seed=0)
    old.reset(seed=0)
    steps = [(new.step(0), old.step(0)) for _ in range(100)]
    assert all(np.array_equal(ours[0], theirs[0]) for ours, theirs in steps)
    assert all(0.0 <= ours[1] <= 10.0 for ours, _ in steps)
    assert max(theirs[1] for _, theirs in steps) > 100.0


def test_in_processes_of_their_own():
    """Spawned workers give what one process gives, and the copies differ from each other."""
    make = functools.partial(gym.make, PROCESS, domain="reach-v3")
    workers = gym.vector.AsyncVectorEnv([make, make], context="spawn")
    together = gym.vector.SyncVectorEnv([make, make])
    actions = np.zeros(2, dtype=np.int64)
    try:
        start, _ = workers.reset(seed=1)
        assert not np.array_equal(start[0], start[1])
        assert np.array_equal(start, together.reset(seed=1)[0])
        for _ in range(10):
            ours, theirs = workers.step(actions), together.step(actions)
            assert np.array_equal(ours[0], theirs[0])
            assert np.array_equal(ours[1], theirs[1])
    finally:
        workers.close()
        together.close()
