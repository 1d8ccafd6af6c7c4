"""Properties of contexts over random episodes, against loops that import nothing of ours."""

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import KernelTD, TabularTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, Laplace

INF = float("inf")
EVALUATORS = [WeightedSoftmaxTD(RBF(0.8), 6), WeightedSoftmaxTD(Laplace("median"), 6), TabularTD(6)]
checked = settings(max_examples=40, deadline=None, derandomize=True)


@st.composite
def several_episodes(draw, min_transitions=0):
    """Episodes of any lengths, 0 included, on a coarse grid, so that states coincide within and across them."""
    lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(lambda x: sum(x) >= min_transitions))
    dim, dtype = draw(st.integers(1, 3)), draw(st.sampled_from([np.float32, np.float64]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    episodes = []
    for length in lengths:
        observations = rng.integers(0, 3, size=(length + 1, dim)).astype(dtype)
        terminated = bool(rng.integers(2))
        if terminated and length > 0 and rng.integers(2):
            observations[-1] = np.nan
        episodes.append(Episode(observations, rng.normal(size=length), terminated))
    return episodes


gammas = st.sampled_from([0.0, 0.5, 0.9, 1.0])


def transitions(episodes, gamma):
    """Rows (x, R, γ, x′) as plain tuples and floats."""
    rows = []
    for episode in episodes:
        steps = len(episode.rewards)
        for t in range(steps):
            ends = episode.terminated and t == steps - 1
            state, following = (tuple(float(c) for c in episode.observations[s]) for s in (t, t + 1))
            rows.append((state, float(episode.rewards[t]), 0.0 if ends else gamma, following))
    return rows


def arrays(rows, dim):
    states, rewards, discounts, next_states = ([row[i] for row in rows] for i in range(4))
    shape = (len(rows), dim)
    return np.reshape(states, shape), np.array(rewards), np.array(discounts), np.reshape(next_states, shape)


def close(left, right, tolerance=1e-10):
    torch.testing.assert_close(
        left, torch.as_tensor(right, dtype=left.dtype), rtol=tolerance, atol=tolerance, equal_nan=True
    )


def same_transitions(left, right):
    for name in ("states", "rewards", "discounts", "next_states", "mask", "contiguous"):
        close(getattr(left, name).double(), getattr(right, name).double(), 0)


@checked
@given(several_episodes(), gammas)
def test_next_states_and_td_errors_equal_the_oracle(episodes, gamma):
    context, rows = Context.from_episodes(episodes, gamma), transitions(episodes, gamma)
    dim = episodes[0].observations.shape[1]
    for part, expected in zip(
        (context.states, context.rewards, context.discounts, context.next_states), arrays(rows, dim), strict=True
    ):
        close(part, expected, 0)

    def value(x):
        return sum(math.sin(1.7 * c + i) for i, c in enumerate(x))

    errors = [r + (g * value(x_next) if g > 0 else 0.0) - value(x) for x, r, g, x_next in rows]
    values = torch.sin(1.7 * context.points + torch.arange(dim)).sum(-1)
    close(context.td_errors(values), errors)
    close(context.td_errors(torch.stack([values, 2 * values]))[0], errors)


@checked
@given(several_episodes(), gammas)
def test_returns_equal_the_oracle(episodes, gamma):
    returns, tails = [], []
    for episode in episodes:
        steps = len(episode.rewards)
        for t in range(steps):
            returns.append(sum(gamma ** (s - t) * float(episode.rewards[s]) for s in range(t, steps)))
            tails.append(INF if episode.terminated or gamma == 0 else steps - t)
    found = Context.from_episodes(episodes, gamma).returns()
    close(found[0], returns)
    close(found[1], tails, 0)


@checked
@given(several_episodes(min_transitions=1), gammas)
def test_a_context_stores_no_state_twice(episodes, gamma):
    context = Context.from_episodes(episodes, gamma)
    n = len(context)
    bootstrapped = sum(len(e) > 0 and not e.terminated for e in episodes) if gamma > 0 else 0
    assert len(context.points) == n + bootstrapped
    assert len(context._terminal) <= sum(len(e) > 0 for e in episodes) - bootstrapped


@checked
@given(several_episodes(), gammas)
def test_all_ways_to_the_same_context_agree(episodes, gamma):
    context = Context.from_episodes(episodes, gamma)
    parts = [Context.from_episodes([episode], gamma) for episode in episodes]
    same_transitions(Context.concatenate(parts), context)
    direct = Context(*arrays(transitions(episodes, gamma), context.dim), contiguous=context.contiguous)
    same_transitions(direct, context)
    longest = Context.stack([context, Context.concatenate([context, context])], padding="left")
    for name in ("states", "rewards", "next_states", "contiguous"):
        close(getattr(longest, name)[0][longest.mask[0]].double(), getattr(context, name).double(), 0)


@checked
@given(several_episodes(min_transitions=1), gammas, st.randoms(use_true_random=False))
def test_values_depend_on_neither_order_nor_repetition(episodes, gamma, random):
    rows, dim = transitions(episodes, gamma), episodes[0].observations.shape[1]
    context = Context.from_episodes(episodes, gamma)
    shuffled = random.sample(rows, len(rows))
    others = [Context(*arrays(shuffled, dim)), Context(*arrays(shuffled * 3, dim)), Context.concatenate([context] * 3)]
    for evaluator in EVALUATORS:
        values = evaluator.fit(context).by_depth(context.points)
        for other in others:
            close(evaluator.fit(other).by_depth(context.points), values)
    auto = KernelTD(RBF(0.8), 6)
    close(auto.fit(others[0]).by_depth(context.points), auto.fit(context).by_depth(context.points))


@checked
@given(
    st.lists(several_episodes(), min_size=1, max_size=4),
    gammas,
    st.sampled_from(["left", "right", "anywhere"]),
    st.sampled_from([0.0, 1e30, float("nan"), -INF]),
)
def test_padding_is_never_read(batch, gamma, side, garbage):
    batch = [episodes for episodes in batch if episodes[0].observations.shape[1] == batch[0][0].observations.shape[1]]
    parts = [Context.from_episodes(episodes, gamma) for episodes in batch]
    length, dim = max(len(part) for part in parts) + 2, parts[0].dim
    rng = np.random.default_rng(len(batch))
    states, next_states = np.full((2, len(parts), length, dim), garbage)
    rewards, discounts = np.full((2, len(parts), length), garbage)
    mask = np.zeros((len(parts), length), dtype=bool)
    for b, part in enumerate(parts):
        start = {"left": length - len(part), "right": 0, "anywhere": None}[side]
        chosen = np.sort(rng.permutation(length)[: len(part)]) if start is None else start + np.arange(len(part))
        mask[b, chosen] = True
        states[b, chosen], next_states[b, chosen] = part.states, part.next_states
        rewards[b, chosen], discounts[b, chosen] = part.rewards, part.discounts
    context = Context(states, rewards, discounts, next_states, mask=mask)
    queries = torch.rand(4, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for evaluator in (*EVALUATORS, KernelTD(RBF(0.8), 6)):
        values = evaluator.fit(context).by_depth(queries)
        for b, part in enumerate(parts):
            close(values[b], evaluator.fit(part).by_depth(queries))
    errors = context.td_errors(torch.ones(context.points.shape[:-1]))
    assert (errors[~context.mask] == 0).all()
    assert not (context.contiguous & ~context.mask).any()
    assert not (context.contiguous[:, :-1] & ~context.mask[:, 1:]).any()
    for b, part in enumerate(parts):
        close(context.next_states[b][mask[b]], part.next_states, 0)
        close(errors[b][mask[b]], part.rewards + part.discounts - 1)


@checked
@given(several_episodes(), gammas)
def test_conversion_there_and_back_changes_nothing_that_float32_can_hold(episodes, gamma):
    rounded = [Episode(e.observations, e.rewards.astype(np.float32), e.terminated) for e in episodes]
    context = Context.from_episodes(rounded, gamma)
    back = context.to(dtype=torch.float32).to(dtype=torch.float64)
    for name in ("states", "rewards", "next_states", "mask", "contiguous", "successors"):
        close(getattr(back, name).double(), getattr(context, name).double(), 0)
    close(back.discounts, context.discounts, 1e-7)
