"""Episodes in npz files: written, read back bit by bit, and refused where they are damaged or do not fit."""

import itertools
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agents import Context, Episode, collect_episodes, load_episodes, save_episodes


def episodes():
    return collect_episodes(gym.make("CartPole-v1"), num_steps=50, seed=0, keep_actions=True)


def test_episodes_survive_and_numpy_alone_reads_them(tmp_path):
    written = episodes()
    save_episodes(tmp_path / "log.npz", written, "random")
    read = load_episodes(tmp_path / "log.npz")
    assert len(read) == len(written) > 1
    for one, other in zip(read, written, strict=True):
        assert one.terminated is bool(other.terminated)
        assert one.observations.dtype == np.float32
        for name in ("observations", "rewards", "actions"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert [episode.terminated for episode in read] == [True] * (len(read) - 1) + [False]
    with np.load(tmp_path / "log.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == {"observations", "rewards", "lengths", "terminated", "actions", "about"}
        assert arrays["lengths"].sum() == 50 == len(arrays["actions"])
        assert str(arrays["about"]) == "random"
    assert [path.name for path in tmp_path.iterdir()] == ["log.npz"]


def test_a_file_of_ones_own_is_read(tmp_path):
    np.savez(
        tmp_path / "own.npz",
        observations=np.zeros((5, 2)),
        rewards=[1.0, 2, 3],
        lengths=[1, 2],
        terminated=[True, False],
    )
    context = Context.from_episodes(load_episodes(tmp_path / "own.npz"), gamma=0.9)
    assert context.discounts.tolist() == [0.0, 0.9, 0.9]
    assert context.returns()[0].tolist() == [1.0, 2 + 0.9 * 3, 3.0]


GOOD = {
    "observations": np.zeros((5, 2)),
    "rewards": np.ones(3),
    "lengths": np.array([1, 2]),
    "terminated": np.array([True, False]),
}
BAD = {
    "observations with 4 rows": (
        {"observations": np.zeros((4, 2))},
        "expected 5 rows of observations by its lengths, got 4",
    ),
    "flat observations": ({"observations": np.zeros(5)}, r"expected observations with 2 axes, got shape \(5,\)"),
    "rewards with a column": ({"rewards": np.ones((3, 1))}, "expected rewards with 1 axes"),
    "negative lengths": ({"lengths": np.array([-1, 4])}, "expected lengths, at least one, of integers ≥ 0"),
    "real lengths": ({"lengths": np.array([1.0, 2.0])}, "expected lengths, at least one, of integers ≥ 0, got float64"),
    "no episode": ({"lengths": np.array([], int), "terminated": np.array([], bool)}, "expected lengths, at least one"),
    "flags as numbers": ({"terminated": np.array([1, 0])}, "expected terminated with 2 booleans"),
    "three flags": ({"terminated": np.zeros(3, bool)}, "expected terminated with 2 booleans"),
    "too many actions": ({"actions": np.zeros((4, 1))}, "expected 3 rows of actions by its lengths, got 4"),
    "an action NaN": ({"actions": np.array([[0.0], [0.0], [np.nan]])}, "episode 1, step 1: expected a finite action"),
    "a rounded reward": ({"rewards": np.array([1, 2**53 + 1, 1])}, "episode 1, rewards: float64 would round"),
    "NaN": ({"rewards": np.array([1.0, np.nan, 1.0])}, "episode 1, step 0: expected a finite reward"),
    "nothing": (dict.fromkeys(GOOD), "expected the arrays observations, rewards, .* in the file, observations"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD)
def test_arrays_that_do_not_fit_are_named(changes, message, tmp_path):
    arrays = {name: array for name, array in {**GOOD, **changes}.items() if array is not None}
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load_episodes(tmp_path / "bad.npz")


@pytest.mark.parametrize("actions", [np.array([["left"]] * 3), np.zeros((3, 1), complex)])
def test_actions_that_are_no_numbers_are_named(actions, tmp_path):
    np.savez(tmp_path / "bad.npz", **GOOD, actions=actions)
    with pytest.raises(TypeError, match="episode 0, actions: expected real numbers, got"):
        load_episodes(tmp_path / "bad.npz")
    with pytest.raises(TypeError, match="episode 0, actions: expected real numbers, got"):
        save_episodes(tmp_path / "log.npz", [Episode(np.zeros((4, 2)), np.ones(3), actions=actions)])
    assert [path.name for path in tmp_path.iterdir()] == ["bad.npz"]


def test_episodes_of_lists_and_tensors_are_written_as_the_numbers_that_they_are(tmp_path):
    tensors = [torch.full(shape, i, dtype=float, requires_grad=True) for i, shape in enumerate([(2, 1), (1,), (1, 1)])]
    episodes = [Episode([[0], [1]], [2], actions=[[3]]), Episode(*tensors[:2], actions=tensors[2])]  # type: ignore[arg-type]
    save_episodes(tmp_path / "log.npz", episodes)
    one, other = load_episodes(tmp_path / "log.npz")
    assert (one.actions.tolist(), other.actions.tolist()) == ([[3.0]], [[2.0]])
    assert (one.observations.tolist(), one.rewards.tolist()) == ([[0.0], [1.0]], [2.0])
    assert (other.observations.tolist(), other.rewards.tolist()) == ([[0.0], [0.0]], [1.0])


class Code:
    def __reduce__(self):
        return exec, ("raise SystemExit('code was run')",)


def test_what_is_pickled_is_never_run(tmp_path):
    np.savez(tmp_path / "bad.npz", allow_pickle=True, **{**GOOD, "rewards": np.array([Code()], dtype=object)})
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Code()))
    for name in ("bad.npz", "pickle.npz"):
        with pytest.raises(ValueError, match=r"is no npz file of episodes, or damaged \(.*holds pickled objects"):
            load_episodes(tmp_path / name)


def test_a_damaged_file_is_refused_wherever_it_ends(tmp_path):
    save_episodes(tmp_path / "log.npz", episodes())
    content = (tmp_path / "log.npz").read_bytes()
    for length in range(0, len(content), 97):
        (tmp_path / "cut.npz").write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"cut\.npz: is no npz file of episodes, or damaged"):
            load_episodes(tmp_path / "cut.npz")


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        ([], "episodes: expected at least one"),
        (
            [Episode(np.zeros((2, 3)), np.ones(1)), Episode(np.zeros((2, 2)), np.ones(1))],
            r"episode 1: expected \(d, a\)",
        ),
        ([Episode(np.zeros((2, 3)), np.ones(2))], "episode 0: expected one observation more than rewards"),
        ([Episode(np.zeros((2, 3)), np.ones(1), actions=np.zeros(1))], r"actions: expected shape \(T, a\), got \(1,\)"),
        (
            [Episode(np.zeros((2, 3)), np.ones(1), actions=np.zeros((2, 1)))],
            "episode 0: expected one action for each of its 1 rewards, got 2",
        ),
    ],
)
def test_episodes_that_do_not_fit_are_not_written(episodes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        save_episodes(tmp_path / "log.npz", episodes)
    assert list(tmp_path.iterdir()) == []


def test_actions_are_kept_on_request(tmp_path):
    env = gym.make("Pendulum-v1")
    kept, plain = (collect_episodes(env, num_steps=7, seed=0, keep_actions=keep)[0] for keep in (True, False))
    assert plain.actions is None
    assert kept.actions is not None
    assert kept.actions.shape == (7, 1)
    env.reset(seed=0)
    replayed = [env.step(action)[0] for action in kept.actions]
    np.testing.assert_array_equal(replayed, plain.observations[1:])


def test_actions_belong_to_their_own_episode(tmp_path):
    two = [Episode(np.zeros((3, 1)), np.zeros(2), actions=np.full((count, 1), count)) for count in (1, 3)]
    with pytest.raises(ValueError, match=r"episode 0: expected one action for each of its 2 rewards, got 1"):
        save_episodes(tmp_path / "log.npz", two)


def test_what_is_no_list_of_episodes_is_named(tmp_path):
    for wrong in ("abc", 5, Episode(np.zeros((2, 1)), np.zeros(1))):
        with pytest.raises(TypeError, match="episodes: expected a list of Episode objects, got"):
            save_episodes(tmp_path / "log.npz", wrong)
    with pytest.raises(TypeError, match="episodes: expected Episode objects, got int at index 1"):
        save_episodes(tmp_path / "log.npz", [Episode(np.zeros((2, 1)), np.zeros(1)), 3])
    with pytest.raises(TypeError, match="about: expected a string, got int"):
        save_episodes(tmp_path / "log.npz", [Episode(np.zeros((2, 1)), np.zeros(1))], 3)
    assert list(tmp_path.iterdir()) == []


def test_every_damaged_byte_is_noticed_or_harmless(tmp_path):
    path, damaged = tmp_path / "log.npz", tmp_path / "damaged.npz"
    save_episodes(path, [Episode(np.arange(6.0).reshape(3, 2), np.ones(2), actions=np.ones((2, 1)))])
    content, expected = path.read_bytes(), load_episodes(path)[0]
    refused = 0
    for place in range(0, len(content), 3):
        damaged.write_bytes(content[:place] + bytes([content[place] ^ 0x15]) + content[place + 1 :])
        try:
            found = load_episodes(damaged)[0]
        except (ValueError, OSError):
            refused += 1
            continue
        for name in ("observations", "rewards", "actions"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert refused > len(content) / 10


def test_a_single_array_is_refused(tmp_path):
    np.save(tmp_path / "log.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"log\.npy: is no npz file of episodes"):
        load_episodes(tmp_path / "log.npy")


def test_arrays_of_other_names_are_not_passed_over(tmp_path):
    np.savez(tmp_path / "log.npz", **GOOD, action=np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"expected no arrays but .*, got 'action'"):
        load_episodes(tmp_path / "log.npz")


def test_with_any_bit_of_its_table_of_contents_changed_a_file_is_refused_or_whole(tmp_path):
    path = tmp_path / "log.npz"
    written = Episode(np.arange(8.0).reshape(4, 2), np.arange(3.0), True, np.ones((3, 1)))
    save_episodes(path, [written])
    whole, refused = path.read_bytes(), 0
    for place, bit in itertools.product(range(whole.index(b"PK\1\2"), len(whole)), (0, 3, 7)):
        changed = bytearray(whole)
        changed[place] ^= 1 << bit
        path.write_bytes(changed)
        try:
            (read,) = load_episodes(path)
        except ValueError:
            refused += 1
            continue
        for name in ("observations", "rewards", "terminated", "actions"):
            np.testing.assert_array_equal(getattr(read, name), getattr(written, name))
    assert refused > 100


def test_integer_actions_that_those_of_other_episodes_would_round_are_refused(tmp_path):
    whole, part = (Episode(np.zeros((2, 1)), np.ones(1), True, np.array([[a]])) for a in (2**53 + 1, 0.5))
    with pytest.raises(ValueError, match="episode 0, actions: float64 would round the integer 9007199254740993"):
        save_episodes(tmp_path / "a.npz", [whole, part])
    save_episodes(tmp_path / "a.npz", [whole])
    assert load_episodes(tmp_path / "a.npz")[0].actions.item() == 2**53 + 1
