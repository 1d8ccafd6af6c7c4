"""Gymnasium's ways of using an environment work with every id: vector modes, wrappers, pictures, texts, videos."""

import ctypes.util
import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers

import icrl_envs  # noqa: F401 - registers the environments

IDS = sorted(id for id in gym.registry if id.startswith("icrl/"))
WITH_PROCESS = [id for id in IDS if not id.startswith("icrl/MetaWorld")]
BATCHED = [id for id in IDS if gym.spec(id).vector_entry_point is not None]


def rollout(env, steps=12):
    """Returns the observations, rewards and ends of a few random steps."""
    env.action_space.seed(0)
    observations, outcomes = [env.reset(seed=0)[0]], []
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        observations.append(observation)
        outcomes.append((reward, terminated, truncated))
        if terminated or truncated:
            observations.append(env.reset()[0])
    return np.array(observations), outcomes


@pytest.mark.parametrize(
    ("id", "mode"),
    [(id, "sync") for id in IDS] + [(id, "async") for id in IDS] + [(id, "vector_entry_point") for id in BATCHED],
)
def test_every_vector_mode_steps_and_keeps_to_its_spaces(id, mode):
    envs = gym.make_vec(id, num_envs=3, vectorization_mode=mode, max_episode_steps=4)
    envs.action_space.seed(0)
    observations, _ = envs.reset(seed=0)
    assert observations in envs.observation_space
    truncations = []
    for _ in range(9):
        observations, rewards, terminations, truncated, _ = envs.step(envs.action_space.sample())
        assert observations in envs.observation_space
        assert rewards.shape == terminations.shape == truncated.shape == (3,)
        truncations.append(truncated)
    envs.close()
    # truncated after four steps each; the step that restarts (autoreset mode NEXT_STEP) is none of the episode's
    assert np.flatnonzero(np.all(truncations, axis=1)).tolist() == [3, 8]


def test_an_id_without_a_native_batch_says_so():
    without = next(id for id in IDS if id not in BATCHED)
    with pytest.raises(gym.error.Error, match="vector"):
        gym.make_vec(without, num_envs=2, vectorization_mode="vector_entry_point")


@pytest.mark.parametrize("id", IDS)
def test_wrappers_compose_and_do_what_they_say(id):
    plain, outcomes = rollout(gym.make(id, max_episode_steps=5))
    env = wrappers.TimeLimit(gym.make(id), 5)
    env = wrappers.RecordEpisodeStatistics(wrappers.FlattenObservation(env))
    env = wrappers.TransformReward(env, lambda reward: 2 * reward)
    env = wrappers.TransformObservation(env, lambda x: 3 * x, env.observation_space)
    env = wrappers.TimeAwareObservation(wrappers.FrameStackObservation(env, 2), flatten=True)
    seen, doubled = rollout(env)
    assert [outcome[1:] for outcome in doubled] == [outcome[1:] for outcome in outcomes]
    np.testing.assert_allclose([reward for reward, *_ in doubled], [2 * reward for reward, *_ in outcomes])
    np.testing.assert_allclose(seen[:, plain.shape[1] : 2 * plain.shape[1]], 3 * plain)
    ended = np.cumsum([0.0, *[reward for reward, *_ in outcomes]])
    statistics = env.get_wrapper_attr("return_queue")
    assert statistics[0] == pytest.approx(ended[1 + np.flatnonzero([any(ends) for _, *ends in outcomes])[0]])


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize(
    "wrapper",
    [
        wrappers.NormalizeObservation,
        wrappers.NormalizeReward,
        wrappers.Autoreset,
        lambda env: wrappers.ClipReward(env, -0.5, 0.5),
        lambda env: wrappers.DelayObservation(env, 2),
        lambda env: wrappers.StickyAction(env, 0.25),
    ],
    ids=["NormalizeObservation", "NormalizeReward", "Autoreset", "ClipReward", "DelayObservation", "StickyAction"],
)
def test_every_wrapper_steps(id, wrapper):
    observations, outcomes = rollout(wrapper(gym.make(id, max_episode_steps=50)))
    assert np.isfinite(observations).all()
    assert np.isfinite([reward for reward, *_ in outcomes]).all()


@pytest.mark.parametrize("name", ["NormalizeObservation", "FlattenObservation", "RecordEpisodeStatistics"])
@pytest.mark.parametrize("id", WITH_PROCESS)
def test_vector_wrappers_take_native_and_synchronous_batches(id, name):
    for mode in ("sync", *(["vector_entry_point"] if id in BATCHED else [])):
        envs = getattr(wrappers.vector, name)(gym.make_vec(id, num_envs=2, vectorization_mode=mode))
        envs.reset(seed=0)
        for _ in range(3):
            observations, *_ = envs.step(np.zeros(2, dtype=np.int64))
        assert observations.shape[0] == 2
        envs.close()


@pytest.mark.parametrize("id", WITH_PROCESS)
def test_the_process_is_reached_through_wrappers_and_batches(id):
    env = wrappers.RecordEpisodeStatistics(wrappers.TimeLimit(gym.make(id), 3))
    assert env.get_wrapper_attr("process") is env.unwrapped.process
    assert env.has_wrapper_attr("process")
    envs = gym.make_vec(id, num_envs=2, vectorization_mode="sync")
    assert [type(process) for process in envs.get_attr("process")] == [type(env.unwrapped.process)] * 2


@pytest.mark.parametrize("id", ["icrl/BoyanChain-v0", "icrl/LoopChain-v0"])
def test_chains_render_as_text(id):
    env = gym.make(id, num_states=4, render_mode="ansi")
    _, info = env.reset(seed=0)
    text = env.render()
    state, v = info["state"], env.get_wrapper_attr("process").values()
    expected = " ".join(f"[{s}]" if s == state else str(s) for s in range(4))
    assert text == f"{expected}   v({state}) = {v[state]:.3f}"


@pytest.mark.parametrize("id", WITH_PROCESS)
def test_pictures_come_in_lists_and_from_batches(id):
    env = gym.make(id, render_mode="rgb_array_list")
    rollout(env, 2)
    assert [picture.shape for picture in env.render()] == [(400, 480, 3)] * 3
    for mode in ("sync", *(["vector_entry_point"] if id in BATCHED else [])):
        envs = gym.make_vec(id, num_envs=2, vectorization_mode=mode, render_mode="rgb_array")
        envs.reset(seed=0)
        first, second = envs.render()
        assert first.shape == second.shape == (400, 480, 3)
        envs.close()


VIDEO = """
import sys, gymnasium as gym, icrl_envs
from gymnasium.wrappers import RecordVideo
env = RecordVideo(gym.make(sys.argv[1], render_mode="rgb_array", max_episode_steps=4), sys.argv[2])
env.reset(seed=0)
while not any(env.step(env.action_space.sample())[2:4]):
    pass
env.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("id", IDS)
def test_videos_are_recorded(id, tmp_path):
    pytest.importorskip("moviepy")  # which the wrapper needs
    if "MetaWorld" in id and ctypes.util.find_library("EGL") is None:
        pytest.skip("needs libegl1 and libgl1-mesa-dri")
    command = [sys.executable, "-c", VIDEO, id, str(tmp_path / "videos")]
    subprocess.run(command, check=True, env={**os.environ, "MUJOCO_GL": "egl"})
    assert [path.name for path in (tmp_path / "videos").glob("*.mp4")] == ["rl-video-episode-0.mp4"]
