"""One adapter turns any process into an environment."""

import copy
import pickle
from dataclasses import dataclass, field

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from icrl_envs import FiniteProcess, ProcessEnv, boyan_chain, rendering
from icrl_envs.cartpole_env import CartPoleEnv
from icrl_envs.chain_envs import BoyanChainEnv, LoopChainEnv
from icrl_envs.rkhs_env import RKHSEnv


class Countdown:
    """A process of the reader's own: from 3 down to 0, where it terminates."""

    gamma = 0.5
    observation_space = spaces.Box(0.0, 3.0, (1,), np.float64)

    def sample_start(self, rng):
        return 3

    def sample_step(self, state, rng):
        return state - 1, float(state), state == 1

    def observe(self, state):
        return np.array([float(state)])


def test_any_process_is_an_environment():
    env = ProcessEnv(Countdown(), render_mode="rgb_array")
    observation, info = env.reset(seed=0)
    steps = [env.step(0) for _ in range(3)]
    assert (observation.tolist(), info) == ([3.0], {"state": 3})
    assert [(o.tolist(), r, term, trunc, i["state"]) for o, r, term, trunc, i in steps] == [
        ([2.0], 3.0, False, False, 2),
        ([1.0], 2.0, False, False, 1),
        ([0.0], 1.0, True, False, 0),
    ]
    assert env.render().shape == (400, 480, 3)


def test_step_before_reset_and_after_termination_is_an_error():
    env = ProcessEnv(Countdown())
    with pytest.raises(gym.error.ResetNeeded, match=r"step\(\) needs a running episode: call reset\(\) first"):
        env.step(0)
    env.reset()
    for _ in range(3):
        env.step(0)
    with pytest.raises(gym.error.ResetNeeded, match="after each termination"):
        env.step(0)


@pytest.mark.parametrize("action", [1, -1, 0.0, None, np.zeros(1)])
def test_the_only_action_is_zero(action):
    env = ProcessEnv(Countdown())
    env.reset()
    with pytest.raises(ValueError, match="action must be 0, the only action of a Markov reward process; got"):
        env.step(action)


def test_a_given_process_has_no_other_tasks():
    with pytest.raises(ValueError, match="runs one given process and draws no tasks"):
        ProcessEnv(Countdown()).reset(options={"task_seed": 1})


def test_reset_seed_leaves_the_task_alone_and_task_seed_replaces_it():
    env = BoyanChainEnv(num_states=6, gamma=0.8, task_seed=3)
    process = env.process
    env.reset(seed=5)
    assert env.process is process
    env.reset(options={"task_seed": 4})
    assert env.task_seed == 4
    expected = boyan_chain(num_states=6, gamma=0.8, task_seed=4)
    np.testing.assert_array_equal(env.process.transition_matrix, expected.transition_matrix)
    assert env.process.gamma == 0.8
    env.reset(seed=5)
    assert env.task_seed == 4


def test_a_refused_reset_changes_nothing():
    env = BoyanChainEnv(task_seed=3)
    env.reset(seed=5)
    before = env.process, env.task_seed, env.np_random.bit_generator.state
    with pytest.raises(gym.error.Error):
        env.reset(seed=-1, options={"task_seed": 4})
    with pytest.raises(ValueError, match="task_seed"):
        env.reset(seed=1, options={"task_seed": -4})
    assert (env.process, env.task_seed, env.np_random.bit_generator.state) == before


def test_the_task_and_the_rollout_use_different_streams():
    rewards = boyan_chain(task_seed=0).rewards
    env = BoyanChainEnv(task_seed=0)
    env.reset(seed=0)
    uniform = np.random.default_rng(0).uniform(-1, 1, len(rewards))
    assert not np.isin(rewards, uniform).any()
    assert (
        env.np_random.bit_generator.state["state"]["inc"]
        == np.random.default_rng(0).bit_generator.state["state"]["inc"]
    )


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_go_on_alike(copied):
    env = BoyanChainEnv()
    env.reset(seed=0)
    env.step(0)
    other = copied(env)
    for _ in range(10):
        ours, theirs = env.step(0), other.step(0)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1:] == theirs[1:]


def test_text_shows_the_state_and_its_value():
    env = BoyanChainEnv(num_states=4, render_mode="ansi")
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        env.render()
    _, info = env.reset(seed=0)
    state = info["state"]
    assert f"[{state}]" in env.render()
    assert env.render().endswith(f"v({state}) = {env.process.values()[state]:.3f}")


def test_rendering_without_a_mode_warns():
    env = BoyanChainEnv()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="needs a render mode"):
        assert env.render() is None


@pytest.mark.parametrize("num_states", [2, 500])
def test_pictures_of_small_and_large_chains(num_states):
    process = boyan_chain(num_states=num_states)
    picture = rendering.image(process, 1)
    assert picture.dtype == np.uint8
    assert (picture != rendering.image(process, 0)).any()


def test_processes_can_bring_their_own_picture():
    class Own(Countdown):
        pass

    @rendering.draw.register
    def draw_own(process: Own, state, axes) -> None:
        axes.plot([0, state])

    assert (rendering.image(Own(), 3) != rendering.image(Countdown(), 3)).any()


def test_the_space_holds_large_features():
    process = FiniteProcess(
        np.array([[0.0, 1.0], [1.0, 0.0]]), np.zeros(2), np.array([[5.0], [-9.0]]), 0.9, np.array([0.5, 0.5])
    )
    assert process.observation_space == spaces.Box(-9.0, 9.0, (1,), np.float64)


def test_states_that_are_numpy_integers_are_told_too():
    class Counting(Countdown):
        def sample_start(self, rng):
            return rng.integers(3, 4)

    assert ProcessEnv(Counting()).reset(seed=0)[1] == {"state": 3}


def test_a_state_of_another_process_is_refused_and_changes_nothing():
    chain, line, plane = BoyanChainEnv(num_states=4), RKHSEnv(dim=1), RKHSEnv(dim=2)
    for env in (chain, line, plane):
        env.reset(seed=0)
    for env, states in (
        (chain, (7, -1, "a", None, np.zeros(1), np.zeros((2, 2)))),
        (line, (3, np.zeros(2), "ab", np.full(1, np.nan))),
        (plane, (plane.process, np.zeros(1))),
    ):
        snapshot = env.get_state()
        for state in states:
            with pytest.raises(
                ValueError, match="snapshot must be of a state of the environment's process; got one of"
            ):
                env.set_state(snapshot._replace(state=state), seed=1)
        assert np.array_equal(env.get_state().state, snapshot.state)


@pytest.mark.parametrize("cls", [BoyanChainEnv, LoopChainEnv, RKHSEnv, CartPoleEnv])
def test_a_state_of_another_task_is_refused_and_one_of_an_equal_process_taken(cls):
    env, twin = cls(task_seed=3), cls(task_seed=4)
    for each in (env, twin):
        each.reset(seed=0)
    snapshot = env.get_state()
    shown = twin.process.observe(twin.get_state().state)
    with pytest.raises(
        ValueError, match=r"snapshot must be of a state of the environment's process; got one of another"
    ):
        twin.set_state(snapshot)
    assert np.array_equal(twin.process.observe(twin.get_state().state), shown)
    env.reset(options={"task_seed": 4})
    with pytest.raises(ValueError, match="got one of another process or task"):
        env.set_state(snapshot)
    twin.reset(options={"task_seed": 3})
    for each in (twin, pickle.loads(pickle.dumps(twin))):
        for copied in (snapshot, pickle.loads(pickle.dumps(snapshot))):
            each.set_state(copied)
            steps = [each.step(0)[:2] for _ in range(5)]
            env.reset(options={"task_seed": 3})
            env.set_state(snapshot)
            for (seen, reward), (expected, paid, *_) in zip(steps, [env.step(0) for _ in range(5)], strict=True):
                assert (seen.tolist(), reward) == (expected.tolist(), paid)


def test_a_process_of_ones_own_whose_equality_is_that_of_arrays_goes_back_to_its_states():
    @dataclass
    class Dice(Countdown):
        faces: np.ndarray = field(default_factory=lambda: np.arange(6))

    env = ProcessEnv(Dice())
    env.reset(seed=0)
    assert ProcessEnv(Dice()).set_state(env.get_state()).tolist() == [3.0]


def test_finite_processes_are_equal_where_their_arrays_and_discounts_are():
    process = boyan_chain(task_seed=1)
    assert process == boyan_chain(task_seed=1) == copy.deepcopy(process)
    assert len({process, boyan_chain(task_seed=1), boyan_chain(task_seed=2)}) == 2
    for other in (boyan_chain(task_seed=2), boyan_chain(task_seed=1, gamma=0.5), boyan_chain(num_states=4), "chain"):
        assert process != other


def test_a_task_of_another_observation_space_is_refused_and_changes_nothing():
    env = ProcessEnv(boyan_chain(num_states=3), draw=lambda task_seed: boyan_chain(num_states=3 + task_seed % 2))
    env.reset(seed=0, options={"task_seed": 2})
    process = env.process
    with pytest.raises(ValueError, match=r"draw must return processes with observation space .*\(3,\).* for task 5"):
        env.reset(options={"task_seed": 5})
    assert env.process is process
    assert env.step(0)[0] in env.observation_space
