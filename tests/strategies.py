"""What random contexts are made of: processes, episodes, transitions, paddings and batches."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_envs import RKHSProcess, boyan_chain, loop_chain
from icrl_envs.cartpole import random_cartpole

discounts = st.sampled_from([0.0, 0.3, 0.9, 0.99, 1.0])
scales = st.sampled_from([1e-3, 1.0, 1e3])
generators = st.integers(0, 2**32).map(np.random.default_rng)
"""Sources of numbers: what is counted is drawn by hypothesis, what is measured by NumPy."""


@dataclass(frozen=True)
class Sample:
    """Transitions as arrays: states ``(n, d)``, rewards ``(n,)``, discounts ``(n,)``, next states ``(n, d)``.

    ``linked (n,)`` says where the next row continues the trajectory.
    """

    states: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    next_states: np.ndarray
    linked: np.ndarray

    def __len__(self):
        return len(self.rewards)

    @property
    def dim(self):
        return self.states.shape[1]

    @property
    def context(self):
        return Context(self.states, self.rewards, self.discounts, self.next_states, contiguous=self.linked)

    @property
    def rows(self):
        """The rows (x, R, γ, x′ or None, linked) that the plain loops read."""
        parts = (self.states, self.rewards, self.discounts, self.next_states, self.linked)
        return [
            (x, r, g, x_next if g > 0 else None, goes_on)
            for x, r, g, x_next, goes_on in zip(*(part.tolist() for part in parts), strict=True)
        ]

    def td_errors(self, value):
        """R + γ v(x′) − v(x) of each row, for a function ``value`` of states."""
        bootstrap = [g * float(value(x_next)) if g > 0 else 0.0 for *_, g, x_next, _ in self.rows]
        return torch.as_tensor(self.rewards + np.array(bootstrap) - value(self.states).numpy())

    def chosen(self, index):
        """The rows at ``index``, each a trajectory of its own."""
        parts = (self.states, self.rewards, self.discounts, self.next_states)
        return Sample(*(part[index] for part in parts), linked=np.zeros(len(index), dtype=bool))

    def with_rewards(self, rewards):
        return replace(self, rewards=rewards)


def processes():
    """Exact processes of all kinds, small."""
    gamma, task = st.sampled_from([0.0, 0.5, 0.9, 0.99]), st.integers(0, 2**16)
    chain = {"num_states": st.integers(2, 6), "gamma": gamma, "task_seed": task, "representable": st.booleans()}
    chain["features"] = st.sampled_from(["one_hot", "random"])
    return st.one_of(
        st.fixed_dictionaries(chain).map(lambda kwargs: boyan_chain(**kwargs)),
        st.fixed_dictionaries(chain | {"sparsity": st.floats(0.0, 1.0)}).map(lambda kwargs: loop_chain(**kwargs)),
        st.builds(RKHSProcess, dim=st.integers(1, 3), kernel=st.just("rbf"), gamma=gamma, task_seed=task),
        st.builds(random_cartpole, gamma=gamma, task_seed=task),
    )


def rolled_out(process: Any, length, terminated, rng):
    """The first steps of an episode of ``process``, declared to be terminated or not."""
    state = process.sample_start(rng)
    observations, rewards = [process.observe(state)], []
    for _ in range(length):
        state, reward, _ = process.sample_step(state, rng)
        observations.append(process.observe(state))
        rewards.append(reward)
    return Episode(np.stack(observations), np.array(rewards), terminated)


def numbers(rng, kind, *shape):
    """States: on a grid where many coincide, all equal, or anywhere."""
    if kind == "grid":
        return rng.integers(-1, 2, size=shape).astype(float)
    return np.ones(shape) if kind == "equal" else rng.normal(size=shape)


@st.composite
def episodes(draw, least=0, dim=None):
    """Up to four episodes of 0 to 5 steps: of a process, on a grid, in one state, or anywhere."""
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(lambda x: sum(x) >= least))
    kind = draw(st.sampled_from(["process"] * (dim is None) + ["grid", "equal", "anywhere"]))
    process = draw(processes()) if kind == "process" else None
    dim = draw(st.integers(1, 3)) if dim is None and process is None else dim
    ends, scale, rng = draw(st.lists(st.booleans(), min_size=4, max_size=4)), draw(scales), draw(generators)
    return [
        Episode(numbers(rng, kind, length + 1, dim), scale * rng.normal(size=length), terminated)
        if process is None
        else rolled_out(process, length, terminated, rng)
        for length, terminated in zip(lengths, ends, strict=False)
    ]


def sample_of(episodes, gamma):
    """The transitions of ``episodes`` as their definition has them, one by one."""
    rows = []
    for episode in episodes:
        for t in range(len(episode)):
            last = t == len(episode) - 1
            discount = 0.0 if last and episode.terminated else gamma
            x, x_next = episode.observations[t], episode.observations[t + 1]
            rows.append((x, episode.rewards[t], discount, x_next, not last))
    shape = (len(rows), episodes[0].observations.shape[1])
    states, rewards, gammas, next_states, linked = zip(*rows, strict=True) if rows else [()] * 5
    states, next_states = (np.reshape(np.array(part, dtype=float), shape) for part in (states, next_states))
    return Sample(states, np.array(rewards, float), np.array(gammas, float), next_states, np.array(linked, bool))


@st.composite
def independent(draw, least=0, dim=None):
    """Transitions drawn one by one, each with a discount of its own, 0 and 1 included; some by chance in a row."""
    n, dim = draw(st.integers(least, 9)), draw(st.integers(1, 3)) if dim is None else dim
    kind, scale, rng = draw(st.sampled_from(["grid", "anywhere"])), draw(scales), draw(generators)
    states, next_states = numbers(rng, kind, n, dim), numbers(rng, kind, n, dim)
    gammas = rng.choice([0.0, 0.3, 0.9, 1.0, rng.random()], size=n)
    linked = np.zeros(n, dtype=bool)
    linked[:-1] = (next_states[:-1] == states[1:]).all(-1)
    return Sample(states, scale * rng.normal(size=n), gammas, next_states, linked)


def samples(least=0, dim=None):
    """Contexts of every kind, with at least ``least`` transitions."""
    return st.one_of(st.builds(sample_of, episodes(least, dim), discounts), independent(least, dim))


@dataclass(frozen=True)
class Batch:
    """Samples of one dimension side by side: longer than needed, the rest of each filled with ``junk``.

    ``places`` has for each sample the rows that it takes, in order.
    """

    samples: list[Sample]
    places: list[np.ndarray]
    length: int
    junk: float

    @property
    def dim(self):
        return self.samples[0].dim

    @property
    def context(self):
        shape = (len(self.samples), self.length)
        states, next_states = np.full((2, *shape, self.dim), self.junk)
        rewards, gammas = np.full((2, *shape), self.junk)
        mask, linked = np.zeros((2, *shape), dtype=bool)
        for b, (sample, place) in enumerate(zip(self.samples, self.places, strict=True)):
            states[b, place], next_states[b, place] = sample.states, sample.next_states
            rewards[b, place], gammas[b, place], mask[b, place] = sample.rewards, sample.discounts, True
            linked[b, place[:-1]] = sample.linked[:-1] & (np.diff(place) == 1)
        return Context(states, rewards, gammas, next_states, mask, linked)


@st.composite
def batches(draw, least=0, torn=True):
    """Up to three samples, padded on the left, on the right or (if ``torn``) anywhere, with anything."""
    dim = draw(st.integers(1, 3))
    parts = draw(st.lists(samples(least, dim), min_size=1, max_size=3))
    length, rng = max(map(len, parts)) + draw(st.integers(0, 2)), draw(generators)
    side = draw(st.sampled_from(["left", "right"] + ["anywhere"] * torn))
    junk = draw(st.sampled_from([0.0, 1e30, float("nan"), -float("inf")]))

    def place(n):
        if side == "anywhere":
            return np.sort(rng.permutation(length)[:n])
        return np.arange(n) + (length - n if side == "left" else 0)

    return Batch(parts, [place(len(part)) for part in parts], length, junk)


def same(left, right, *names):
    """Equal tensors, attribute by attribute, or both NaN."""
    for name in names or ("states", "rewards", "discounts", "next_states", "mask", "contiguous"):
        a, b = getattr(left, name), getattr(right, name)
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def close(found, expected, tolerance=1e-9, scale=0.0):
    """Equal shapes and types, and numbers equal to ``tolerance``, relative to ``scale`` or the largest |expected|."""
    expected = torch.as_tensor(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if expected.numel():
        worst = float((found - expected).abs().max())
        assert worst <= tolerance * max(scale, float(expected.abs().max())), worst
