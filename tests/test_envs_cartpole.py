"""CartPole as a process against Gymnasium's own."""

import copy
import dataclasses
import math
import pickle
import sys

import gymnasium as gym
import numpy as np
import pytest

from icrl_envs.cartpole import CartPoleProcess, random_cartpole, random_cartpoles
from icrl_envs.cartpole_batch import CartPoleBatch

STANDARD = {"gravity": 9.8, "cart_mass": 1.0, "pole_mass": 0.1, "pole_half_length": 0.5, "force": 10.0, "gamma": 0.9}
CONTROLLER = (0.1, 0.2, 0.9, 0.8)


def test_standard_physics_under_a_greedy_policy_is_gymnasiums_cartpole():
    process = CartPoleProcess(**STANDARD, controller=CONTROLLER, epsilon=0.0)
    rng = np.random.default_rng(0)
    oracle = gym.make("CartPole-v1").unwrapped
    oracle.reset(seed=0)
    state = oracle.state
    for _ in range(200):
        action = 1 if sum(w * s for w, s in zip(CONTROLLER, state.tolist(), strict=True)) > 0 else 0
        _, reward, terminated, _, _ = oracle.step(action)
        state, own_reward, own_terminated = process.sample_step(state, rng)
        np.testing.assert_array_equal(state, oracle.state)
        assert (own_reward, own_terminated) == (reward, terminated)
        if terminated:
            break


def plain_step(p, state, action):
    """The cart-pole equations of Barto, Sutton and Anderson by plain arithmetic, one Euler step of 0.02 s."""
    x, speed, angle, turn = state
    total = p.cart_mass + p.pole_mass
    push = p.force if action == 1 else -p.force
    sine, cosine = math.sin(angle), math.cos(angle)
    common = (push + p.pole_mass * p.pole_half_length * turn**2 * sine) / total
    bend = (p.gravity * sine - cosine * common) / (p.pole_half_length * (4 / 3 - p.pole_mass * cosine**2 / total))
    pull = common - p.pole_mass * p.pole_half_length * bend * cosine / total
    return [x + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend]


@pytest.mark.parametrize("task_seed", range(5))
def test_random_physics_follow_the_equations(task_seed):
    process = dataclasses.replace(random_cartpole(task_seed=task_seed), epsilon=0.0)
    rng = np.random.default_rng(task_seed)
    for _ in range(20):
        state = rng.normal(size=4) * [1.0, 1.0, 0.1, 1.0]
        action = 1 if sum(w * s for w, s in zip(process.controller, state.tolist(), strict=True)) > 0 else 0
        next_state, _, _ = process.sample_step(state, rng)
        np.testing.assert_allclose(next_state, plain_step(process, state.tolist(), action), rtol=1e-12, atol=1e-14)


def test_epsilon_is_the_share_of_random_actions():
    process = CartPoleProcess(**STANDARD, controller=CONTROLLER, epsilon=0.3)
    rng = np.random.default_rng(0)
    state = np.array([0.0, 0.0, 0.05, 0.0])
    right = sum(process.sample_step(state, rng)[0][1] > 0 for _ in range(4000)) / 4000
    assert right == pytest.approx(1 - 0.3 / 2, abs=5 * np.sqrt(0.85 * 0.15 / 4000))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"epsilon": float("nan")}, ValueError),
        ({"epsilon": 1.5}, ValueError),
        ({"gamma": 1.0}, ValueError),
        ({"gravity": float("inf")}, ValueError),
        ({"pole_mass": 0.0}, ValueError),
        ({"force": "10"}, TypeError),
        ({"controller": (1.0, 2.0, 3.0)}, ValueError),
        ({"controller": (1.0, 2.0, 3.0, float("nan"))}, ValueError),
        ({"controller": "abcd"}, TypeError),
    ],
)
def test_what_is_no_physics_or_policy_is_named(change, error):
    with pytest.raises(error, match=f"{next(iter(change))} must"):
        CartPoleProcess(**{**STANDARD, "controller": CONTROLLER, "epsilon": 0.3, **change})


def test_a_step_is_a_pure_function_of_state_and_generator():
    process = random_cartpole(task_seed=2)
    state = process.sample_start(np.random.default_rng(0))
    before = state.copy()
    first = process.sample_step(state, np.random.default_rng(1))
    process.sample_step(np.array([3.0, 0.0, 0.0, 0.0]), np.random.default_rng(2))  # a terminal step in between
    for again in (process, copy.deepcopy(process), pickle.loads(pickle.dumps(process))):
        next_state, *outcome = again.sample_step(state, np.random.default_rng(1))
        np.testing.assert_array_equal(next_state, first[0])
        assert outcome == list(first[1:])
    np.testing.assert_array_equal(state, before)


def test_tasks_differ_in_physics_and_policy():
    tasks = [random_cartpole(task_seed=k) for k in range(20)]
    for name, low, high in (
        ("gravity", 7, 13),
        ("cart_mass", 0.5, 2),
        ("pole_half_length", 0.25, 1),
        ("epsilon", 0.1, 0.5),
    ):
        drawn = [getattr(task, name) for task in tasks]
        assert len(set(drawn)) == 20
        assert low <= min(drawn) < max(drawn) <= high
    assert random_cartpole(task_seed=3) == tasks[3]


def test_episodes_terminate_at_the_bounds_and_are_truncated_by_the_limit():
    env = gym.make("icrl/CartPole-v0", task_seed=1)
    observation, _ = env.reset(seed=0)
    terminated = truncated = False
    while not (terminated or truncated):
        assert abs(observation[0]) <= 2.4
        assert abs(observation[2]) <= 12 * 2 * np.pi / 360
        observation, reward, terminated, truncated, _ = env.step(0)
        assert reward == 1.0
    assert terminated
    assert abs(observation[0]) > 2.4 or abs(observation[2]) > 12 * 2 * np.pi / 360
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        env.step(0)
    short = gym.make("icrl/CartPole-v0", max_episode_steps=3)
    short.reset(seed=0)
    assert [short.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


def test_pictures_need_no_pygame():
    env = gym.make("icrl/CartPole-v0", render_mode="rgb_array")
    env.reset(seed=0)
    env.render()
    assert "pygame" not in sys.modules


def test_a_batch_moves_each_process_by_its_own_physics_and_policy():
    processes = [dataclasses.replace(random_cartpole(task_seed=k), epsilon=0.0) for k in range(6)]
    batch, rng = CartPoleBatch(processes), np.random.default_rng(0)
    states = rng.normal(size=(6, 4)) * [1.5, 1.0, 0.15, 1.0]
    moved, rewards, fallen = batch.sample_step(states, rng)
    for process, state, after, down in zip(processes, states, moved, fallen, strict=True):
        expected, _, terminated = process.sample_step(state, rng)
        np.testing.assert_allclose(after, expected, rtol=1e-12, atol=1e-14)
        assert down == terminated
    assert fallen.any()
    assert not fallen.all()
    assert (rewards == 1.0).all()
    starts = batch.sample_start(rng)
    assert starts.shape == (6, 4)
    assert np.abs(starts).max() <= 0.05


def test_a_share_epsilon_of_the_actions_of_a_batch_is_random():
    process = dataclasses.replace(random_cartpole(task_seed=1), epsilon=0.4)
    batch = CartPoleBatch([process] * 20_000)
    state = np.array([0.1, 0.2, 0.05, 0.3])  # the greedy action is 1
    moved, _, _ = batch.sample_step(np.tile(state, (20_000, 1)), np.random.default_rng(0))
    greedy, _, _ = dataclasses.replace(process, epsilon=0.0).sample_step(state, np.random.default_rng(0))
    assert (moved == greedy).all(axis=1).mean() == pytest.approx(0.8, abs=0.015)


def test_many_processes_have_the_ranges_of_one():
    many = random_cartpoles(400, np.random.default_rng(0), gamma=0.8)
    one = [random_cartpole(gamma=0.8, task_seed=k) for k in range(400)]
    for name in ("gravity", "cart_mass", "pole_mass", "pole_half_length", "force", "epsilon"):
        drawn, expected = ([getattr(process, name) for process in each] for each in (many, one))
        assert np.mean(drawn) == pytest.approx(np.mean(expected), rel=0.08)
        assert min(drawn) == pytest.approx(min(expected), abs=0.1 * np.mean(expected))
    assert {process.gamma for process in many} == {0.8}


class Calm(CartPoleProcess):
    """Never pushes at random."""

    def sample_step(self, state, rng):
        return super().sample_step(state, np.random.default_rng(0))


def test_only_cartpoles_of_one_discount_that_step_as_such_are_a_batch():
    process = random_cartpole()
    own = Calm(**{entry.name: getattr(process, entry.name) for entry in dataclasses.fields(process)})
    with pytest.raises(ValueError, match="processes must sample_step as CartPoleProcess does"):
        CartPoleBatch([process, own])
    with pytest.raises(
        ValueError, match=r"processes must have the same gamma; got 0\.9 at index 0 and 0\.5 at index 1"
    ):
        CartPoleBatch([process, random_cartpole(gamma=0.5)])
