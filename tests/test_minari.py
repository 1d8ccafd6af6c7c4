"""Minari datasets: read as contexts, written by icrl, and read again by Minari itself."""

import json
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from icrl_agents import Context, Episode, collect_episodes
from icrl_agents.datasets import minari_episodes, write_minari_dataset

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")


class Rooms(gym.Env):
    """Composite observations and actions; episodes of three steps, terminated and truncated in turn."""

    observation_space = spaces.Dict(
        {
            "room": spaces.Discrete(3, start=1),
            "at": spaces.Tuple([spaces.Box(-9, 9, (2,), np.float32), spaces.MultiBinary(2)]),
        }
    )
    action_space = spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (1,), np.float64)])
    episode = -1

    def observe(self):
        at = self.np_random.normal(size=2).clip(-9, 9).astype(np.float32)
        return {"room": np.int64(1 + self.t % 3), "at": (at, np.array([self.t % 2, 1], np.int8))}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.episode = 0, self.episode + 1
        return self.observe(), {}

    def step(self, action):
        self.t += 1
        over = self.t == 3
        return self.observe(), float(self.t), over and self.episode % 2 == 0, over and self.episode % 2 == 1, {}


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


ENVS = {
    "float32 box": lambda: gym.make("CartPole-v1"),
    "continuous actions": lambda: gym.make("Pendulum-v1"),
    "discrete": lambda: gym.make("FrozenLake-v1"),
    "composite": Rooms,
}


@pytest.mark.parametrize("make", ENVS.values(), ids=ENVS)
def test_what_is_written_is_read_again_and_by_minari(make):
    env = make()
    written = collect_episodes(env, num_steps=30, seed=0, keep_actions=True)
    write_minari_dataset("mine/random-v0", env, written, algorithm="random")
    dataset = minari.load_dataset("mine/random-v0")
    assert list(minari.list_local_datasets()) == ["mine/random-v0"]
    assert dataset.total_episodes == len(written)
    assert dataset.total_steps == 30
    assert dataset.observation_space == env.observation_space
    assert dataset.storage.metadata["algorithm_name"] == "random"
    read = minari_episodes("mine/random-v0")
    for one, other, theirs in zip(read, written, dataset, strict=True):
        assert one.terminated == other.terminated == theirs.terminations[-1]
        assert theirs.truncations[-1] == (not other.terminated)
        assert one.observations.dtype == other.observations.dtype
        for name in ("observations", "rewards", "actions"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    ours, again = Context.from_episodes(written, 0.9), Context.from_minari(dataset, 0.9)
    for name in ("states", "rewards", "discounts", "next_states"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(again, name))


def test_the_environment_is_recovered_from_the_dataset():
    env = gym.make("icrl_envs:icrl/BoyanChain-v0", num_states=5)
    written = collect_episodes(env, num_steps=9, seed=0, keep_actions=True)
    write_minari_dataset("chain-v3", env, written)
    recovered = minari.load_dataset("chain-v3").recover_environment()
    np.testing.assert_array_equal(
        collect_episodes(recovered, num_steps=9, seed=0)[0].observations, written[0].observations
    )


def test_a_dataset_of_minaris_own_making_is_read():
    env = gym.make("CartPole-v1", max_episode_steps=12)
    buffers = []
    for i in range(4):
        observation, _ = env.reset(seed=i)
        rows, over = [[observation], [], [], [], []], False
        while not over:
            action = int(observation[2] > 0)
            observation, reward, terminated, truncated, _ = env.step(action)
            for column, item in zip(rows, (observation, action, reward, terminated, truncated), strict=True):
                column.append(item)
            over = terminated or truncated
        buffers.append(minari.data_collector.EpisodeBuffer(i, None, None, *rows))
    with pytest.warns(UserWarning, match="is set to None"):
        dataset = minari.create_dataset_from_buffers("theirs-v0", buffers, env=env)
    context = Context.from_minari(dataset, gamma=0.5)
    lengths = [len(buffer.rewards) for buffer in buffers]
    assert len(context) == sum(lengths)
    ends = np.cumsum(lengths) - 1
    expected = [0.0 if buffer.terminations[-1] else 0.5 for buffer in buffers]
    assert {0.0, 0.5} >= set(expected)
    assert context.discounts[ends].tolist() == expected
    np.testing.assert_array_equal(context.next_states[ends], [buffer.observations[-1] for buffer in buffers])


@pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning")  # the collector's own folder
def test_a_dataset_of_minaris_collector_is_read():
    pytest.importorskip("jax")  # which the collector needs
    env = minari.DataCollector(gym.make("CartPole-v1"))
    seen, terminated, truncated = [env.reset(seed=0)[0]], False, False
    while not (terminated or truncated):
        observation, _, terminated, truncated, _ = env.step(0)
        seen.append(observation)
    with pytest.warns(UserWarning, match="is set to None"):
        dataset = env.create_dataset("collected-v0")
    env.close()
    context = Context.from_minari(dataset, gamma=0.9)
    np.testing.assert_array_equal(context.states, seen[:-1])
    np.testing.assert_array_equal(context.next_states[-1], seen[-1])
    assert terminated
    assert context.discounts.tolist() == [0.9] * (len(seen) - 2) + [0.0]


def test_an_episode_that_goes_on_after_its_end_is_named(root):
    env = gym.make("CartPole-v1")
    rows = [np.zeros((4, 4), np.float32), [0, 1, 0], [1.0] * 3, [False, True, False], [False] * 3]
    with pytest.warns(UserWarning, match="is set to None"):
        minari.create_dataset_from_buffers(
            "odd-v0", [minari.data_collector.EpisodeBuffer(0, None, None, *rows)], env=env
        )
    with pytest.raises(ValueError, match="episode 0, step 1: terminated or truncated there, yet it has 3 steps"):
        Context.from_minari("odd-v0", 0.9)


def test_failures_are_named_and_leave_nothing(root):
    env = gym.make("CartPole-v1")
    written = collect_episodes(env, num_steps=5, seed=0, keep_actions=True)
    with pytest.raises(
        FileNotFoundError, match=r"dataset: 'none-v0' is not on this machine; .*minari download none-v0"
    ):
        Context.from_minari("none-v0", 0.9)
    with pytest.raises(TypeError, match=r"dataset: expected a minari.MinariDataset or the id of one, got int"):
        Context.from_minari(3, 0.9)
    for name in ("no version", "name", "name-v"):
        with pytest.raises(ValueError, match=r"dataset id: expected \(namespace/\)name-v\(version\)"):
            write_minari_dataset(name, env, written)
    with pytest.raises(ValueError, match="expected at least one, all with actions; collect with keep_actions=True"):
        write_minari_dataset("a-v0", env, [Episode(written[0].observations, written[0].rewards)])
    wrong = [Episode(np.zeros((2, 3), np.float32), np.ones(1), actions=np.ones((1, 2)))]
    with pytest.raises(ValueError, match=r"episode 0: its observations \(2, 3\) are none of env's Box"):
        write_minari_dataset("own/space/a-v0", env, wrong)
    assert not root.exists() or list(root.iterdir()) == []
    write_minari_dataset("a-v0", env, written)
    with pytest.raises(ValueError, match=r"dataset id: a-v0 exists already at .*; take another name or version"):
        write_minari_dataset("a-v0", env, written)


def test_an_environment_that_the_episodes_are_not_of_is_refused(root):
    written = collect_episodes(gym.make("CartPole-v1"), num_steps=20, seed=0, keep_actions=True)
    for other in ("Pendulum-v1", "FrozenLake-v1"):
        with pytest.raises(
            ValueError, match=r"episode 0: its observations .* are none of env's .* were collected from"
        ):
            write_minari_dataset("odd-v0", gym.make(other), written)
    tiny = Episode(1e-46 * np.float64(written[0].observations), written[0].rewards, actions=written[0].actions)
    with pytest.raises(ValueError, match=r"episode 0: its observations .* are none of env's"):
        write_minari_dataset("odd-v0", gym.make("CartPole-v1"), [tiny])
    none = Episode(written[0].observations[:1], [], actions=written[0].actions[:0])
    with pytest.raises(ValueError, match="episode 1: expected at least one step"):
        write_minari_dataset("odd-v0", gym.make("CartPole-v1"), [written[0], none])
    half = Episode(written[0].observations, written[0].rewards, actions=0.5 * written[0].actions)
    with pytest.raises(ValueError, match=r"episode 0: its actions .* are none of env's Discrete\(2\)"):
        write_minari_dataset("odd-v0", gym.make("CartPole-v1"), [half])
    short = Episode(written[0].observations, written[0].rewards, actions=written[0].actions[:-1])
    with pytest.raises(ValueError, match=r"episode 0: expected \d+ actions, as many as rewards, got"):
        write_minari_dataset("odd-v0", gym.make("CartPole-v1"), [short])
    with pytest.raises(TypeError, match=r"env: expected a single gymnasium.Env, for its spaces, got .*VectorEnv"):
        write_minari_dataset("odd-v0", gym.make_vec("CartPole-v1", 2), written)
    with pytest.raises(TypeError, match="episodes: expected a list of Episode objects, got str"):
        write_minari_dataset("odd-v0", gym.make("CartPole-v1"), "abc")
    assert list(root.iterdir()) == []


def test_damaged_datasets_and_lengths_that_disagree_are_named(root):
    h5py = pytest.importorskip("h5py")
    env = gym.make("CartPole-v1")
    write_minari_dataset("cart-v0", env, collect_episodes(env, num_steps=40, seed=0, keep_actions=True))
    data, about = root / "cart-v0" / "data" / "main_data.hdf5", root / "cart-v0" / "data" / "metadata.json"
    whole, described = data.read_bytes(), about.read_text()
    for name, wrong in (("actions", 30), ("observations", 3), ("terminations", 5)):
        with h5py.File(data, "r+") as file:
            kept = file["episode_0"][name][:wrong]
            del file["episode_0"][name]
            file["episode_0"][name] = kept
        with pytest.raises(ValueError, match=rf"episode 0: expected \d+ {name} beside its \d+ rewards, got {wrong};"):
            minari_episodes("cart-v0")
        data.write_bytes(whole)
    with h5py.File(data, "r+") as file:
        del file["episode_0"]["rewards"]
    damaged = "dataset: Minari cannot read it, so it is damaged or of another version"
    with pytest.raises(ValueError, match=damaged):
        minari_episodes("cart-v0")
    for content in (whole[: len(whole) // 2], b"no hdf5"):
        data.write_bytes(content)
        with pytest.raises(ValueError, match=damaged):
            minari_episodes("cart-v0")
    data.write_bytes(whole)
    for text in (described[:40], json.dumps({})):
        about.write_text(text)
        with pytest.raises(ValueError, match=damaged):
            minari_episodes("cart-v0")
    about.write_text(described)
    assert len(minari_episodes("cart-v0")) > 0


def test_an_id_that_another_process_has_taken_meanwhile_is_named(root, monkeypatch):
    env, rename = gym.make("CartPole-v1"), Path.rename
    written = collect_episodes(env, num_steps=20, seed=0, keep_actions=True)

    def after_the_other(self, target):
        monkeypatch.undo()
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
        write_minari_dataset("space/race-v0", env, written[:1])
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", after_the_other)
    with pytest.raises(
        ValueError, match=r"dataset id: space/race-v0 exists already at .*; take another name or version"
    ):
        write_minari_dataset("space/race-v0", env, written)
    assert len(minari_episodes("space/race-v0")) == 1
    assert not list(root.rglob(".icrl-*"))


def test_without_minari_the_line_that_installs_it_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ImportError, match=r"A Minari dataset needs minari .* pip install 'icrl\[minari\]'"):
        Context.from_minari("a-v0", 0.9)
