"""Closed forms on batches, padding, terminal and repeated states, and on systems that are singular."""

import math

import numpy as np
import pytest
import torch

from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import LSTD, KernelLSTD, KernelTD, MonteCarlo
from icrl_agents.kernels import RBF, Identity, Linear

DIM = 3


def context_of(seed, *lengths, terminated=()):
    rng = np.random.default_rng(seed)
    return Context.from_episodes(
        [Episode(rng.normal(size=(n + 1, DIM)), rng.normal(size=n), i in terminated) for i, n in enumerate(lengths)],
        0.9,
    )


CONTEXTS = {
    "single": context_of(0, 15),
    "several": context_of(1, 6, 9, 5, terminated=(0, 2)),
    "fewer than d": context_of(9, 2),
}
AT = torch.as_tensor(np.random.default_rng(99).normal(size=(5, DIM)))


def assert_close(a, b, tolerance=1e-10):
    assert a.shape == b.shape
    assert float((a - b).abs().max()) <= tolerance


EVALUATORS = [
    LSTD(),
    LSTD(0.1),
    KernelLSTD(RBF(0.5)),
    KernelLSTD(RBF("median"), 0.1),
    KernelLSTD(RBF(0.5), normalise=True),
    MonteCarlo(),
    MonteCarlo(RBF(1.0), min_tail=2),
]


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("evaluator", EVALUATORS, ids=repr)
def test_batch_equals_one_by_one(evaluator, padding):
    contexts = list(CONTEXTS.values())
    together = evaluator.fit(Context.stack(contexts, padding))(AT)
    assert_close(together, torch.stack([evaluator.fit(context)(AT) for context in contexts]))


@pytest.mark.parametrize("evaluator", EVALUATORS, ids=repr)
def test_empty_context_has_value_zero(evaluator):
    empty = Context(np.zeros((0, DIM)), [], [], np.zeros((0, DIM)))
    zero = torch.zeros(5, dtype=torch.float64)
    assert torch.equal(evaluator.fit(empty)(AT), zero)
    assert torch.equal(evaluator.fit(Context.stack([empty, CONTEXTS["single"]]))(AT)[0], zero)


@pytest.mark.parametrize("evaluator", [LSTD(), KernelLSTD(Identity()), KernelLSTD(RBF(1.0), normalise=True)], ids=repr)
def test_termination_and_truncation(evaluator):
    loop = np.array([[1.0], [1.0]])
    truncated = Context.from_episodes([Episode(loop, np.array([1.0]))], 0.9)
    terminated = Context.from_episodes([Episode(loop, np.array([1.0]), terminated=True)], 0.9)
    assert float(evaluator.fit(truncated)([1.0])) == pytest.approx(10.0)
    assert float(evaluator.fit(terminated)([1.0])) == pytest.approx(1.0)


@pytest.mark.parametrize("evaluator", [LSTD(), KernelLSTD(Identity()), MonteCarlo()], ids=repr)
def test_nothing_leaks_back_from_a_terminal_state(evaluator):
    states = np.array([[1.0, 0.0], [0.0, 1.0], [np.nan, np.nan]])
    context = Context.from_episodes([Episode(states, np.array([0.0, 1.0]), terminated=True)], 0.9)
    values = evaluator.fit(context)(torch.eye(2, dtype=torch.float64))
    assert_close(values, torch.tensor([0.9, 1.0], dtype=torch.float64))


@pytest.mark.parametrize("evaluator", [LSTD(), KernelLSTD(RBF(1.0)), KernelLSTD(RBF(1.0), normalise=True)], ids=repr)
def test_many_copies_of_one_state_have_its_mean_target(evaluator):
    x = np.tile([0.3, -0.2, 1.0], (50, 1))
    context = Context(x, np.arange(50.0), np.full(50, 0.9), x)
    assert float(evaluator.fit(context)(x[0])) == pytest.approx(24.5 / 0.1)


def test_a_long_chain_at_a_high_discount_is_solved_to_the_last_digits():
    num_states, gamma = 500, 0.999
    now, eye = np.arange(num_states), np.eye(num_states)
    rewards = np.random.default_rng(0).normal(size=num_states)
    following = (now + 1) % num_states
    context = Context(eye, rewards, np.full(num_states, gamma), eye[following])
    v = LSTD().fit(context)(torch.as_tensor(eye)).numpy()
    assert np.abs(v - gamma * v[following] - rewards).max() < 1e-9


def test_the_scale_of_the_features_does_not_make_lstd_singular():
    context, scale = CONTEXTS["several"], torch.tensor([1e-5, 1.0, 1e5], dtype=torch.float64)
    scaled = Context(context.states * scale, context.rewards, context.discounts, context.next_states * scale)
    assert_close(LSTD().fit(scaled)(AT * scale), LSTD().fit(context)(AT), 1e-8)


def test_constant_and_collinear_features_are_no_difficulty():
    context = CONTEXTS["several"]

    def widened(x):
        return torch.cat([x, 2 * x[..., :1], torch.zeros_like(x[..., :1])], dim=-1)

    wide = Context(widened(context.states), context.rewards, context.discounts, widened(context.next_states))
    assert_close(LSTD().fit(wide)(widened(AT)), LSTD().fit(context)(AT))


@pytest.mark.parametrize("evaluator", [LSTD(), KernelLSTD(RBF(0.5)), MonteCarlo(RBF(0.5))], ids=repr)
def test_float32_stays_float32(evaluator):
    context = CONTEXTS["several"]
    found = evaluator.fit(context.to(dtype=torch.float32))(AT.float())
    assert found.dtype == torch.float32
    assert_close(found.double(), evaluator.fit(context)(AT), 1e-3)


def undiscounted_loop():
    eye = np.eye(4)
    return Context(eye, np.ones(4), np.ones(4), eye[[1, 2, 3, 0]])


MISTAKES = {
    r"LSTD: .* of rank 3 in the 4 dimensions that the 4 distinct states of the context span \(d = 4\)": (
        lambda: LSTD().fit(undiscounted_loop())
    ),
    r"KernelLSTD: K − γK′ .* singular, of rank 3 over the 4 distinct states.*γ = 1 and no termination": (
        lambda: KernelLSTD(Identity()).fit(undiscounted_loop())
    ),
    "singular, of rank 3 over the 15 distinct states": lambda: KernelLSTD(Linear()).fit(CONTEXTS["single"]),
    "a kernel too wide .* pass ridge > 0, for instance 1.5e-05": lambda: KernelLSTD(RBF(1e4)).fit(CONTEXTS["single"]),
    "pass ridge larger than 1e-20": lambda: KernelLSTD(RBF(1e4), ridge=1e-20).fit(CONTEXTS["single"]),
    "ridge: expected a finite number ≥ 0, got -1": lambda: LSTD(-1.0),
    "ridge: expected a finite number ≥ 0, got 'a little'": lambda: KernelLSTD(RBF(), ridge="a little"),
    "min_tail: expected an integer ≥ 0, got 1.5": lambda: MonteCarlo(min_tail=1.5),
    "softmax attention needs κ ≥ 0": lambda: MonteCarlo(Linear()).fit(CONTEXTS["single"])(AT),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named(message):
    with pytest.raises(ValueError, match=message):
        MISTAKES[message]()


def test_one_singular_context_of_a_batch_is_an_error():
    eye = np.eye(4)
    fine = Context(eye, np.ones(4), np.full(4, 0.5), eye[[1, 2, 3, 0]])
    with pytest.raises(ValueError, match="rank 3"):
        LSTD().fit(Context.stack([fine, undiscounted_loop()]))


def test_closed_forms_of_states_that_need_a_gradient_pass_it_on_without_a_warning():
    states = torch.tensor([[1.0, 0.2], [0.3, 1.0], [0.9, 0.4]], dtype=torch.float64, requires_grad=True)
    context = Context(states, [1.0, 0.5, 0.2], [0.9, 0.9, 0.0], states.detach().flip(0))
    for evaluator in (LSTD(), KernelLSTD(RBF(0.5))):
        (gradient,) = torch.autograd.grad(evaluator.fit(context)(states.detach()).sum(), [states], retain_graph=True)
        assert torch.isfinite(gradient).all()
        assert gradient.abs().max() > 0


def test_states_too_close_for_a_kernel_are_refused_before_digits_are_lost():
    """With reciprocal condition 1.8e-13 a value of 23.7171 was given as 23.7160."""
    paths = ([0.277, 0.753, 0.406, 0.671, -0.009, 0.069], [-0.038, -0.218, -0.457, -0.491, -0.984, -0.731])
    episodes = [Episode(np.array(path)[:, None], np.linspace(-1.3, 0.1, 5), terminated=True) for path in paths]
    context = Context.from_episodes(episodes, 0.3)
    for evaluator in (KernelTD(RBF(0.75), math.inf, 0.05), KernelLSTD(RBF(0.75), normalise=False)):
        with pytest.raises(ValueError, match=r"reciprocal condition number \de-13"):
            evaluator.fit(context)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_gradient_of_lstd_is_that_of_differences_where_singular_values_coincide(ridge):
    states = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    query = torch.tensor([[1.0, 0.5]], dtype=torch.float64)

    def value(x):
        return LSTD(ridge).fit(Context(x, [1.0, 2.0, 3.0, 4.0], [0.5] * 4, states.roll(1, 0)))(query).sum()

    assert torch.autograd.gradcheck(value, states.clone().requires_grad_(True), atol=1e-6)
    assert float(value(states.clone().requires_grad_(True)).detach()) == pytest.approx(float(value(states)), rel=1e-12)


@pytest.mark.parametrize(
    ("n", "d", "ridge", "kind"), [(5, 8, 0.1, ""), (5, 8, 0.0, ""), (9, 4, 0.1, "dead"), (9, 4, 0.1, "copy")]
)
def test_the_gradient_of_lstd_knows_of_directions_that_no_state_shows(n, d, ridge, kind):
    rng = np.random.default_rng(0)
    states = torch.as_tensor(rng.normal(size=(n + 1, d)))
    if kind:
        states[:, 3] = 0.0 if kind == "dead" else states[:, 2]
    rewards, query = torch.as_tensor(rng.normal(size=n)), torch.as_tensor(rng.normal(size=d))

    def value(x):
        return LSTD(ridge).fit(Context(x[:-1], rewards, torch.full((n,), 0.9).double(), x[1:]))(query)

    assert torch.autograd.gradcheck(value, states.clone().requires_grad_(True), atol=1e-5)


def test_a_tail_that_no_return_has_is_a_warning():
    states = np.arange(51.0)[:, None]
    context = Context.from_episodes([Episode(states, np.ones(50))] * 3, 0.99)
    with pytest.warns(RuntimeWarning, match="min_tail: no return of a context holds 100 rewards.* holds 50"):
        assert not MonteCarlo(RBF(0.5), min_tail=100).fit(context)(states).any()
    MonteCarlo(RBF(0.5), min_tail=50).fit(context)
