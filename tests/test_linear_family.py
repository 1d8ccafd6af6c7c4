"""Linear TD, TD(λ), residual gradient and average-reward TD: layer ℓ = sweep ℓ = a plain loop, at every depth."""

import numpy as np
import pytest
import torch

from icrl_agents import constructions
from icrl_agents.context import Context
from icrl_agents.eligibility import eligibility_traces
from icrl_agents.evaluators import AverageRewardTD, LinearTD, ResidualGradient, TDLambda

DIM, DEPTH, TOLERANCE = 3, 40, 1e-10
PRECONDITIONER = [[1.0, 0.3, 0.0], [-0.2, 0.8, 0.1], [0.0, 0.1, 1.2]]


# Contexts as lists of (x, R, γ, x′, whether the next transition continues this one); x′ is None where γ = 0.
def trajectory(seed, length, gamma=0.9, *, terminated=False, varying=False):
    rng = np.random.default_rng(seed)
    points, rewards = rng.normal(size=(length + 1, DIM)).tolist(), rng.normal(size=length).tolist()
    rows = []
    for k in range(length):
        last = k == length - 1
        discount = float(rng.uniform(0.5, 1.0)) if varying else gamma
        if last and terminated:
            rows.append((points[k], rewards[k], 0.0, None, False))
        else:
            rows.append((points[k], rewards[k], discount, points[k + 1], not last))
    return rows


def shuffled(rows, seed=5):
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    return [(*rows[i][:4], j + 1 < len(order) and rows[i][4] and order[j + 1] == i + 1) for j, i in enumerate(order)]


CONTEXTS = {
    "single": trajectory(0, 12),
    "one transition": trajectory(1, 1),
    "terminated": trajectory(2, 9, terminated=True),
    "varying discount": trajectory(3, 8, varying=True),
    "several episodes": trajectory(4, 5, terminated=True) + trajectory(5, 7) + trajectory(6, 1) + trajectory(7, 4),
    "shuffled": shuffled(trajectory(8, 6, terminated=True) + trajectory(9, 6)),
}
CONTINUING = ["single", "one transition", "varying discount"]


def as_context(rows):
    return Context(
        [x for x, *_ in rows],
        [reward for _, reward, *_ in rows],
        [discount for _, _, discount, *_ in rows],
        [[float("nan")] * DIM if x_next is None else x_next for *_, x_next, _ in rows],
    )


# The oracles.
def dot(a, b):
    return sum(p * q for p, q in zip(a, b, strict=True))


def minus(a, b, factor):
    return [p - factor * q for p, q in zip(a, b, strict=True)]


def times(matrix, vector):
    return [dot(row, vector) for row in matrix]


def oracle_traces(rows, decay):
    traces = []
    for k, (x, *_) in enumerate(rows):
        carries = k > 0 and rows[k - 1][4]
        factor = -decay * rows[k - 1][2] if carries else 0.0
        traces.append(minus(x, traces[-1] if carries else x, factor))
    return traces


def oracle_directions(name, rows):
    differences = [minus(x, x if x_next is None else x_next, discount) for x, _, discount, x_next, _ in rows]
    states = [x for x, *_ in rows]
    if name == "residual_gradient":
        return differences, differences
    return states, oracle_traces(rows, 0.7) if name == "td_lambda" else states


def oracle_auto(readers, directions, matrix):
    sums = [sum(abs(dot(x, times(matrix, e))) for x in readers) for e in directions]
    return len(readers) / max(sums)


def oracle_linear(name, rows, step_size, matrix, sweeps=DEPTH):
    readers, directions = oracle_directions(name, rows)
    alpha = oracle_auto(readers, directions, matrix) if step_size == "auto" else step_size
    w, history = [0.0] * DIM, [[0.0] * DIM]
    for _ in range(sweeps):
        total = [0.0] * DIM
        for (x, reward, discount, x_next, _), e in zip(rows, directions, strict=True):
            delta = reward - dot(w, x) + (discount * dot(w, x_next) if x_next is not None else 0.0)
            total = minus(total, e, -delta)
        w = minus(w, times(matrix, total), -alpha / len(rows))
        history.append(w)
    return history


def oracle_average_reward(rows, step_size, reward_step_size, matrix, sweeps=DEPTH):
    states = [x for x, *_ in rows]
    alpha = oracle_auto(states, states, matrix) if step_size == "auto" else step_size
    w, average, history = [0.0] * DIM, 0.0, [([0.0] * DIM, 0.0)]
    for _ in range(sweeps):
        deltas = [reward - average + dot(w, x_next) - dot(w, x) for x, reward, _, x_next, _ in rows]
        total = [0.0] * DIM
        for x, delta in zip(states, deltas, strict=True):
            total = minus(total, x, -delta)
        w = minus(w, times(matrix, total), -alpha / len(rows))
        average += reward_step_size / len(rows) * sum(deltas)
        history.append((w, average))
    return history


IDENTITY = [[float(i == j) for j in range(DIM)] for i in range(DIM)]
STEPS = [("auto", None), (0.1, None), (0.1, PRECONDITIONER), ("auto", PRECONDITIONER)]
CONSTRUCTIONS = {
    "linear_td": lambda step, c: constructions.linear_td(DIM, DEPTH, step, c),
    "td_lambda": lambda step, c: constructions.td_lambda(DIM, DEPTH, 0.7, step, c),
    "residual_gradient": lambda step, c: constructions.residual_gradient(DIM, DEPTH, step, c),
}


def queries(seed=100, m=4):
    return torch.as_tensor(np.random.default_rng(seed).normal(size=(m, DIM)))


def values(history, at):
    return torch.tensor([[dot(w, q) for w in history] for q in at.tolist()], dtype=torch.float64)


def assert_close(a, b, tolerance=TOLERANCE):
    assert a.shape == b.shape
    assert float((a - b).abs().max()) <= tolerance


@pytest.mark.parametrize(("step_size", "preconditioner"), STEPS)
@pytest.mark.parametrize("kind", CONTEXTS)
@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_layer_equals_sweep_equals_oracle_at_every_depth(name, kind, step_size, preconditioner):
    rows, at = CONTEXTS[kind], queries()
    transformer, context = CONSTRUCTIONS[name](step_size, preconditioner), as_context(rows)
    expected = values(oracle_linear(name, rows, step_size, preconditioner or IDENTITY), at)

    assert_close(transformer.reference.fit(context).by_depth(at), expected)
    assert_close(transformer.fit(context).by_depth(at), expected)
    for depth, tokens in enumerate(transformer.hidden_states(context, at)):
        assert_close(transformer.blocks[0].read_out(tokens)[len(rows) :], expected[:, depth])
    assert_close(transformer(context, at), expected[:, -1])


@pytest.mark.parametrize(("step_size", "preconditioner"), STEPS)
@pytest.mark.parametrize("kind", CONTINUING)
def test_average_reward_layer_equals_sweep_equals_oracle(kind, step_size, preconditioner):
    rows, at = CONTEXTS[kind], queries()
    transformer = constructions.average_reward_td(DIM, DEPTH, step_size, 0.4, preconditioner)
    history = oracle_average_reward(rows, step_size, 0.4, preconditioner or IDENTITY)
    expected = values([w for w, _ in history], at)

    context = as_context(rows)
    fitted = transformer.reference.fit(context)
    assert_close(fitted.by_depth(at), expected)
    assert_close(fitted.average_rewards, torch.tensor([a for _, a in history], dtype=torch.float64))
    assert_close(transformer.fit(context).by_depth(at), expected)
    assert_close(transformer(context, at), expected[:, -1])
    read = [transformer.blocks[0].average_reward(tokens) for tokens in transformer.hidden_states(context)]
    assert_close(torch.stack(read), fitted.average_rewards)


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("name", [*CONSTRUCTIONS, "average_reward_td"])
def test_batch_equals_one_by_one(name, padding):
    average = name == "average_reward_td"
    transformer = constructions.average_reward_td(DIM, 10) if average else CONSTRUCTIONS[name]("auto", None)
    contexts = [as_context(CONTEXTS[kind]) for kind in (CONTINUING if average else CONTEXTS)]
    batch, at = Context.stack(contexts, padding), queries()
    for evaluator in (transformer, transformer.reference):
        together = evaluator.fit(batch).by_depth(at)
        assert_close(together, torch.stack([evaluator.fit(c).by_depth(at) for c in contexts]))
    assert_close(
        transformer(batch, at.expand(len(contexts), -1, -1)), torch.stack([transformer(c, at) for c in contexts])
    )
    if average:
        one_by_one = torch.stack([transformer.reference.fit(c).average_rewards for c in contexts])
        assert_close(transformer.reference.fit(batch).average_rewards, one_by_one)


@pytest.mark.parametrize("junk", [float("nan"), 1e30])
def test_padding_is_never_read(junk):
    rows = CONTEXTS["single"]
    context = as_context(rows)
    mask = torch.tensor([False] * 2 + [True] * len(rows) + [False])

    def padded(column):
        blank = torch.full((3, *column.shape[1:]), junk, dtype=torch.float64)
        return torch.cat([blank[:2], column, blank[2:]])

    columns = [padded(c) for c in (context.states, context.rewards, context.discounts, context.next_states)]
    wide, at = Context(*columns, mask=mask), queries()
    for build in CONSTRUCTIONS.values():
        transformer = build("auto", None)
        for evaluator in (transformer, transformer.reference):
            assert_close(evaluator.fit(wide).by_depth(at), evaluator.fit(context).by_depth(at))
    transformer = constructions.average_reward_td(DIM, 10)
    assert_close(transformer(wide, at), transformer(context, at))


@pytest.mark.parametrize("kind", CONTEXTS)
@pytest.mark.parametrize("decay", [0.3, 1.0])
def test_traces_are_the_product_with_the_decayed_mask(kind, decay):
    rows, context = CONTEXTS[kind], as_context(CONTEXTS[kind])
    expected = torch.tensor(oracle_traces(rows, decay), dtype=torch.float64)
    assert_close(eligibility_traces(context, context.states, decay), expected)
    M = eligibility_traces(context, torch.eye(len(rows), dtype=torch.float64), decay)
    assert torch.equal(M, M.tril())
    assert_close(M @ context.states, eligibility_traces(context, context.states, decay))


@pytest.mark.parametrize(
    "evaluator",
    [
        LinearTD(3),
        TDLambda(0.5, 3),
        ResidualGradient(3),
        AverageRewardTD(3),
        constructions.linear_td(DIM, 3),
        constructions.td_lambda(DIM, 3, 0.5),
        constructions.residual_gradient(DIM, 3),
        constructions.average_reward_td(DIM, 3),
    ],
    ids=lambda e: type(getattr(e, "reference", e)).__name__ + ("" if hasattr(e, "num_sweeps") else " layers"),
)
def test_empty_context_has_value_zero(evaluator):
    empty = Context(np.zeros((0, DIM)), [], [], np.zeros((0, DIM)))
    assert torch.equal(evaluator.fit(empty).by_depth(queries()), torch.zeros(4, 4, dtype=torch.float64))
    batch = Context.stack([empty, as_context(CONTEXTS["single"])])
    assert torch.equal(evaluator.fit(batch).by_depth(queries())[0], torch.zeros(4, 4, dtype=torch.float64))


def test_float32_stays_float32():
    context = as_context(CONTEXTS["single"]).to(dtype=torch.float32)
    for build in CONSTRUCTIONS.values():
        transformer = build("auto", None)
        expected = transformer.reference.fit(as_context(CONTEXTS["single"]))(queries())
        for evaluator in (transformer, transformer.reference):
            found = evaluator.fit(context)(queries().float())
            assert found.dtype == torch.float32
            assert_close(found.double(), expected, 1e-4)
