"""Ground truth: exact on chains, restored bit by bit in the simulator, kept whole, and what it says of observations."""

import math

import gymnasium as gym
import numpy as np
import pytest

from icrl_agents.collection import collect_episodes
from icrl_agents.ground_truth import (
    GroundTruth,
    ground_truth,
    hidden_share,
    horizon,
    kept_truth,
    nearest,
    observed,
    states_along,
    unexplained_share,
)
from icrl_agents.ground_truth.markov import _left_out
from icrl_envs import FiniteProcess, FixedPolicy
from icrl_envs.adapter import ProcessEnv
from icrl_envs.metaworld.mrp import MetaWorldMRPEnv

GAMMA = 0.8


@pytest.fixture(scope="module")
def chain():
    return gym.make("icrl_envs:icrl/BoyanChain-v0", num_states=6, gamma=GAMMA, task_seed=3)


def test_values_of_a_chain_are_exact_within_their_standard_errors(chain):
    states = states_along(chain, episodes=3, states_per_episode=4, steps=40, seed=0)
    truth = ground_truth(chain, states, gamma=GAMMA, continuations=100, seed=1, missing=1e-4)
    exact = chain.unwrapped.process.values()[[snapshot.state for snapshot in states]]
    assert len({snapshot.state for snapshot in states}) >= 4
    z = (truth.values - exact) / truth.standard_errors
    assert np.abs(z).max() < 4
    assert 0.3 < np.square(z).mean() < 2.5
    assert np.array_equal(truth.observations, chain.unwrapped.process.features[[snapshot.state for snapshot in states]])
    assert (truth.horizon, truth.continuations, truth.gamma) == (42, 100, GAMMA)


def test_returns_and_their_statistics_by_plain_loops(chain):
    env = chain.unwrapped
    states = states_along(chain, episodes=1, states_per_episode=3, steps=9, seed=5)
    truth = ground_truth(chain, states, gamma=GAMMA, continuations=4, seed=2, missing=0.01)
    seeds = [child.generate_state(4) for child in np.random.SeedSequence(2).spawn(3)]
    for i, state in enumerate(states):
        returns = []
        for seed in seeds[i]:
            env.set_state(state, seed=int(seed))
            returns.append(sum(GAMMA**k * env.step(0)[1] for k in range(truth.horizon)))
        assert truth.returns[i] == pytest.approx(returns, rel=1e-12)
        mean = sum(returns) / 4
        variance = sum((g - mean) ** 2 for g in returns) / 3
        assert truth.values[i] == pytest.approx(mean, rel=1e-12)
        assert truth.standard_errors[i] == pytest.approx(math.sqrt(variance / 4), rel=1e-9)
    within = np.mean([np.var(g, ddof=1) for g in truth.returns])
    between = np.var([np.mean(g) for g in truth.returns], ddof=1) - within / 4
    assert truth.return_variance == pytest.approx(within)
    assert truth.value_variance == pytest.approx(between)
    assert truth.noise_share == pytest.approx(within / (within + between) if between > 0 else 1.0)


def test_states_are_of_the_episodes_that_are_collected(chain):
    episodes = collect_episodes(chain, num_episodes=3, max_episode_steps=20, seed=4)
    shown = observed(chain, states_along(chain, episodes=3, states_per_episode=4, steps=20, seed=4, before=12))
    assert len(shown) == 12
    for i, row in enumerate(shown):
        stretch = episodes[i // 4].observations[3 * (i % 4) : 3 * (i % 4) + 3]
        assert (stretch == row).all(1).any()
    with pytest.raises(ValueError, match="before must be"):
        states_along(chain, episodes=1, states_per_episode=4, steps=20, seed=0, before=21)


def test_continuations_depend_on_the_seed_and_not_on_their_number(chain):
    states = states_along(chain, episodes=1, states_per_episode=4, steps=20, seed=0)
    truth = ground_truth(chain, states, gamma=GAMMA, continuations=5, seed=1)
    fewer = ground_truth(chain, states[:2], gamma=GAMMA, continuations=3, seed=1)
    assert np.array_equal(truth.returns[:2, :3], fewer.returns)
    assert not np.array_equal(ground_truth(chain, states, gamma=GAMMA, continuations=5, seed=2).returns, truth.returns)
    again = states_along(chain, episodes=1, states_per_episode=4, steps=20, seed=0)
    assert [snapshot.state for snapshot in again] == [snapshot.state for snapshot in states]


def test_a_chain_goes_back_to_a_state_exactly(chain):
    env = chain.unwrapped
    env.reset(seed=0)
    env.step(0)
    snapshot = env.get_state()
    future = [env.step(0)[1] for _ in range(30)]
    env.reset(seed=9)
    env.set_state(snapshot)
    assert [env.step(0)[1] for _ in range(30)] == future
    others = []
    for seed in (4, 4, 5):
        assert np.array_equal(env.set_state(snapshot, seed=seed), env.process.features[snapshot[0]])
        others.append([env.step(0)[1] for _ in range(30)])
    assert others[0] == others[1] != others[2]
    with pytest.raises(TypeError, match=r"snapshot must come from get_state\(\)"):
        env.set_state(3)
    with pytest.raises(gym.error.ResetNeeded, match=r"get_state\(\) needs a running episode"):
        ProcessEnv(env.process).get_state()


def test_without_noise_a_simulator_has_one_future():
    env = MetaWorldMRPEnv("reach-v3", 0.0, observation="state")
    states = states_along(env, episodes=1, states_per_episode=2, steps=30, seed=0)
    truth = ground_truth(env, states, gamma=0.5, continuations=2, seed=0, missing=0.01)
    env.set_state(states[0])
    future = sum(0.5**k * env.step(0)[1] for k in range(7))
    assert truth.returns.tolist() == [[pytest.approx(future, rel=1e-12)] * 2, [truth.returns[1, 0]] * 2]
    assert truth.standard_errors.tolist() == [0.0, 0.0]
    core = observed(MetaWorldMRPEnv("reach-v3", 0.0), states)
    assert np.array_equal(core[:, :7], truth.observations[:, :7])
    noisy = MetaWorldMRPEnv("reach-v3", "high")
    assert (ground_truth(noisy, states, gamma=0.5, continuations=3, seed=0, missing=0.1).standard_errors > 0).all()


def test_values_are_kept_and_damaged_ones_computed_again(chain, tmp_path):
    states = states_along(chain, episodes=1, states_per_episode=3, steps=9, seed=0)
    calls = []

    def compute():
        calls.append(len(calls))
        return ground_truth(chain, states, gamma=GAMMA, continuations=3, seed=len(calls))

    path = tmp_path / "chain.npz"
    first = kept_truth(path, {"seed": 0}, compute)
    again = kept_truth(path, {"seed": 0}, compute)
    assert calls == [0]
    for name in ("observations", "returns", "gamma", "horizon"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    with pytest.warns(UserWarning, match="it holds other states"):
        kept_truth(path, {"seed": 1}, compute)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.warns(UserWarning, match="not used"):
        kept_truth(path, {"seed": 1}, compute)
    np.savez(path, description=np.array([{}], dtype=object))
    with pytest.warns(UserWarning, match="allow_pickle"):
        kept_truth(path, {"seed": 1}, compute)
    assert calls == [0, 1, 2, 3]
    assert [file.name for file in tmp_path.iterdir()] == ["chain.npz"]


def synthetic(values, noise=0.0, seed=0, count=4):
    rng = np.random.default_rng(seed)
    returns = values[:, None] + noise * rng.standard_normal((len(values), count))
    return GroundTruth(np.arange(len(values), dtype=float)[:, None], returns, 0.9, 10)


def test_what_an_observation_explains():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2))
    truth = synthetic(np.sin(x[:, 0]) + x[:, 1], noise=0.3)
    both, half, none = (unexplained_share(o, truth) for o in (x, x[:, :1], rng.standard_normal((60, 2))))
    assert both < 0.05
    assert 0.4 < half < 0.95
    assert 0.8 < none < 1.3
    assert math.isnan(unexplained_share(x, synthetic(np.ones(60))))


def test_leaving_out_in_closed_form_is_leaving_out():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((9, 2)), rng.standard_normal(9)
    kernel = np.exp(-np.square(x[:, None] - x[None]).sum(-1))
    errors = []
    for i in range(9):
        rest = [j for j in range(9) if j != i]
        weights = np.linalg.solve(kernel[np.ix_(rest, rest)] + 0.1 * np.eye(8), y[rest])
        errors.append((y[i] - kernel[i, rest] @ weights) ** 2)
    assert _left_out(kernel, y, 0.1) == pytest.approx(np.mean(errors), rel=1e-10)


def test_what_states_that_look_the_same_hide():
    rng = np.random.default_rng(2)
    shown, hidden, other = rng.standard_normal((3, 4000))
    share = hidden_share(synthetic(shown + hidden, 1.0, 3), synthetic(shown + other, 1.0, 4))
    assert share == pytest.approx(0.5, abs=0.05)
    with pytest.raises(ValueError, match="the same observations"):
        hidden_share(synthetic(shown), synthetic(shown[:5]))
    assert nearest(np.array([[0.0, 1.0], [5.0, 1.0], [1.0, 1.0]])).tolist() == [2, 2, 0]


def test_the_horizon_leaves_out_what_was_allowed():
    for gamma, missing in ((0.9, 1e-3), (0.5, 0.5), (0.99, 0.2)):
        steps = horizon(gamma, missing)
        assert gamma**steps <= missing < gamma ** (steps - 1)
    assert horizon(0.0, 0.1) == 1


def test_what_cannot_be_continued_is_refused(chain):
    with pytest.raises(TypeError, match=r"get_state\(\) and set_state\(snapshot, seed=...\).*got CartPoleEnv"):
        states_along(gym.make("CartPole-v1"), episodes=1, states_per_episode=1, steps=3, seed=0)
    control = FixedPolicy(gym.make("icrl_envs:icrl/MetaWorld-v0", domain="reach-v3"), lambda o, rng: np.zeros(4))
    with pytest.raises(ValueError, match=r"Markov reward process, with action space Discrete\(1\), got Box"):
        observed(control, [None])
    env = MetaWorldMRPEnv("reach-v3", "low", max_episode_steps=12)
    states = states_along(env, episodes=1, states_per_episode=1, steps=12, seed=0)
    with pytest.raises(ValueError, match="expected 44 steps between each state and the end of its episode"):
        ground_truth(env, states, gamma=0.9, continuations=2, seed=0, missing=0.01)
    with pytest.raises(ValueError, match="steps: expected at most the length of episodes, got 40; one had 12"):
        states_along(env, episodes=1, states_per_episode=4, steps=40, seed=0)
    with pytest.raises(ValueError, match="snapshots: expected at least one"):
        ground_truth(chain, [], gamma=0.9, continuations=2, seed=0)
    with pytest.raises(ValueError, match="gamma must be"):
        ground_truth(chain, [None], gamma=1.0, continuations=2, seed=0)
    with pytest.raises(ValueError, match="continuations must be"):
        ground_truth(chain, [None], gamma=0.9, continuations=1, seed=0)


class Countdown(gym.Env):
    """Pays 1 at each of n steps, and terminates."""

    observation_space = gym.spaces.Box(0, 9, (1,))
    action_space = gym.spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        self.left = 5
        return np.array([self.left]), {}

    def step(self, action):
        self.left -= 1
        return np.array([self.left]), 1.0, self.left == 0, False, {}

    def get_state(self):
        return self.left

    def set_state(self, snapshot, *, seed=None):
        self.left = snapshot
        return np.array([self.left])


def test_a_terminated_return_ends():
    env = Countdown()
    states = states_along(env, episodes=1, states_per_episode=5, steps=5, seed=0)
    truth = ground_truth(env, states, gamma=0.5, continuations=2, seed=0, missing=0.01)
    assert truth.observations[:, 0].tolist() == [5, 4, 3, 2, 1]
    assert truth.values.tolist() == [1.9375, 1.875, 1.75, 1.5, 1.0]


def test_a_process_without_chance_has_its_exact_values():
    env = ProcessEnv(FiniteProcess([[0.0, 1.0], [1.0, 0.0]], [1.0, 0.0], [[1.0], [-1.0]], 0.5, [1.0, 0.0]))
    states = states_along(env, episodes=1, states_per_episode=2, steps=2, seed=0)
    truth = ground_truth(env, states, gamma=0.5, continuations=2, seed=0, missing=1e-9)
    assert truth.values == pytest.approx([4 / 3, 2 / 3], rel=1e-8)
