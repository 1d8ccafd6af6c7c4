"""Collection from copies that are different tasks, in this process or in workers, and what copies do to numbers."""

import dataclasses
import types
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces, wrappers
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from icrl_agents.collection import collect, collect_episodes
from icrl_envs import FiniteProcess, ProcessEnv


@dataclasses.dataclass
class Constant:
    """Stays where it is, and pays the same at each step."""

    reward: float
    gamma = 0.9
    observation_space = spaces.Box(-1, 1, (1,), np.float64)

    def sample_start(self, rng):
        return 0

    def sample_step(self, state, rng):
        return state, self.reward, False

    def observe(self, state):
        return np.zeros(1)


class Unsent(Constant):
    """Pickle does not know how to send it."""

    def __reduce__(self):
        raise TypeError("not to be sent")


class Plain:
    """A process without an equality of its own."""

    gamma, observation_space = Constant.gamma, Constant.observation_space
    sample_start, sample_step, observe = Constant.sample_start, Constant.sample_step, Constant.observe

    def __init__(self, reward=1.0, **more):
        self.reward, self.more = reward, more


@dataclasses.dataclass
class Table(Constant):
    """Its equality is that of arrays, which is none."""

    table: Any


def drawn(seed):
    return ProcessEnv(Plain(), draw=lambda task_seed: Plain(), task_seed=seed)


def chain(reward):
    return ProcessEnv(FiniteProcess([[0, 1], [1, 0]], [reward, 0], [[1], [-1]], 0.5, [1, 0]))  # type: ignore[arg-type]


def reach(**given):
    return gym.make("icrl/MetaWorldMRP-v0", domain="reach-v3", **given)


def holding(make, number):
    return ProcessEnv(Plain(held=make(number)))


def module(number):
    return torch.nn.Linear(1, 1).requires_grad_(False).apply(lambda each: [p.fill_(number) for p in each.parameters()])


CONTAINERS = {
    "a dictionary": lambda number: {"a": {"b": number}},
    "a namespace": lambda number: types.SimpleNamespace(a=number),
    "a dataclass": lambda number: Table(number, None),
    "a ragged list": lambda number: [np.full(2, number), np.zeros(3)],
    "a module": module,
}
DIFFERENT = {
    "seeds": [lambda: gym.make("icrl/LoopChain-v0"), lambda: gym.make("icrl/LoopChain-v0", task_seed=1)],
    "arguments": [lambda: gym.make("icrl/RKHS-v0"), lambda: gym.make("icrl/RKHS-v0", length_scale=0.6)],
    "ids": [lambda: gym.make("icrl/LoopChain-v0"), lambda: gym.make("icrl/BoyanChain-v0")],
    "processes": [lambda: chain(1.0), lambda: chain(5.0)],
    "own processes": [lambda: ProcessEnv(Constant(1.0)), lambda: ProcessEnv(Constant(5.0))],
    "seeds of what has no equality": [lambda: drawn(0), lambda: drawn(1)],
    "numbers in it": [lambda: ProcessEnv(Plain(1.0)), lambda: ProcessEnv(Plain(5.0))],
    "arrays in it": [lambda: ProcessEnv(Table(1.0, np.zeros(2))), lambda: ProcessEnv(Table(1.0, np.ones(2)))],
    "tensors in it": [lambda: ProcessEnv(Table(1.0, torch.zeros(2))), lambda: ProcessEnv(Table(1.0, torch.ones(2)))],
    "numbers in what is not to be sent": [lambda: ProcessEnv(Unsent(1.0)), lambda: ProcessEnv(Unsent(5.0))],
    "functions in it": [lambda: ProcessEnv(Plain(1.0, f=lambda x: x)), lambda: ProcessEnv(Plain(5.0, f=lambda x: x))],
    **{
        f"numbers in {name}": [partial(holding, make, 1.0), partial(holding, make, 5.0)]
        for name, make in CONTAINERS.items()
    },
    "one not of icrl_envs": [lambda: ProcessEnv(Constant(1.0)), lambda: Foreign()],
    "noise": [lambda: reach(noise="low"), lambda: reach(noise="high")],
}
EQUAL = {
    "seeds": [lambda: wrappers.TimeLimit(gym.make("icrl/LoopChain-v0", task_seed=1), 2)] * 2,
    "a default": [lambda: gym.make("icrl/LoopChain-v0"), lambda: gym.make("icrl/LoopChain-v0", sparsity=0.5)],
    "processes": [lambda: chain(1.0)] * 2,
    "names of a noise": [lambda: reach(noise="mid", width=64), lambda: reach(noise=0.5)],
    "goals": [lambda: reach(split="train", task_seed=1), lambda: reach(split="test", task_seed=0)],
    "any goals": [lambda: reach(split="all", task_seed=1), lambda: reach(split="all")],
    "not to be sent": [lambda: ProcessEnv(Unsent(1.0))] * 2,
    "functions in it": [lambda: ProcessEnv(Plain(1.0, f=lambda x: x))] * 2,
    "seeds of what has no equality": [lambda: drawn(1)] * 2,
    "arrays in it": [lambda: ProcessEnv(Table(1.0, np.full(2, np.nan)))] * 2,
    **{f"numbers in {name}": [partial(holding, make, 1.0)] * 2 for name, make in CONTAINERS.items()},
    "classes in it": [lambda: ProcessEnv(Plain(kind=torch.nn.Linear))] * 2,
    "what cannot be compared": [lambda: ProcessEnv(Plain(rows=[[1], [1, 2]])), lambda: ProcessEnv(Plain(act=print))],
    "foreign": [lambda: gym.make("CartPole-v1")] * 2,
}


def shape(kind, makes):
    env = kind(makes)
    found = tuple(collect(env, num_steps=3, gamma=0.9, seed=0).rewards.shape)
    env.close()
    return found


@pytest.mark.filterwarnings("ignore:env. 2 copies did all the same")  # which is deterministic
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_copies_of_different_tasks_become_a_batch_in_workers_too_and_those_of_equal_ones_a_context(kind):
    for makes in DIFFERENT.values():
        assert shape(kind, makes) == (2, 3)
    for makes in EQUAL.values():
        assert shape(kind, makes) == (6,)


class Line(gym.Env):
    """Walks along tenths in double precision, where its space says single."""

    observation_space, action_space = spaces.Box(-9, 9, (1,), np.float32), spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def seen(self) -> Any:
        return np.array([self.steps / 10])

    def step(self, action):
        self.steps += 1
        return self.seen(), 1.0, False, self.steps == 3, {}


class Foreign(Line):
    """One whose task is not known."""

    observation_space = Constant.observation_space


class Whole(Line):
    """The same in integers that single precision rounds."""

    observation_space = spaces.Box(-1e9, 1e9, (1,), np.float32)

    def seen(self) -> Any:
        return np.array([2**24 + 1 + 2 * self.steps])


class Pair(Line):
    """The same as a dictionary of two."""

    observation_space = spaces.Dict(a=Line.observation_space, b=spaces.Tuple([Line.observation_space]))

    def seen(self) -> Any:
        return {"a": super().seen(), "b": (super().seen(),)}


@pytest.mark.parametrize("make", [Line, Whole, Pair])
def test_final_observations_have_the_type_of_the_others_in_each_mode(make):
    first, *others = (
        collect_episodes(SyncVectorEnv([make] * 2, autoreset_mode=mode), num_steps=7, seed=0) for mode in AutoresetMode
    )
    for episodes in others:
        for one, other in zip(first, episodes, strict=True):
            assert one.observations.dtype == other.observations.dtype == np.float32
            np.testing.assert_array_equal(one.observations, other.observations)


def test_scales_that_go_on_running_in_workers_are_told_of():
    env = AsyncVectorEnv([lambda: wrappers.NormalizeObservation(gym.make("Pendulum-v1"))] * 2)
    with pytest.warns(UserWarning, match="env: a wrapper of its copies goes on updating its statistics") as warned:
        collect(env, num_steps=3, gamma=0.9, seed=0)
    assert warned[0].filename == __file__
    env.set_attr("update_running_mean", False)
    env.set_attr("obs_rms", env.get_attr("obs_rms")[0])
    collect(env, num_steps=3, gamma=0.9, seed=0)
    env.close()


@pytest.mark.parametrize(
    "seen", [["1.5"], np.array(["1.5"], dtype=object), np.array([1 + 2j]), np.array(["2026-01-01"], "datetime64[D]")]
)
def test_observations_that_are_no_real_numbers_are_refused(seen):
    env = wrappers.TransformObservation(Line(), lambda _: seen, Line.observation_space)
    with pytest.raises(TypeError, match="observations: expected real numbers, got"):
        collect(env, num_steps=2, gamma=0.9, seed=0)


def test_integers_beside_objects_are_not_rounded():
    seen = np.array([2**60 + 1], dtype=object)
    env = wrappers.TransformObservation(Line(), lambda _: seen, Line.observation_space)
    with pytest.raises(ValueError, match="observations: float64 would round the integer 1152921504606846977"):
        collect(env, num_steps=2, gamma=0.9, seed=0)


def test_an_inner_scale_that_goes_on_running_in_workers_is_told_of_until_it_stops():
    def make(running=True):
        inner = wrappers.NormalizeObservation(gym.make("Pendulum-v1"))
        inner.update_running_mean = running
        return wrappers.NormalizeReward(inner)

    env = AsyncVectorEnv([make] * 2)
    env.set_attr("update_running_mean", False)  # of the outer one alone
    with pytest.warns(UserWarning, match="env: an inner wrapper of its copies goes on updating") as warned:
        collect(env, num_steps=3, gamma=0.9, seed=0)
    assert warned[0].filename == __file__
    env.close()
    env = AsyncVectorEnv([lambda: make(False)] * 2)
    env.set_attr("update_running_mean", False)
    collect(env, num_steps=3, gamma=0.9, seed=0)
    env.close()


def test_an_action_that_its_space_cannot_hold_is_refused():
    class Pushed(Line):
        action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    with pytest.raises(ValueError, match="the policy's action must be finite in float32"):
        collect(Pushed(), num_steps=2, gamma=0.9, seed=0, policy=lambda observation, rng: np.array([1e300]))


def test_copies_that_are_one_and_the_same_environment_are_refused():
    env = gym.make("CartPole-v1")
    with pytest.raises(ValueError, match="env: expected copies that are environments of their own, got one several"):
        collect(SyncVectorEnv([lambda: env] * 2), num_steps=4, gamma=0.9, seed=0)
