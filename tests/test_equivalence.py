"""Layer ℓ of each construction = sweep ℓ of its algorithm = a plain loop, at every depth, on every process."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import gymnasium as gym
import pytest
import torch

from icrl_agents import constructions, kernels
from icrl_agents.collection import collect_episodes
from icrl_agents.context import Context
from icrl_agents.transformer import InContextTransformer
from tests import oracles

pytestmark = pytest.mark.filterwarnings("ignore::icrl_agents.divergence.DivergenceWarning")
DEPTH, TOLERANCE, GAMMA = 40, 1e-10, 0.9

PROCESSES = {
    "Boyan one-hot": partial(gym.make, "icrl/BoyanChain-v0", num_states=5),
    "Boyan random": partial(gym.make, "icrl/BoyanChain-v0", features="random", num_features=3),
    "Loop one-hot": partial(gym.make, "icrl/LoopChain-v0", num_states=6),
    "Loop random": partial(gym.make, "icrl/LoopChain-v0", features="random"),
    "RKHS": partial(gym.make, "icrl/RKHS-v0", dim=2),
    "CartPole": partial(gym.make, "icrl/CartPole-v0"),
    "MetaWorld": partial(gym.make, "icrl/MetaWorldMRP-v0"),
}
CONTROL = {"icrl/MetaWorld-v0"}  # has an action of its own, so it is no process


def matrix(dim):
    """Some matrix (d, d) that is not symmetric."""
    return [[(i == j) + 0.3 * math.sin(3 * i + j) for j in range(dim)] for i in range(dim)]


def bilinear(dim):
    return kernels.DotProduct(torch.tensor(matrix(dim), dtype=torch.float64))


# Of d dimensions and of the context's states: the kernel, and its score log κ as a plain function.
SCORES = {
    "RBF": (lambda d: kernels.RBF(0.7), lambda states: oracles.rbf(0.7)),
    "RBF median": (lambda d: kernels.RBF("median"), lambda states: oracles.rbf(oracles.median_distance(states))),
    "Laplace": (lambda d: kernels.Laplace(0.5), lambda states: oracles.laplace(0.5)),
    "Exponential": (lambda d: kernels.Exponential(0.8), lambda states: oracles.exponential(0.8)),
    "DotProduct": (bilinear, lambda states: oracles.bilinear(matrix(len(states[0])))),
    "Identity": (lambda d: kernels.Identity(), lambda states: oracles.indicator),
    "callable": (lambda d: lambda x, y: 1 + (x @ y.mT).square(), lambda states: oracles.quadratic),
}
# The same with κ itself, and two kernels that may be negative or zero.
KERNELS = {name: (kernel, lambda states, g=g: oracles.exp_of(g(states))) for name, (kernel, g) in SCORES.items()} | {
    "Linear": (lambda d: kernels.Linear(), lambda states: oracles.dot),
    "ReLU": (lambda d: kernels.ReLU(), lambda states: oracles.rectified_dot),
}


@dataclass(frozen=True)
class Construction:
    """A construction with its arguments (a function makes them of d), and the loop that is its algorithm."""

    function: Callable[..., InContextTransformer]
    arguments: Callable[[int], dict[str, Any]]
    oracle: Callable[..., list[list[float]]]  # (rows, queries) -> v_ℓ(query), (m, L+1)
    continuing: bool = False  # whether it refuses terminations

    def build(self, dim, depth=DEPTH):
        return self.function(num_layers=depth, **self.arguments(dim))


def over_kernels(function, algorithm, table, names, *settings):
    """Both forms of a construction, with each kernel and each of the settings."""
    for name in names:
        kernel, formula = table[name]
        for setting in settings:

            def oracle(rows, queries, formula=formula, setting=setting):
                return algorithm(rows, formula([x for x, *_ in rows]), DEPTH, queries, **setting)

            for form in ("dual_head", "temporal_shift"):
                arguments = partial(lambda d, k, **given: {"kernel": k(d), **given}, k=kernel, form=form, **setting)
                title = " ".join([function.__name__, form, name, *map(str, setting.values())])
                yield title, Construction(function, arguments, oracle)


def over_features(function, algorithm, *settings):
    """A construction of the linear family with each setting; ``preconditioner`` is called with d."""
    for setting in settings:

        def resolved(dim, setting=setting):
            return {name: value(dim) if callable(value) else value for name, value in setting.items()}

        def oracle(rows, queries, resolved=resolved):
            given = resolved(len(rows[0][0]))
            return algorithm(rows, DEPTH, queries, matrix=given.pop("preconditioner", None), **given)

        continuing = function is constructions.average_reward_td
        arguments = partial(lambda d, resolved: {"dim": d, **resolved(d)}, resolved=resolved)
        title = " ".join([function.__name__, *(getattr(v, "__name__", str(v)) for v in setting.values())])
        yield title, Construction(function, arguments, oracle, continuing)


PLAIN, TUNED = {}, {"step_size": 0.1, "preconditioner": matrix}
CONSTRUCTIONS = dict(
    [
        *over_kernels(constructions.weighted_softmax_td, oracles.softmax_td, SCORES, SCORES, PLAIN),
        *over_kernels(constructions.weighted_softmax_td, oracles.softmax_td, SCORES, ["RBF"], {"step_size": 0.3}),
        *over_kernels(constructions.kernel_td, oracles.kernel_td, KERNELS, KERNELS, PLAIN),
        *over_kernels(constructions.kernel_td, oracles.kernel_td, KERNELS, ["RBF"], {"step_size": 0.02}),
        *over_features(constructions.linear_td, oracles.linear_td, PLAIN, TUNED),
        *over_features(constructions.td_lambda, oracles.linear_td, {"lambda_": 0.7}, {"lambda_": 1.0, **TUNED}),
        *over_features(constructions.residual_gradient, oracles.residual_gradient, PLAIN, TUNED),
        *over_features(
            constructions.average_reward_td, oracles.average_reward_td, PLAIN, {"reward_step_size": 0.4, **TUNED}
        ),
    ]
)


# Contexts as rows (x, R, γ, x′, linked). A piece is what of an episode is taken: its beginning, which is then cut, or
# its end, which terminates: so CartPole's terminations are real ones, and those of the other processes are declared.
BEGINNING, END = False, True
CONTEXTS = {
    "single": [(20, BEGINNING)],
    "terminated": [(16, END)],
    "truncations": [(8, BEGINNING), (1, BEGINNING), (7, BEGINNING)],
    "several": [(7, END), (6, BEGINNING), (1, END), (1, BEGINNING), (5, END)],
    "reversed": [(9, END), (5, BEGINNING)],
}
CONTINUING = ("single", "truncations")


@cache
def episodes_of(process):
    env = PROCESSES[process]()
    return collect_episodes(env, num_episodes=6, seed=0, max_episode_steps=None if process == "CartPole" else 25)


@cache
def rows_of(process, kind):
    rows = []
    for episode, (length, end) in zip(episodes_of(process), CONTEXTS[kind], strict=False):
        first = len(episode) - length if end else 0
        states, rewards = episode.observations[first:].tolist(), episode.rewards[first:].tolist()
        for k in range(length):
            goes_on = k + 1 < length
            gamma, following = (GAMMA, states[k + 1]) if goes_on or not end else (0.0, None)
            rows.append((states[k], rewards[k], gamma, following, goes_on))
    return [(*row[:4], False) for row in reversed(rows)] if kind == "reversed" else rows


@cache
def context_of(process, kind):
    states, rewards, discounts, next_states, linked = zip(*rows_of(process, kind), strict=True)
    next_states = [[math.nan] * len(states[0]) if x is None else x for x in next_states]
    return Context(states, rewards, discounts, next_states, contiguous=linked)


@cache
def held_out(process):
    """States of an episode that no context holds, one of them moved far away."""
    states = torch.as_tensor(episodes_of(process)[5].observations[[0, 5, 20]])
    return torch.cat([states, 3.0 * states[:1] - 1.0])


@cache
def expected_values(oracle, process, kind):
    """The oracle's v_ℓ on the context's own states, then on the held-out ones: (n + m, L+1)."""
    rows = rows_of(process, kind)
    values = oracle(rows, [x for x, *_ in rows] + held_out(process).tolist())
    return torch.tensor(values, dtype=torch.float64)


def assert_close(found, expected, tolerance=TOLERANCE):
    """Equal to ``tolerance``, relative to max(1, |expected|)."""
    assert (found.shape, found.dtype) == (expected.shape, torch.float64)
    assert float(((found - expected).abs() / expected.abs().clamp(min=1.0)).max()) <= tolerance


def test_every_construction_and_process_is_covered():
    public = {getattr(constructions, name) for name in constructions.__all__}
    assert {c.function for c in CONSTRUCTIONS.values()} == public
    assert {f for f in vars(constructions).values() if inspect.isfunction(f)} == public
    ids = {make.args[0] for make in PROCESSES.values()}
    assert ids | CONTROL == {name for name in gym.registry if name.startswith("icrl/")}
    assert all(episode.terminated for episode in episodes_of("CartPole"))


@pytest.mark.parametrize("kind", CONTEXTS)
@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_layer_equals_sweep_equals_oracle_at_every_depth(name, process, kind):
    construction, context, at = CONSTRUCTIONS[name], context_of(process, kind), held_out(process)
    transformer = construction.build(context.dim)
    if construction.continuing and kind not in CONTINUING:
        with pytest.raises(ValueError, match=r"context: average-reward evaluation needs transitions that continue"):
            transformer.fit(context)
        return
    expected = expected_values(construction.oracle, process, kind)
    everywhere = torch.cat([context.states, at])

    assert_close(transformer.reference.fit(context).by_depth(everywhere), expected)
    fitted = transformer.fit(context)
    assert_close(fitted.by_depth(everywhere), expected)
    assert_close(fitted.at_depth(17)(everywhere), expected[:, 17])
    layers = transformer.hidden_states(context, everywhere)
    columns = torch.stack([transformer.blocks[0].read_out(tokens) for tokens in layers], dim=-1)
    assert_close(columns[-len(everywhere) :], expected)
    if construction.function in (constructions.weighted_softmax_td, constructions.kernel_td):
        assert_close(columns[: len(context)], expected[: len(context)])


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("name", [name for name in CONSTRUCTIONS if "callable" not in name])
def test_a_saved_and_loaded_transformer_is_bit_equal(name, process, tmp_path):
    construction = CONSTRUCTIONS[name]
    context, at = context_of(process, "truncations" if construction.continuing else "several"), held_out(process)
    transformer = construction.build(context.dim)
    transformer.save_pretrained(tmp_path)
    loaded = InContextTransformer.from_pretrained(tmp_path)

    weights = loaded.state_dict()
    assert list(weights) == list(transformer.state_dict())
    assert all(torch.equal(weight, weights[key]) for key, weight in transformer.state_dict().items())
    assert torch.equal(loaded.fit(context).by_depth(at), transformer.fit(context).by_depth(at))


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_a_batch_of_contexts_equals_one_by_one(name, process):
    construction, at = CONSTRUCTIONS[name], held_out(process)
    contexts = [context_of(process, kind) for kind in (CONTINUING if construction.continuing else CONTEXTS)]
    transformer = construction.build(contexts[0].dim, depth=7)
    expected = torch.stack([transformer.fit(context).by_depth(at) for context in contexts])
    for padding in ("right", "left"):
        batch = Context.stack(contexts, padding)
        assert_close(transformer.fit(batch).by_depth(at), expected)
        assert_close(transformer.reference.fit(batch).by_depth(at), expected)
        assert_close(transformer(filled(batch, math.nan), at), expected[..., -1])


def filled(batch, junk):
    """The same batch, with ``junk`` in the padding."""
    padding = ~batch.mask
    rows = [batch.states, batch.rewards, batch.discounts, batch.next_states]
    rows = [row.masked_fill(padding.reshape(*padding.shape, *[1] * (row.ndim - 2)), junk) for row in rows]
    return Context(*rows, mask=batch.mask, contiguous=batch.contiguous)
