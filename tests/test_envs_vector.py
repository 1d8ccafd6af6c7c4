"""Native batched environments: every copy is its own task, and all of them obey their processes."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import icrl_envs
from icrl_envs.batches import FiniteBatch
from icrl_envs.process import FiniteProcess
from icrl_envs.vector import ProcessVectorEnv

IDS = [id for id, spec in gym.registry.items() if id.startswith("icrl/") and spec.vector_entry_point]
FINITE = ["icrl/BoyanChain-v0", "icrl/LoopChain-v0"]
vector_ids = pytest.mark.parametrize("id", IDS)


def make(id, num_envs=4, **arguments):
    return gym.make_vec(id, num_envs, vectorization_mode="vector_entry_point", **arguments)


def rollout(envs, seed, steps=30):
    observation, _ = envs.reset(seed=seed)
    record = [(observation, np.zeros(envs.num_envs))]
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = envs.step(np.zeros(envs.num_envs, dtype=np.int64))
        assert not terminated.any()
        assert observation in envs.observation_space
        assert observation.dtype == envs.observation_space.dtype == np.float64
        assert (reward.dtype, terminated.dtype, truncated.dtype) == (np.float64, np.bool_, np.bool_)
        record.append((observation, reward))
    return [np.stack(parts, axis=1) for parts in zip(*record, strict=True)]


def test_the_three_ids_have_a_native_vector_environment():
    assert sorted(IDS) == ["icrl/BoyanChain-v0", "icrl/LoopChain-v0", "icrl/RKHS-v0"]
    assert make(IDS[0]).metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


@vector_ids
def test_copy_i_is_the_task_of_the_single_environment(id):
    envs = make(id, 3, task_seed=10, gamma=0.8)
    states = np.random.default_rng(0).normal(size=(5, 1))
    for i, process in enumerate(envs.unwrapped.processes):
        single = gym.make(id, task_seed=10 + i, gamma=0.8)
        expected = single.unwrapped.process
        assert envs.single_observation_space == single.observation_space
        assert envs.single_action_space == single.action_space
        if id in FINITE:
            np.testing.assert_array_equal(process.transition_matrix, expected.transition_matrix)
            np.testing.assert_array_equal(process.values(), expected.values())
        else:
            np.testing.assert_array_equal(process.values(states), expected.values(states))


@vector_ids
def test_rollouts_are_reproduced_and_copies_differ(id):
    envs = make(id)
    observations, rewards = rollout(envs, 1)
    again = rollout(envs, 1)
    np.testing.assert_array_equal(observations, again[0])
    np.testing.assert_array_equal(rewards, again[1])
    np.testing.assert_array_equal(observations, rollout(make(id), 1)[0])
    assert (observations != rollout(envs, 2)[0]).any()
    assert len({copy.tobytes() for copy in observations}) == 4


@vector_ids
def test_a_spec_rebuilds_the_vector_environment(id):
    envs = make(id, task_seed=3)
    rebuilt = gym.make_vec(gym.envs.registration.EnvSpec.from_json(envs.spec.to_json()))
    np.testing.assert_array_equal(rollout(rebuilt, 1)[0], rollout(envs, 1)[0])


@vector_ids
def test_the_global_generator_is_untouched(id):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    rollout(make(id), 0)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize("id", FINITE)
def test_frequencies_and_rewards_are_those_of_each_copys_own_process(id):
    envs = make(id, 50, num_states=4)
    observation, info = envs.reset(seed=0)
    counts, states = np.zeros((50, 4, 4)), info["state"]
    for _ in range(2000):
        assert (observation.argmax(axis=1) == states).all()
        observation, rewards, _, _, info = envs.step(np.zeros(50, dtype=np.int64))
        np.testing.assert_array_equal(rewards, [p.rewards[s] for p, s in zip(envs.processes, states, strict=True)])
        np.add.at(counts, (np.arange(50), states, info["state"]), 1)
        states = info["state"]
    P = np.stack([process.transition_matrix for process in envs.processes])
    visits = counts.sum(axis=2, keepdims=True)
    assert (counts[P == 0] == 0).all()
    assert (np.abs(counts - visits * P) <= 5 * np.sqrt(visits * P * (1 - P)) + 1e-9).all()
    z = ((counts - visits * P) ** 2)[P > 0] / np.maximum(visits * P, 1e-12)[P > 0]
    assert z.mean() < 1.1


def test_copies_of_one_process_move_independently():
    process = icrl_envs.loop_chain(num_states=4)
    batch = FiniteBatch.stack([process] * 10_000)
    rng = np.random.default_rng(0)
    for states, p in (
        (batch.sample_start(rng), process.start),
        (batch.sample_step(np.full(10_000, 2), rng)[0], process.transition_matrix[2]),
    ):
        counts = np.bincount(states, minlength=4)
        assert (np.abs(counts - 10_000 * p) <= 5 * np.sqrt(10_000 * p * (1 - p))).all()


def test_rkhs_copies_get_the_rewards_of_their_own_process():
    envs = make("icrl/RKHS-v0", 3, dim=2, kernel="exponential", length_scale=2.0)
    observations, rewards = rollout(envs, 0)
    for process, seen, paid in zip(envs.processes, observations, rewards, strict=True):
        np.testing.assert_allclose(paid[1:], process.rewards(seen[:-1]), rtol=1e-12)
    noise = (observations[:, 1:] - 0.9 * observations[:, :-1]) / 0.3
    assert abs(noise.std() - 1) < 0.2


def test_starts_are_drawn_from_each_copys_own_distribution():
    envs = make("icrl/BoyanChain-v0", 20, num_states=3)
    envs.reset(seed=0)
    counts = np.zeros((20, 3))
    for _ in range(1000):
        np.add.at(counts, (np.arange(20), envs.reset()[1]["state"]), 1)
    p = np.stack([process.start for process in envs.processes])
    assert (np.abs(counts - 1000 * p) <= 5 * np.sqrt(1000 * p * (1 - p))).all()


@vector_ids
def test_a_reset_mask_restarts_some_copies_only(id):
    envs = make(id, 6)
    before, _ = envs.reset(seed=0)
    mask = np.array([True, False] * 3)
    restarted = np.zeros(6, dtype=bool)
    for _ in range(20):
        after, info = envs.reset(options={"reset_mask": mask})
        restarted |= (after != before).any(axis=1)
    np.testing.assert_array_equal(restarted, mask)
    if id in FINITE:
        assert info["_state"].all()


@vector_ids
def test_task_seed_option_redraws_every_copy(id):
    envs = make(id)
    expected = rollout(make(id, task_seed=7), 1)[1]
    envs.reset(seed=0, options={"task_seed": 7})
    np.testing.assert_array_equal(rollout(envs, 1)[1], expected)


@vector_ids
def test_time_limits_truncate_and_the_next_step_restarts(id):
    envs = make(id, 2, max_episode_steps=3)
    envs.reset(seed=0)
    outcomes = [envs.step(np.zeros(2, dtype=np.int64)) for _ in range(8)]
    assert [bool(truncated.all()) for _, _, _, truncated, _ in outcomes] == [False, False, True, False] * 2
    assert (outcomes[3][1] == 0).all()
    envs.step(np.zeros(2, dtype=np.int64))
    envs.step(np.zeros(2, dtype=np.int64))
    envs.reset(options={"reset_mask": np.array([True, False])})
    assert [envs.step(np.zeros(2, dtype=np.int64))[3].tolist() for _ in range(3)] == [
        [False, True],
        [False, False],
        [True, False],
    ]


@vector_ids
def test_what_is_returned_belongs_to_the_caller(id):
    envs, same = make(id), make(id)
    observation, info = envs.reset(seed=0)
    same.reset(seed=0)
    for _ in range(5):
        observation[:] = 99.0
        for value in info.values():
            value[:] = 0
        observation, _, _, _, info = envs.step(np.zeros(4, dtype=np.int64))
        np.testing.assert_array_equal(observation, same.step(np.zeros(4, dtype=np.int64))[0])


@vector_ids
def test_pictures_of_every_copy(id):
    envs = make(id, 2, render_mode="rgb_array")
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        envs.render()
    envs.reset(seed=0)
    pictures = envs.render()
    assert [picture.shape for picture in pictures] == [(400, 480, 3)] * 2
    assert (pictures[0] != pictures[1]).any()
    plain = make(id)
    with pytest.warns(UserWarning, match="needs a render mode"):
        assert plain.render() is None


@vector_ids
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda envs: envs.step(np.ones(4)), ValueError, "actions must be 4 zeros"),
        (lambda envs: envs.step(np.zeros(3)), ValueError, "actions must be 4 zeros"),
        (lambda envs: envs.reset(options={"reset_mask": [True]}), TypeError, "NumPy array of bools"),
        (lambda envs: envs.reset(options={"reset_mask": np.ones(3, bool)}), ValueError, r"shape \(4,\)"),
        (lambda envs: envs.reset(options={"reset_mask": np.zeros(4, bool)}), ValueError, "at least one True"),
        *((lambda envs, o=o: envs.reset(options=o), TypeError, "options must be a dictionary") for o in ([], 0, False)),
        (lambda envs: envs.reset(options={"mask": 1}), ValueError, "options must be one of 'task_seed', 'reset_mask'"),
        (
            lambda envs: envs.reset(options={"task_seed": 1, "reset_mask": np.ones(4, bool)}),
            ValueError,
            "must not have both",
        ),
    ],
)
def test_bad_calls_are_named(id, call, error, message):
    envs = make(id)
    envs.reset(seed=0)
    with pytest.raises(error, match=message):
        call(envs)


@vector_ids
def test_bad_constructions_and_early_calls_are_named(id):
    with pytest.raises(ValueError, match="num_envs must be an integer ≥ 1; got 0"):
        make(id, 0)
    with pytest.raises(ValueError, match="gamma must be"):
        make(id, gamma=1.0)
    with pytest.raises(ValueError, match="max_episode_steps"):
        make(id, max_episode_steps=0)
    with pytest.raises(TypeError, match="num_state"):
        make(id, num_state=3)
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        make(id).step(np.zeros(4))
    with pytest.raises(ValueError, match="no copy has a state yet"):
        make(id).reset(options={"reset_mask": np.array([True, False, False, False])})


def test_the_space_holds_the_observations_of_all_tasks_and_later_ones_that_leave_it_are_refused():
    def draw(task_seed):
        return FiniteProcess(np.eye(2)[::-1], np.ones(2), np.eye(2) * (1 + task_seed % 4), 0.5, np.ones(2) / 2)

    env = ProcessVectorEnv(draw, FiniteBatch.stack, 2)
    assert env.single_observation_space == spaces.Box(-2, 2, (2,), np.float64)
    assert env.reset(seed=0, options={"task_seed": 4})[0] in env.observation_space
    with pytest.raises(ValueError, match="draw must return processes with observations in Box"):
        env.reset(options={"task_seed": 2})
    assert [process.features.max() for process in env.processes] == [1, 2]
