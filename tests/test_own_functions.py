"""Policies, scripts, evaluators and processes of one's own that write into what they get or give, or keep a state."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces, wrappers
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from icrl_agents.collection import collect, collect_episodes
from icrl_agents.control.improvement import AmplifiedPolicy, cross_fitted_advantages
from icrl_agents.episode import Episode
from icrl_agents.evaluators import WeightedSoftmaxTD
from icrl_agents.ground_truth import ground_truth, states_along
from icrl_agents.kernels import RBF
from icrl_envs import FiniteProcess, FixedPolicy, ProcessEnv, RKHSProcess
from icrl_envs.batches import FiniteBatch, RKHSBatch
from icrl_envs.vector import ProcessVectorEnv


class Own(gym.Env):
    """Shows its own state; an action moves it."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self, action_space):
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.steps = self.np_random.normal(size=2), 0
        return self.state, {}

    def step(self, action):
        self.state, self.steps = 0.9 * self.state + action, self.steps + 1
        return self.state, float(self.state.sum()), False, self.steps == 5, {}


BOX, BITS = spaces.Box(-1.0, 1.0, (2,), np.float64), spaces.MultiBinary(2)


def pushes(observation, rng):
    return (observation - 1.0) / 2.0


def pushes_in_place(observation, rng):
    observation -= 1.0
    observation /= 2.0
    return observation


class Model:
    """What Stable-Baselines3's models look like."""

    def __init__(self, policy):
        self.policy = policy

    def predict(self, observation, deterministic):
        return self.policy(observation, None), None


@pytest.mark.parametrize("kind", [lambda policy: policy, Model])
def test_a_policy_that_writes_into_its_observation_changes_no_row(kind):
    expected = collect(Own(BOX), num_steps=12, gamma=0.9, seed=0, policy=pushes)
    for env, policy in ((Own(BOX), kind(pushes_in_place)), (FixedPolicy(Own(BOX), kind(pushes_in_place)), None)):
        found = collect(env, num_steps=12, gamma=0.9, seed=0, policy=policy)
        assert found.states.equal(expected.states)
        assert found.rewards.equal(expected.rewards)
    for mode in AutoresetMode:
        copies = SyncVectorEnv([lambda: Own(BOX)] * 2, autoreset_mode=mode)
        found = collect(copies, num_steps=12, gamma=0.9, seed=0, policy=kind(pushes_in_place), stack=True)
        assert found.rewards[0].equal(expected.rewards)


@pytest.mark.parametrize("space", [BOX, BITS])
def test_a_policy_that_returns_one_array_again_and_again_acts_in_each_copy_by_itself(space):
    buffer = np.zeros(2, space.dtype)

    def fresh(observation, rng):
        return (observation > 0.5).astype(space.dtype)

    def reused(observation, rng):
        buffer[:] = observation > 0.5
        return buffer

    expected, found = (
        collect_episodes(
            SyncVectorEnv([lambda: Own(space)] * 4), num_steps=12, seed=0, policy=policy, keep_actions=True
        )
        for policy in (fresh, reused)
    )
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one.actions, other.actions)
        np.testing.assert_array_equal(one.observations, other.observations)


def test_a_script_that_writes_into_its_observation_leaves_it_as_it_was():
    observations = np.random.default_rng(0).normal(size=(5, 2))
    before = observations.copy()
    policy = AmplifiedPolicy(lambda observation: pushes_in_place(observation, None), np.zeros(2), 0.1)
    expected = AmplifiedPolicy(lambda observation: pushes(observation, None), np.zeros(2), 0.1).means(observations)
    np.testing.assert_array_equal(policy.means(observations), expected)
    policy(observations[0], np.random.default_rng(0))
    np.testing.assert_array_equal(observations, before)


class Keeps:
    """An evaluator that is its own value function, as in scikit-learn."""

    def fit(self, context) -> Any:
        self.values = WeightedSoftmaxTD(RBF(0.5), 10).fit(context)
        return self

    def __call__(self, states):
        return self.values(states)


def test_cross_fitting_asks_an_evaluator_that_keeps_its_fit_before_it_is_fitted_again():
    rng = np.random.default_rng(0)
    episodes = [Episode(rng.normal(size=(6, 2)), rng.normal(size=5)) for _ in range(5)]
    expected, found = (
        cross_fitted_advantages(episodes, evaluator, gamma=0.9, lambda_=0.9, folds=2)
        for evaluator in (WeightedSoftmaxTD(RBF(0.5), 10), Keeps())
    )
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


class Decay:
    """Its state, an array, is halved in place, and starts from one of the process."""

    gamma, observation_space = 0.9, spaces.Box(-1.0, 1.0, (1,), np.float64)

    def __init__(self):
        self.first = np.ones(1)

    def sample_start(self, rng):
        return self.first

    def sample_step(self, state, rng):
        state /= 2
        return state, float(state[0]), False

    def observe(self, state):
        return state.copy()


class Shown(Decay):
    """Shows its state itself."""

    def observe(self, state):
        return state


def test_a_process_whose_steps_write_into_its_state_starts_every_episode_alike():
    context = collect(ProcessEnv(Decay()), num_episodes=2, max_episode_steps=2, gamma=0.9, seed=0)
    assert context.states[:, 0].tolist() == [1.0, 0.5, 1.0, 0.5]
    with pytest.raises(ValueError, match="process must observe a new array on each call"):
        ProcessEnv(Shown()).reset(seed=0)


@pytest.mark.parametrize(
    "env",
    [
        lambda: wrappers.TimeLimit(wrappers.NormalizeObservation(Own(BOX)), 5),
        lambda: wrappers.vector.NormalizeReward(SyncVectorEnv([lambda: Own(BOX)])),
        lambda: SyncVectorEnv([lambda: wrappers.NormalizeObservation(Own(BOX))]),
    ],
)
def test_a_wrapper_that_goes_on_updating_its_statistics_is_told_of(env):
    env = env()
    with pytest.warns(UserWarning, match="goes on updating its statistics, so that one state or reward is") as warned:
        collect(env, num_steps=9, gamma=0.9, seed=0, policy=pushes)
    assert warned[0].filename == __file__
    frozen: Any = env.envs[0] if hasattr(env, "envs") else env.env if isinstance(env, wrappers.TimeLimit) else env
    frozen.update_running_mean = False
    collect_episodes(env, num_steps=9, seed=0, policy=pushes)


class Halved(gym.Env):
    """Its state, an array, is halved in place."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (1,), np.float64), spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.normal(size=1)
        return self.state, {}

    def step(self, action):
        self.state /= 2
        return self.state, float(self.state[0]), False, False, {}

    def get_state(self):
        return self.state.copy()

    def set_state(self, snapshot, *, seed=None):
        self.state = snapshot.copy()
        return self.state


class Gives(Halved):
    def get_state(self):
        return self.state


class Takes(Halved):
    def set_state(self, snapshot, *, seed=None):
        self.state = snapshot
        return self.state


def test_snapshots_that_steps_write_into_are_refused():
    def values(env):
        states = states_along(env, episodes=2, states_per_episode=2, steps=10, seed=0)
        return ground_truth(env, states, gamma=0.5, continuations=3, seed=0)

    truth = values(Halved())
    np.testing.assert_allclose(truth.values, truth.observations[:, 0] * 0.5 / 0.75, rtol=1e-3)
    for env in (Gives(), Takes()):
        with pytest.raises(ValueError, match="env: expected a snapshot to show what its state showed before"):
            values(env)


class Noisy(FiniteProcess):
    def sample_step(self, state, rng):
        following, reward, terminated = super().sample_step(state, rng)
        return following, reward + rng.normal(), terminated


class Blurred(RKHSProcess):
    def observe(self, state):
        return np.round(state)


class Named(FiniteProcess):
    """Has a name."""


def test_a_process_with_steps_of_its_own_is_no_part_of_a_batch_that_makes_them_itself():
    chain = np.eye(2)[::-1], np.ones(2), np.eye(2), 0.5, np.ones(2) / 2
    with pytest.raises(ValueError, match="processes must sample_step as FiniteProcess does"):
        ProcessVectorEnv(lambda task_seed: Noisy(*chain), FiniteBatch.stack, 2)
    with pytest.raises(ValueError, match="processes must observe as RKHSProcess does"):
        ProcessVectorEnv(lambda task_seed: Blurred(task_seed=task_seed), RKHSBatch, 2)
    assert len(FiniteBatch.stack([Named(*chain)] * 2)) == 2
