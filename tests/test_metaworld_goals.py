"""Goal sets are the benchmark's own, byte for byte, and cost neither its time nor the global generator."""

import pickle

import metaworld
import numpy as np
import pytest

from icrl_envs.metaworld.domains import DOMAINS
from icrl_envs.metaworld.env import MetaWorldEnv
from icrl_envs.metaworld.goals import split_goals, train_goals


def rand_vecs(tasks):
    return [pickle.loads(task.data)["rand_vec"].tobytes() for task in tasks]


def as_bytes(goals):
    return [goal.tobytes() for goal in goals]


def assert_goals_are_the_benchmarks(domain, task_seed):
    benchmark = metaworld.ML1(domain, seed=task_seed)
    train, test = (split_goals(domain, split, task_seed) for split in ("train", "test"))
    assert as_bytes(train) == rand_vecs(benchmark.train_tasks)
    assert as_bytes(test) == rand_vecs(benchmark.test_tasks)
    assert not set(as_bytes(train)) & set(as_bytes(test))
    assert len(set(as_bytes(train)) | set(as_bytes(test))) == 100


@pytest.mark.parametrize(("domain", "task_seed"), [("pick-place-v3", 0), ("sweep-into-v3", 41), ("door-lock-v3", 7)])
def test_goals_are_the_benchmarks(domain, task_seed):
    assert_goals_are_the_benchmarks(domain, task_seed)


@pytest.mark.slow
@pytest.mark.parametrize("domain", DOMAINS)
def test_goals_are_the_benchmarks_in_every_domain(domain):
    assert_goals_are_the_benchmarks(domain, 12)


def test_test_goals_are_the_train_goals_of_the_next_seed():
    assert np.array_equal(split_goals("reach-v3", "test", 4), split_goals("reach-v3", "train", 5))
    assert split_goals("reach-v3", "all", 4) is None


def test_goal_sets_are_cached_and_read_only():
    goals = train_goals("reach-v3", 4)
    assert train_goals("reach-v3", 4) is goals
    assert goals.shape == (50, 6)
    with pytest.raises(ValueError, match="read-only"):
        goals[0, 0] = 1.0


@pytest.mark.parametrize("split", ["train", "test"])
def test_resets_draw_from_the_split_and_reach_all_of_it(split):
    env = MetaWorldEnv("reach-v3", split=split, task_seed=2)
    indices = set()
    env.reset(seed=0)
    for _ in range(40):
        _, info = env.reset()
        placed = env.simulator._last_rand_vec.tobytes()
        assert placed == split_goals("reach-v3", split, 2)[info["goal_index"]].tobytes()
        indices.add(info["goal_index"])
    assert len(indices) > 15


def test_all_draws_a_new_goal_at_each_reset():
    env = MetaWorldEnv("pick-place-v3", split="all")
    first = [env.reset(seed=3)[0][7:], *(env.reset()[0][7:] for _ in range(5))]
    again = [env.reset(seed=3)[0][7:], *(env.reset()[0][7:] for _ in range(5))]
    assert np.array_equal(first, again)
    assert len({goal.tobytes() for goal in first}) == 6
    assert not {goal.tobytes() for goal in first} & {goal[3:].tobytes() for goal in train_goals("pick-place-v3", 0)}


def test_task_seed_option_goes_over_to_another_set():
    env = MetaWorldEnv("reach-v3", task_seed=1)
    start, _ = env.reset(seed=0, options={"task_seed": 6, "goal_index": 9})
    assert env.task_seed == 6
    assert env.goals is train_goals("reach-v3", 6)
    other = MetaWorldEnv("reach-v3", task_seed=6)
    assert np.array_equal(start, other.reset(seed=5, options={"goal_index": 9})[0])
    assert np.array_equal(env.reset(seed=8)[0], other.reset(seed=8)[0])  # the set stays


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"goal_index": 50}, ValueError, r"goal_index must be an integer in \[0, 49\]; got 50"),
        ({"goal_index": 1.0}, TypeError, "goal_index must be an integer"),
        ({"task_seed": -1}, ValueError, r"task_seed must be an integer in \[0, 4294967294\]; got -1"),
        ({"goal_idx": 1}, ValueError, r"got 'goal_idx'\. Did you mean 'goal_index'\?"),
        ([1], TypeError, "options must be a dictionary or None"),
    ],
)
def test_wrong_options_change_nothing(options, error, message):
    env = MetaWorldEnv("reach-v3")
    env.reset(seed=0)
    expected = env.step(np.zeros(4))[0]
    env.reset(seed=0)
    stream = env.np_random.bit_generator.state
    with pytest.raises(error, match=message):
        env.reset(seed=9, options=options)
    assert env.np_random.bit_generator.state == stream
    assert env.task_seed == 0
    assert np.array_equal(env.step(np.zeros(4))[0], expected)


@pytest.mark.parametrize("key", ["task_seed", "goal_index"])
def test_there_is_no_set_to_choose_from_with_split_all(key):
    env = MetaWorldEnv("reach-v3", split="all")
    with pytest.raises(ValueError, match=f"options must not have '{key}' where split='all'"):
        env.reset(options={key: 0})
