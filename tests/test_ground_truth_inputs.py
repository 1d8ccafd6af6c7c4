"""States on the edges of their stretches, observations in any unit, and what is refused."""

import json
import math

import gymnasium as gym
import numpy as np
import pytest

from icrl_agents.ground_truth import (
    GroundTruth,
    ground_truth,
    hidden_share,
    horizon,
    kept_truth,
    nearest,
    observed,
    states_along,
    true_centred_msve,
    true_msve,
    unexplained_share,
)
from icrl_agents.ground_truth.files import _described
from icrl_envs import FiniteProcess
from icrl_envs.adapter import ProcessEnv, Snapshot

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(60, 2))
TRUTH = GroundTruth(ROWS, np.sin(ROWS[:, :1]) + 0.01 * RNG.normal(size=(60, 8)), 0.9, 10)


@pytest.mark.parametrize(("count", "steps"), [(2, 3), (4, 5), (40, 60), (7, 7)])
def test_no_state_is_lost_where_two_times_fall_into_one_step(count, steps):
    class Clock(gym.Env):
        observation_space, action_space = gym.spaces.Box(0, 99, (1,)), gym.spaces.Discrete(1)

        def reset(self, *, seed=None, options=None):
            self.time = 0
            return np.zeros(1), {}

        def step(self, action):
            self.time += 1
            return np.zeros(1), 0.0, False, False, {}

        def get_state(self):
            return self.time

        def set_state(self, snapshot, *, seed=None):
            self.time = snapshot
            return np.zeros(1)

    edges = [steps * i / count for i in range(count + 1)]
    for seed in range(10):
        states = states_along(Clock(), episodes=10, states_per_episode=count, steps=steps, seed=seed)
        assert len(states) == 10 * count
        for episode in np.reshape(states, (10, count)).tolist():
            assert episode == sorted(set(episode))
            for i, time in enumerate(episode):
                assert math.floor(edges[i]) <= time < math.ceil(edges[i + 1])


@pytest.mark.parametrize("unit", [1e-9, [1.0, 1e-10], 1e160, 1e-300, 1e307])
def test_observations_may_have_any_unit(unit):
    assert unexplained_share(ROWS * unit, TRUTH) == pytest.approx(unexplained_share(ROWS, TRUTH), rel=1e-6)
    assert (nearest(ROWS * unit) == nearest(ROWS)).all()


def test_observations_most_or_all_of_which_are_equal_have_a_share():
    most = np.concatenate([np.repeat(ROWS[:1], 50, 0), ROWS[50:]])
    assert 0.5 < unexplained_share(most, TRUTH) < 1
    assert unexplained_share(np.zeros((60, 2)), TRUTH) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0]], "expected two rows"),
        (np.full((60, 2), np.nan), "of finite numbers"),
        (ROWS[:, 0], r"got shape \(60,\)"),
        ("ab", "observations: expected a rectangular array of numbers"),
    ],
)
def test_what_are_no_observations_is_refused(rows, message):
    for measure in (nearest, lambda rows: unexplained_share(rows, TRUTH)):
        with pytest.raises((TypeError, ValueError), match=message):
            measure(rows)
    with pytest.raises(ValueError, match="observations: expected one of each of 60 states, got 59"):
        unexplained_share(ROWS[1:], TRUTH)
    assert nearest([[0, 1], [5, 1], [1, 1]]).tolist() == [2, 2, 0]


CHAIN = gym.make("icrl_envs:icrl/BoyanChain-v0", num_states=4)


@pytest.mark.parametrize(
    ("env", "snapshots", "error", "message"),
    [
        (CHAIN.unwrapped.process, [], TypeError, r"env: expected a gymnasium\.Env, got FiniteProcess"),
        (CHAIN, None, TypeError, "snapshots: expected a list, from states_along, got NoneType"),
        (CHAIN, iter([]), TypeError, "snapshots: expected a list"),
        (CHAIN, [], ValueError, "snapshots: expected at least one, got none"),
        (CHAIN, [(1, np.random.default_rng(0))], TypeError, r"snapshot must come from get_state\(\)"),
        (
            CHAIN,
            [Snapshot(7, np.random.default_rng(0), CHAIN.unwrapped.process)],
            ValueError,
            "snapshot must be of a state of the environment's process",
        ),
    ],
)
def test_what_are_no_states_of_an_environment_is_named(env, snapshots, error, message):
    for run in (observed, lambda *both: ground_truth(*both, gamma=0.5, continuations=2, seed=0)):
        with pytest.raises(error, match=message):
            run(env, snapshots)


def test_seeds_may_be_numpy_integers_and_arrays_lists():
    found = [states_along(CHAIN, episodes=2, states_per_episode=2, steps=5, seed=s) for s in (3, np.int64(3))]
    assert [snapshot.state for snapshot in found[0]] == [snapshot.state for snapshot in found[1]]
    truth = GroundTruth([[0], [1]], [[1, 2], [3, 5]], 0.5, 3)
    assert truth.values.tolist() == [1.5, 4.0]
    assert true_msve([1.5, 4], truth).error == pytest.approx(-(0.5**2 + 1) / 2)


@pytest.mark.parametrize("measure", [true_msve, true_centred_msve, unexplained_share])
def test_what_is_no_ground_truth_is_named(measure):
    with pytest.raises(TypeError, match="truth: expected a GroundTruth, got ndarray"):
        measure(ROWS[:, 0], ROWS)
    with pytest.raises(TypeError, match="other: expected a GroundTruth, got NoneType"):
        hidden_share(TRUTH, None)


def test_a_description_cannot_hide_the_versions_and_must_be_json(tmp_path):
    versions = json.loads(_described({}))["versions"]
    described = json.loads(_described({"numpy": "mine", "format": 0}))
    assert described["versions"] == versions
    assert described["description"] == {"numpy": "mine", "format": 0}
    path = str(tmp_path / "truth.npz")
    for _ in range(2):
        assert np.array_equal(kept_truth(path, {"seed": 0}, lambda: TRUTH).returns, TRUTH.returns)
    with pytest.raises(TypeError, match="description: expected strings, numbers and lists"):
        kept_truth(path, {"seed": np.int64(0)}, lambda: TRUTH)
    with pytest.raises(TypeError, match="what compute returns: expected a GroundTruth, got NoneType"):
        kept_truth(path + "2", {"seed": 0}, lambda: None)


def test_wrappers_that_would_not_be_seen_are_refused_and_passive_ones_taken_off():
    passive = gym.wrappers.TimeLimit(gym.wrappers.RecordEpisodeStatistics(CHAIN), 5)
    states = states_along(passive, episodes=1, states_per_episode=2, steps=9, seed=0)
    assert np.array_equal(observed(passive, states), observed(CHAIN, states))
    for wrapped in (
        gym.wrappers.TransformReward(CHAIN, lambda r: 100 * r),
        gym.wrappers.TimeLimit(gym.wrappers.TransformObservation(CHAIN, lambda x: 9 * x, None), 5),
    ):
        with pytest.raises(ValueError, match="env: expected none but passive wrappers, got Transform"):
            ground_truth(wrapped, states, gamma=0.5, continuations=2, seed=0)


def test_returns_without_end_and_truths_of_other_problems_are_refused():
    states = states_along(CHAIN, episodes=1, states_per_episode=1, steps=1, seed=0)
    with pytest.raises(ValueError, match=r"expected returns of at most 10,000,000 rewards, got 6,2\d\d,\d\d\d,"):
        ground_truth(CHAIN, states, gamma=1 - 2**-53, missing=0.5, continuations=2, seed=0)
    with pytest.raises(ValueError, match=r"other: expected gamma=0\.9 and horizon=10, got 0\.9 and 9"):
        hidden_share(TRUTH, GroundTruth(ROWS, TRUTH.returns, 0.9, 9))


def test_a_share_that_has_lost_its_digits_is_refused_at_once():
    assert horizon(1.0 - 1e-9, 1e-300) == pytest.approx(300 * np.log(10) * 1e9)
    with pytest.raises(ValueError, match="missing must be a finite number in"):
        horizon(1.0 - 1e-9, 5e-324)


@pytest.mark.parametrize("count", [8, 5])
@pytest.mark.parametrize("share", [0.0, 0.9, 1.0])
def test_continuations_of_one_seed_hide_nothing_of_what_states_that_look_the_same_hide(count, share):
    rng = np.random.default_rng(1)
    values, others = rng.normal(size=(2, 4000))
    noise, own = rng.normal(size=(2, 4000, 8))
    common = share * noise + math.sqrt(1 - share**2) * own
    truth = GroundTruth(np.arange(4000)[:, None], values[:, None] + noise, 0.9, 10)
    other = GroundTruth(truth.observations, (values + 0.2 * others)[:, None] + common[:, :count], 0.9, 10)
    assert hidden_share(truth, other) == pytest.approx(0.02, abs=0.015)
    assert hidden_share(truth, truth) == pytest.approx(0.0, abs=1e-12)


def test_twins_in_a_chain_may_be_measured_with_one_seed():
    rng, twins = np.random.default_rng(3), np.arange(12) ^ 1
    transitions = 0.95 * np.repeat(rng.dirichlet(np.full(12, 0.3), 6), 2, 0) + 0.05 * rng.dirichlet(np.ones(12), 12)
    rewards = np.repeat(rng.normal(size=6), 2) + 0.1 * rng.normal(size=12)
    looks = np.repeat(np.arange(6.0), 2)[:, None]
    env = ProcessEnv(FiniteProcess(transitions, rewards, looks, 0.9, np.full(12, 1 / 12)))
    values = env.process.values()
    exact = np.square(values - values[twins]).mean() / 2 / values.var(ddof=1)
    truth, other = (
        ground_truth(
            env, [Snapshot(int(i), rng, env.process) for i in states], gamma=0.9, continuations=30, seed=0, missing=0.02
        )
        for states in (np.arange(12), twins)
    )
    assert hidden_share(truth, other) == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("kind", ["episodes", "text"])
def test_a_file_that_is_no_ground_truth_is_not_replaced(tmp_path, kind):
    path = tmp_path / "mine.npz"
    np.savez(path, observations=np.eye(3), returns=np.eye(3)) if kind == "episodes" else path.write_text("notes")
    content = path.read_bytes()
    with pytest.raises(ValueError, match=r"mine.npz: expected a ground truth, or no file yet, got another file"):
        kept_truth(path, {}, lambda: pytest.fail("computed"))
    assert path.read_bytes() == content


def test_a_file_of_zeros_as_a_power_cut_leaves_is_replaced_and_told_of(tmp_path):
    path = tmp_path / "truth.npz"
    path.write_bytes(bytes(500))
    with pytest.warns(UserWarning, match="computing it again, and replacing the file"):
        kept_truth(path, {}, lambda: TRUTH)
    assert np.array_equal(kept_truth(path, {}, lambda: None).returns, TRUTH.returns)


@pytest.mark.parametrize("returned", [None, (np.zeros(1), {})], ids=["nothing", "pair"])
def test_set_state_that_returns_no_observation_is_named(returned):
    class Line(gym.Env):
        observation_space, action_space = gym.spaces.Box(0, 99, (1,)), gym.spaces.Discrete(1)

        def reset(self, *, seed=None, options=None):
            return np.zeros(1), {}

        def step(self, action):
            return np.zeros(1), 0.0, False, False, {}

        def get_state(self):
            return 0

        def set_state(self, snapshot, *, seed=None):
            return returned

    with pytest.raises(ValueError, match=r"set_state.*to return its observation, got (None|\(array)"):
        states_along(Line(), episodes=1, states_per_episode=1, steps=2, seed=0)
    with pytest.raises(ValueError, match=r"set_state.*to return its observation, got (None|\(array)"):
        observed(Line(), [0])
