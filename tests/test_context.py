import copy
import pickle

import numpy as np
import pytest
import torch

from icrl_agents import constructions
from icrl_agents.context import Context
from icrl_agents.diagnostics import attention_matrix, td_loss
from icrl_agents.episode import Episode
from icrl_agents.evaluators import KernelLSTD, KernelTD, TabularTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, Identity
from icrl_agents.prompt import route

NAN, INF = float("nan"), float("inf")


def close(left, right, tolerance=1e-12):
    torch.testing.assert_close(left, torch.as_tensor(right, dtype=left.dtype), rtol=tolerance, atol=tolerance)


def trajectory(length, dim=2, seed=0, dtype=np.float64, terminated=False):
    rng = np.random.default_rng(seed)
    observations = rng.normal(size=(length + 1, dim)).astype(dtype)
    return Episode(observations, rng.normal(size=length), terminated)


def test_a_self_loop_is_worth_ten_if_truncated_and_one_if_terminated():
    for terminated, value in ((False, 10.0), (True, 1.0)):
        context = Context.from_episodes([Episode(np.zeros((2, 1)), np.ones(1), terminated)], 0.9)
        close(TabularTD(num_sweeps=400).fit(context)([0.0]), value)


def test_nothing_leaks_from_beyond_a_terminal_state():
    episodes = [Episode(np.array([[0.0], [1.0], [0.0]]), np.array([0.0, 1.0]), terminated=True)]
    values = TabularTD(num_sweeps=100).fit(Context.from_episodes(episodes, 0.9))([[0.0], [1.0]])
    close(values, [0.9, 1.0])


def test_an_episode_of_three_steps_is_exactly_its_three_transitions():
    o = np.arange(8.0).reshape(4, 2)
    context = Context.from_episodes([Episode(o, np.array([1.0, 2.0, 3.0]), terminated=True)], 0.9)
    close(context.states, o[:3], 0)
    close(context.rewards, [1.0, 2.0, 3.0], 0)
    close(context.next_states, o[1:], 0)
    close(context.discounts, [0.9, 0.9, 0.0], 0)


def test_two_episodes_are_paired_within_themselves_only():
    first, second = trajectory(4, seed=1), trajectory(3, seed=2, terminated=True)
    alone, both = (Context.from_episodes(e, 0.9) for e in ([first], [first, second]))
    row = torch.arange(1.0, 1.0 + len(both.points), dtype=torch.float64)
    close(route(both, row)[:7], [1.8, 2.7, 3.6, 0.9 * row[7], 0.9 * row[5], 0.9 * row[6], 0.0])
    model = constructions.weighted_softmax_td(Identity(), 6, form="temporal_shift")
    close(model.fit(both)(alone.points), model.fit(alone)(alone.points))


def test_an_empty_context_is_worth_nothing_and_its_gradients_are_finite():
    context = Context(np.zeros((0, 2)), [], [], np.zeros((0, 2)))
    queries = torch.randn(4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    for evaluator in (
        WeightedSoftmaxTD(RBF("median"), 3),
        WeightedSoftmaxTD(RBF().requires_grad_(True), 3),
        KernelTD(RBF("median"), 3),
        TabularTD(3),
        constructions.kernel_td(RBF(), 3),
    ):
        values = evaluator.fit(context)(queries)
        close(values.detach(), torch.zeros(4), 0)
        if values.requires_grad:
            (gradient,) = torch.autograd.grad(values.sum(), queries)
            close(gradient, torch.zeros(4, 2), 0)
    assert Context.from_episodes([Episode(np.zeros((1, 2)), np.zeros(0))], 0.9).states.shape == (0, 2)


def test_episodes_without_steps_add_nothing():
    none = Episode(np.full((1, 2), 7.0), np.zeros(0), terminated=True)
    episodes = [trajectory(2, seed=1), trajectory(3, seed=2)]
    with_none = Context.from_episodes([none, episodes[0], none, episodes[1], none], 0.9)
    without = Context.from_episodes(episodes, 0.9)
    for name, tensor in vars(without).items():
        same = getattr(with_none, name)
        assert torch.equal(same, tensor) if isinstance(tensor, torch.Tensor) else same == tensor, name


@pytest.mark.parametrize("garbage", [0.0, NAN, 1e30, -INF])
@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("evaluator", [WeightedSoftmaxTD(RBF("median"), 8), KernelTD(RBF(0.5), 8), TabularTD(8)])
def test_batched_contexts_equal_their_parts_whatever_the_padding_holds(evaluator, padding, garbage):
    parts = [
        Context.from_episodes([trajectory(n // 2, seed=n), trajectory(n - n // 2, seed=-n % 99, terminated=n > 3)], 0.9)
        for n in (3, 7, 31)
    ]
    queries = torch.from_numpy(trajectory(5, seed=5).observations)
    arrays = [np.full((3, 31, *t.shape[1:]), garbage) for t in (parts[0].states, parts[0].rewards) for _ in (0, 1)]
    mask = np.zeros((3, 31), dtype=bool)
    for b, part in enumerate(parts):
        rows = slice(0, len(part)) if padding == "right" else slice(31 - len(part), 31)
        mask[b, rows] = True
        tensors = (part.states, part.next_states, part.rewards, part.discounts)
        for array, tensor in zip(arrays, tensors, strict=True):
            array[b, rows] = tensor.numpy()
    states, next_states, rewards, discounts = arrays
    batches = [
        Context(states, rewards, discounts, next_states, mask=mask),
        Context.stack(parts, padding=padding),
    ]
    for batch in batches:
        values = evaluator.fit(batch).by_depth(queries)
        for b, part in enumerate(parts):
            close(values[b], evaluator.fit(part).by_depth(queries), 1e-10)


def test_terminated_wins_over_truncated():
    # Episode has one flag only, so that nobody downstream can read the two the wrong way round.
    context = Context.from_episodes([Episode(np.array([[0.0], [NAN]]), np.ones(1), terminated=True)], 0.9)
    close(context.discounts, [0.0], 0)
    assert context.points.shape == (1, 1)


def test_types_are_promoted_and_never_narrowed():
    double = Context.from_episodes([trajectory(9, seed=3)], 0.9)
    assert double.dtype == torch.float64
    single = double.to(dtype=torch.float32)
    assert single.dtype == single.rewards.dtype == torch.float32
    arrays = [t.numpy() for t in (single.states, single.rewards, single.discounts, single.next_states)]
    assert Context(*arrays).dtype == torch.float32
    for i in range(4):
        mixed = [a.astype(np.float64) if i == j else a for j, a in enumerate(arrays)]
        assert Context(*mixed).dtype == torch.float64
    assert Context.from_episodes([trajectory(3, dtype=np.float32)], 0.9).dtype == torch.float64
    assert Context(arrays[0], [1] * 9, [1] * 9, arrays[3]).dtype == torch.float64
    evaluator = WeightedSoftmaxTD(RBF(), 20)
    assert evaluator.fit(double)(double.states).dtype == torch.float64
    assert evaluator.fit(single)(single.states).dtype == torch.float32
    close(evaluator.fit(single)(single.states), evaluator.fit(double)(double.states).float(), 1e-4)
    with pytest.raises(ValueError, match=r"states: expected finite numbers in torch.float32, got inf"):
        Context([[1e300]], [1.0], [0.9], [[0.0]]).to(dtype=torch.float32)


def test_arrays_of_any_layout_are_read_and_copied_without_a_warning():
    base = np.arange(24.0).reshape(4, 6)
    plain = Context(base[:, :3].copy(), np.ones(4), np.full(4, 0.5), base[:, 3:].copy())
    frozen = base.copy()
    frozen.flags.writeable = False
    half = np.broadcast_to(0.5, (4,))
    flipped = np.ascontiguousarray(base[::-1])[::-1]
    for states in (base, frozen, flipped, base.astype(">f8"), np.asfortranarray(base), torch.from_numpy(base)):
        context = Context(states[:, :3], [1.0] * 4, half, states[:, 3:], mask=np.broadcast_to(True, (4,)))
        assert torch.equal(context.points, plain.points)
        assert torch.equal(TabularTD(2).fit(context)(states[:, :3]), TabularTD(2).fit(plain)(plain.states))
    rows = [torch.tensor(row, requires_grad=True) for row in base[:, :3]]
    assert torch.equal(Context(rows, [1.0] * 4, half, base[:, 3:]).points, plain.points)
    assert torch.equal(Context.from_episodes([Episode(frozen, half[:3])], 0.5).points, torch.from_numpy(base))
    mask, ones = torch.ones(4, dtype=torch.bool), torch.ones(4)
    aliased = Context(base[:, :3], ones, ones, base[:, 3:], mask=mask)
    base[:], ones[:], mask[:] = NAN, NAN, False
    assert torch.isfinite(aliased.points).all()
    assert aliased.rewards.sum() == 4
    assert aliased.mask.all()


def test_gradients_flow_to_states_rewards_and_next_states():
    generator = torch.Generator().manual_seed(0)
    states, next_states = torch.randn(2, 5, 2, generator=generator, dtype=torch.float64).requires_grad_(True)
    rewards = torch.randn(5, generator=generator, dtype=torch.float64).requires_grad_(True)
    discounts = torch.tensor([0.9, 0.9, 0.0, 0.9, 0.9], dtype=torch.float64)
    mask = torch.tensor([True, True, True, True, False])

    def values(states, rewards, next_states):
        return WeightedSoftmaxTD(RBF(), 4).fit(Context(states, rewards, discounts, next_states, mask))([[0.3, 0.1]])

    assert torch.autograd.gradcheck(values, (states, rewards, next_states))
    (unread,) = torch.autograd.grad(values(states, rewards, next_states), next_states)
    close(unread[[2, 4]], torch.zeros(2, 2), 0)


@pytest.mark.parametrize("gamma", [0.0, 0.9])
def test_a_contiguous_trajectory_stores_one_point_more_than_it_has_steps(gamma):
    context = Context.from_episodes([trajectory(50)], gamma)
    stored = sum(t.numel() for t in (context.points, context._terminal))
    assert stored == (51 if gamma else 50 + 1) * 2
    close(context.next_states[:-1], context.states[1:], 0)
    found = Context(context.states, context.rewards, context.discounts, context.next_states)
    assert torch.equal(found.points, context.points)
    assert torch.equal(found.contiguous, context.contiguous)


def test_contiguity_is_found_unless_it_is_told():
    states, next_states = [[0.0], [1.0], [2.0], [5.0]], [[1.0], [2.0], [3.0], [0.0]]
    for told, expected in (
        (None, [True, True, False, False]),
        ([False, True, False, False], [False, True, False, False]),
        ([True, True, False, True], [True, True, False, False]),  # nothing follows the last transition
    ):
        context = Context(states, [1.0, 2.0, 4.0, 8.0], [0.5] * 4, next_states, contiguous=told)
        assert context.contiguous.tolist() == expected
        close(context.next_states, next_states, 0)
    returns, tails = Context(states, [1.0, 2.0, 4.0, 8.0], [0.5] * 4, next_states).returns()
    assert returns.tolist() == [3.0, 4.0, 4.0, 8.0]
    assert tails.tolist() == [3.0, 2.0, 1.0, 1.0]


def test_a_context_survives_copying_and_pickling():
    context = Context.from_episodes([trajectory(4, terminated=True)], 0.9)
    for other in (copy.deepcopy(context), pickle.loads(pickle.dumps(context)), context.to("cpu")):
        assert repr(other) == "Context(shape=(4, 2), dtype=torch.float64, device='cpu')"
        close(other.next_states, context.next_states, 0)
        assert torch.equal(other.mask, context.mask)


def test_the_end_of_an_episode_is_one_even_where_the_next_begins_there():
    states, after = [[0.0], [1.0], [0.0], [2.0]], [[1.0], [0.0], [2.0], [0.0]]  # ends where it starts
    context = Context(states, [1.0] * 4, [0.9, 0.0, 0.9, 0.0], after)
    assert context.contiguous.tolist() == [True, False, True, False]
    assert torch.equal(context.next_states, torch.tensor(after, dtype=torch.float64))
    assert Context(states, [1.0] * 4, [0.0] * 4, after).contiguous.tolist() == [True, True, True, False]


def test_a_constant_next_state_gets_no_gradient_of_the_state_that_equals_it():
    x = torch.tensor([[0.0], [1.0]], dtype=torch.float64, requires_grad=True)
    context = Context(x, [1.0, 1.0], [0.5, 0.5], torch.tensor([[1.0], [0.0]], dtype=torch.float64))
    assert context.contiguous.tolist() == [True, False]
    assert torch.autograd.grad(context.next_states.sum(), x, allow_unused=True)[0].abs().sum() == 0
    assert torch.equal(context.next_states.detach(), torch.tensor([[1.0], [0.0]], dtype=torch.float64))


def test_a_kernel_that_is_not_defined_at_0_is_never_asked_about_padding():
    def cosine(x, y):
        return torch.exp(3 * (x / x.norm(dim=-1, keepdim=True)) @ (y / y.norm(dim=-1, keepdim=True)).mT)

    rng = np.random.default_rng(0)
    parts = [
        Context(rng.normal(size=(n, 3)), rng.normal(size=n), np.full(n, 0.9), rng.normal(size=(n, 3))) for n in (5, 9)
    ]
    batch = Context.stack(parts)
    value = WeightedSoftmaxTD(cosine, 10).fit(batch)
    for i, part in enumerate(parts):
        own = WeightedSoftmaxTD(cosine, 10).fit(part)
        torch.testing.assert_close(value.td_errors(batch)[i, : len(part)], own.td_errors(part))
        torch.testing.assert_close(td_loss(value, batch)[i], td_loss(own, part))
        torch.testing.assert_close(value.offset_corrected()(np.eye(3))[i], own.offset_corrected()(np.eye(3)))
        n = len(part)
        torch.testing.assert_close(attention_matrix(batch, cosine)[i, :n, :n], attention_matrix(part, cosine))
        torch.testing.assert_close(
            KernelLSTD(cosine, 1.0).fit(batch)(np.eye(3))[i], KernelLSTD(cosine, 1.0).fit(part)(np.eye(3))
        )
