from collections.abc import Sequence

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList

from icrl_agents.collection import collect, collect_episodes
from icrl_envs import FixedPolicy

MODES = list(AutoresetMode)
each_mode = pytest.mark.parametrize("mode", MODES, ids=[m.name for m in MODES])


class Counting(gym.Env):
    """Episode e of a copy observes (e, t, action before) and pays 100e + t; it lasts ``lengths[e]`` steps."""

    observation_space: spaces.Space = spaces.Box(-1, 1e6, (3,), np.float64)
    action_space: spaces.Space = spaces.Discrete(3)

    def __init__(
        self, lengths: Sequence[int] = (2, 4, 1, 3), ends: str = "terminated", one_buffer: bool = True
    ) -> None:
        self.lengths, self.ends, self.episode, self.seeds = lengths, ends, -1, []
        self.buffer, self.one_buffer = np.zeros(3), one_buffer

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self.buffer[:] = self.episode, 0, -1
        return self.observation(), {}

    def observation(self):
        return self.buffer if self.one_buffer else self.buffer.copy()

    def step(self, action):
        length = self.lengths[self.episode % len(self.lengths)]
        assert self.buffer[1] < length, "stepped beyond the end of the episode"
        self.buffer[1:] = self.buffer[1] + 1, action
        done = bool(self.buffer[1] == length)
        flags = [done and self.ends in (kind, "both") for kind in ("terminated", "truncated")]
        return self.observation(), 100.0 * self.episode + self.buffer[1], *flags, {}


def act_by_time(observation, rng):
    return int(observation[1]) % 3


def expected_episode(e, length, terminated, cut=None):
    steps = length if cut is None else cut
    observations = [[e, 0, -1]] + [[e, t, (t - 1) % 3] for t in range(1, steps + 1)]
    return observations, [100 * e + t for t in range(1, steps + 1)], terminated and cut is None


def check(episodes, expected):
    assert len(episodes) == len(expected)
    for episode, (observations, rewards, terminated) in zip(episodes, expected, strict=True):
        np.testing.assert_array_equal(episode.observations, observations)
        np.testing.assert_array_equal(episode.rewards, rewards)
        assert episode.terminated is terminated


def vector(mode, *lengths, **keywords):
    return SyncVectorEnv([lambda x=x: Counting(x, one_buffer=False, **keywords) for x in lengths], autoreset_mode=mode)


def same(left, right):
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert a.observations.dtype == b.observations.dtype
        np.testing.assert_array_equal(a.observations, b.observations)
        np.testing.assert_array_equal(a.rewards, b.rewards)
        assert a.terminated == b.terminated


@pytest.mark.parametrize("ends", ["terminated", "truncated", "both"])
def test_a_single_environment_gives_exactly_its_rows(ends):
    ended = ends != "truncated"
    env = Counting(ends=ends)
    found = collect_episodes(env, num_steps=9, seed=3, policy=act_by_time)
    ends_of = [(0, 2, ended), (1, 4, ended), (2, 1, ended)]
    check(found, [*(expected_episode(*e) for e in ends_of), expected_episode(3, 3, ended, cut=2)])
    assert env.seeds == [3, None, None, None]
    env = Counting(ends=ends)
    check(collect_episodes(env, num_episodes=3, seed=3, policy=act_by_time), [expected_episode(*e) for e in ends_of])
    assert len(env.seeds) == 3, "reset once more than needed"


def test_the_context_of_the_rows():
    context = collect(Counting((2, 3), "truncated"), num_steps=4, gamma=0.5, seed=0, policy=act_by_time)
    assert context.rewards.tolist() == [1, 2, 101, 102]
    assert context.states.tolist() == [[0, 0, -1], [0, 1, 0], [1, 0, -1], [1, 1, 0]]
    assert context.next_states.tolist() == [[0, 1, 0], [0, 2, 1], [1, 1, 0], [1, 2, 1]]
    assert context.discounts.tolist() == [0.5] * 4
    terminal = collect(Counting((2, 3), "both"), num_steps=4, gamma=0.5, seed=0)
    assert terminal.discounts.tolist() == [0.5, 0, 0.5, 0.5]


@each_mode
@pytest.mark.parametrize("ends", ["terminated", "truncated", "both"])
def test_a_vector_environment_gives_exactly_the_rows_of_its_copies(mode, ends):
    lengths = [(2, 4, 1, 3), (5,), (1, 1, 2)]
    for quota in ({"num_steps": 7}, {"num_steps": 1}):
        found = collect_episodes(vector(mode, *lengths, ends=ends), seed=0, policy=act_by_time, **quota)
        parts = [collect_episodes(Counting(x, ends), seed=0, policy=act_by_time, **quota) for x in lengths]
        same(found, [episode for part in parts for episode in part])
        assert [sum(len(e) for e in part) for part in parts] == [quota["num_steps"]] * 3


def test_final_observations_may_be_listed_by_copy():
    lengths = [(2, 4), (3,)]
    env = DictInfoToList(vector(AutoresetMode.SAME_STEP, *lengths))
    plain = collect_episodes(vector(AutoresetMode.SAME_STEP, *lengths), num_steps=7, seed=0, policy=act_by_time)
    same(collect_episodes(env, num_steps=7, seed=0, policy=act_by_time), plain)


@each_mode
@pytest.mark.parametrize(("total", "shares"), [(7, (3, 2, 2)), (3, (1, 1, 1)), (2, (1, 1, 0)), (1, (1, 0, 0))])
def test_each_copy_runs_a_fixed_share_of_the_episodes(mode, total, shares):
    lengths = [(9,), (1,), (4, 2)]
    found = collect_episodes(vector(mode, *lengths), num_episodes=total, seed=0, policy=act_by_time)
    expected = [
        expected_episode(e, length[e % len(length)], True)
        for length, share in zip(lengths, shares, strict=True)
        for e in range(share)
    ]
    check(found, expected)


@pytest.mark.parametrize("max_episode_steps", [None, 17])
def test_cartpole_gives_the_same_rows_in_all_modes_and_none_crosses_a_reset(max_episode_steps):
    def copies(mode):
        make = lambda: gym.make("CartPole-v1", max_episode_steps=max_episode_steps)  # noqa: E731
        return SyncVectorEnv([make] * 3, autoreset_mode=mode)

    found = [collect_episodes(copies(mode), num_steps=60, seed=5) for mode in MODES]
    for episodes in found:
        same(episodes, found[0])
        assert sum(len(e) for e in episodes) == 180
        assert any(len(e) == 17 and not e.terminated for e in episodes) == (max_episode_steps == 17)
    parts = [
        collect_episodes(gym.make("CartPole-v1", max_episode_steps=max_episode_steps), num_steps=60, seed=5 + i)
        for i in range(3)
    ]
    same(found[0], [episode for part in parts for episode in part])
    for episode in found[0]:
        x, x_dot, angle, angle_dot = episode.observations.T
        np.testing.assert_allclose(np.diff(x), 0.02 * x_dot[:-1], atol=1e-6)  # Euler steps, within each episode
        np.testing.assert_allclose(np.diff(angle), 0.02 * angle_dot[:-1], atol=1e-6)
        outside = (np.abs(x) > 2.4) | (np.abs(angle) > 12 * 2 * np.pi / 360)
        assert not outside[:-1].any()
        assert outside[-1] == episode.terminated
        assert np.abs(episode.observations[0]).max() <= 0.05


def test_native_vector_environments_are_collected_whole():
    env = gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point", max_episode_steps=15)
    contexts = [collect(env, num_steps=60, gamma=0.9, seed=1, stack=stack) for stack in (False, True)]
    flat, batch = contexts
    assert flat.states.shape == (240, 4)
    assert batch.states.shape == (4, 60, 4)
    torch.testing.assert_close(batch.states.reshape(240, 4), flat.states, rtol=0, atol=0)
    torch.testing.assert_close(batch.next_states.reshape(240, 4), flat.next_states, rtol=0, atol=0)
    x, x_dot = flat.states[:, 0], flat.states[:, 1]
    torch.testing.assert_close(flat.next_states[:, 0] - x, 0.02 * x_dot, rtol=0, atol=1e-6)
    assert (flat.rewards == 1).all()


def test_copies_that_are_different_tasks_are_kept_apart():
    env = gym.make_vec("icrl/BoyanChain-v0", num_envs=3, vectorization_mode="vector_entry_point", num_states=4)
    assert collect(env, num_steps=20, gamma=0.9, seed=0).states.shape == (3, 20, 4)
    assert collect(env, num_steps=20, gamma=0.9, seed=0, stack=False).states.shape == (60, 4)


def test_copies_of_different_lengths_are_stacked_with_padding():
    context = collect(vector("NextStep", (2,), (5,), (3,)), num_episodes=5, gamma=1.0, seed=0, stack=True)
    assert context.mask.sum(-1).tolist() == [4, 10, 3]
    assert context.rewards.shape == (3, 10)
    assert collect(Counting(), num_steps=3, gamma=1.0, seed=0, stack=True).states.shape == (1, 3, 3)
    with pytest.raises(ValueError, match=r"num_episodes: expected one or more for each of 3 copies to stack, got 2"):
        collect(vector("NextStep", (2,), (5,), (3,)), num_episodes=2, gamma=1.0, seed=0, stack=True)


@pytest.mark.parametrize("make", [lambda: gym.make("Pendulum-v1"), lambda: gym.make_vec("CartPole-v1", num_envs=2)])
def test_the_seed_decides_everything_and_the_global_generators_nothing(make):
    np.random.seed(0)  # noqa: NPY002 - to find it unchanged
    before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first = collect_episodes(make(), num_steps=40, seed=11)
    np.random.seed(1)  # noqa: NPY002
    same(first, collect_episodes(make(), num_steps=40, seed=11))
    np.random.seed(0)  # noqa: NPY002
    used = make()
    used.reset(seed=3)
    used.action_space.seed(4)
    state = used.action_space.np_random.bit_generator.state
    same(first, collect_episodes(used, num_steps=40, seed=np.int64(11)))
    assert used.action_space.np_random.bit_generator.state == state
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_before)
    for seed in (12, None):
        other = collect_episodes(make(), num_steps=40, seed=seed)
        assert not np.array_equal(other[0].observations[0], first[0].observations[0])


def test_the_policys_stream_is_not_the_environments():
    draws = []
    collect(Counting(), num_steps=5, gamma=0.9, seed=7, policy=lambda o, rng: draws.append(rng.random()) or 0)
    env_stream = gym.utils.seeding.np_random(7)[0]
    assert len(set(draws)) == 5
    assert not set(draws) & set(env_stream.random(1_000))


@pytest.mark.parametrize("num_envs", [None, 2])
def test_a_policy_given_to_collect_and_one_folded_into_the_environment_agree(num_envs):
    def policy(observation, rng):
        return int(rng.random() < 0.5 + observation[2])

    def make(folded):
        one = lambda: FixedPolicy(gym.make("CartPole-v1"), policy) if folded else gym.make("CartPole-v1")  # noqa: E731
        return one() if num_envs is None else SyncVectorEnv([one] * num_envs)

    same(
        collect_episodes(make(True), num_steps=60, seed=2),
        collect_episodes(make(False), num_steps=60, seed=2, policy=policy),
    )


class Model:
    """Predicts as Stable-Baselines3 models do: one action for one observation, a batch for a batch."""

    def __init__(self):
        self.batches = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        self.batches.append(np.shape(observation))
        return np.asarray(observation)[..., 1].astype(int) % 3, None


@each_mode
def test_a_model_predicts_for_all_copies_at_once(mode):
    lengths = [(2, 4, 1, 3), (5,)]
    by_function = collect_episodes(vector(mode, *lengths), num_steps=7, seed=0, policy=act_by_time)
    model = Model()
    same(by_function, collect_episodes(vector(mode, *lengths), num_steps=7, seed=0, policy=model))
    assert set(model.batches) == {(2, 3)}
    single = Model()
    same(by_function[:3], collect_episodes(Counting(), num_steps=7, seed=0, policy=single)[:3])
    assert set(single.batches) == {(3,)}


def test_a_scripted_policy_is_asked_for_its_action():
    class Scripted:
        def get_action(self, observation):
            return act_by_time(observation, None)

    check(
        collect_episodes(Counting(), num_episodes=2, seed=0, policy=Scripted()),
        [expected_episode(0, 2, True), expected_episode(1, 4, True)],
    )


def test_episodes_are_cut_at_the_length_asked_for():
    for env in (Counting((2, 9, 3)), vector("Disabled", (2, 9, 3))):
        found = collect_episodes(env, num_episodes=3, seed=0, policy=act_by_time, max_episode_steps=3)
        cut = expected_episode(1, 9, True, cut=3)
        check(found, [expected_episode(0, 2, True), cut, expected_episode(2, 3, True)])
    for mode in ("NextStep", "SameStep"):
        with pytest.raises(ValueError, match=r"max_episode_steps: expected None for a vector environment that resets"):
            collect_episodes(vector(mode, (2,)), num_episodes=3, seed=0, max_episode_steps=3)


def test_kept_actions_are_those_that_were_chosen_whatever_an_environment_makes_of_them():
    class Scaled(gym.Env):
        observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (2,), np.float64)

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            action *= 2.0
            return np.zeros(1, np.float32), float(action.sum()), False, True, {}

    for env in (Scaled(), SyncVectorEnv([Scaled])):
        (episode,) = collect_episodes(
            env, seed=0, num_episodes=1, keep_actions=True, policy=lambda *_: np.array([0.5, 0.25])
        )
        assert episode.actions.tolist() == [[0.5, 0.25]]
        assert episode.rewards.tolist() == [1.5]


def test_copies_of_different_tasks_become_a_batch():
    def make(*seeds):
        return SyncVectorEnv([lambda seed=seed: gym.make("icrl/LoopChain-v0", task_seed=seed) for seed in seeds])

    assert collect(make(0, 1), num_steps=5, gamma=0.9, seed=0).rewards.shape == (2, 5)
    assert collect(make(3, 3), num_steps=5, gamma=0.9, seed=0).rewards.shape == (10,)
    assert collect(make(0, 1), num_steps=5, gamma=0.9, seed=0, stack=False).rewards.shape == (10,)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("icrl/MetaWorldMRP-v0", [{"noise": "low"}, {"noise": "high"}]),
        ("icrl/LoopChain-v0", [{"num_states": 5, "features": "random"}, {"num_states": 9, "features": "random"}]),
        ("icrl/RKHS-v0", [{"length_scale": 0.5}, {"length_scale": 0.9}]),
    ],
)
def test_copies_that_were_made_with_different_arguments_become_a_batch(name, arguments):
    def rewards(first, second):
        env = SyncVectorEnv([lambda given=given: gym.make(name, **given) for given in (first, second)])
        return collect(env, num_steps=3, gamma=0.9, seed=0).rewards

    assert rewards(*arguments).shape == (2, 3)
    assert rewards(arguments[0], arguments[0] | {"render_mode": "rgb_array"}).shape == (6,)


@pytest.mark.parametrize(("name", "flag"), [("terminated", np.nan), ("truncated", None), ("terminated", "False")])
def test_flags_that_are_neither_true_nor_false_are_refused(name, flag):
    class Odd(gym.Env):
        observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            flags = {"terminated": False, "truncated": np.int64(0)} | {name: flag}
            return np.zeros(1, np.float32), 0.0, flags["terminated"], flags["truncated"], {}

    with pytest.raises(ValueError, match=f"env: expected {name} to be True or False, got"):
        collect(Odd(), num_steps=3, gamma=0.9, seed=0)


def test_an_action_that_is_a_tensor_with_a_gradient_is_its_number():
    weight = torch.full((1,), 0.5, requires_grad=True)
    (episode,) = collect_episodes(
        gym.make("Pendulum-v1"), seed=0, num_steps=2, keep_actions=True, policy=lambda *_: 2 * weight
    )
    assert episode.actions.tolist() == [[1.0], [1.0]]
