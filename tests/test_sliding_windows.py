"""Contexts that slide along a trajectory: sums, losses against plain loops, and the written-out gradient."""

import math

import numpy as np
import pytest
import torch

from icrl_agents import PretrainConfig
from icrl_agents.compressed import SharedSweeps, SlidingWindows, state_values
from icrl_agents.constructions import weighted_softmax_td
from icrl_agents.divergence import DivergenceError
from icrl_agents.kernels import DotProduct
from icrl_agents.pretraining.batches import batches
from icrl_agents.pretraining.model import random_transformer
from icrl_agents.pretraining.sliding import plain_td_loss, sliding_td_loss

WINDOWS, LENGTH = 5, 9
CONFIG = PretrainConfig(
    num_states=5,
    features="random",
    num_features=3,
    context_length=LENGTH,
    num_layers=4,
    tasks=2,
    contexts=2,
    windows=WINDOWS,
    initial_scale=0.7,
)


def first_windows(**changes):
    config = PretrainConfig(**{**vars(CONFIG), **changes})
    return random_transformer(config), next(iter(batches(config)))


def test_counts_and_flows_are_those_of_a_plain_loop():
    rng = np.random.default_rng(0)
    path = torch.from_numpy(rng.integers(4, size=(3, 12)))
    discounts = torch.from_numpy(rng.choice([0.0, 0.5, 0.9], size=(3, 11)))
    windows = SlidingWindows.along(torch.zeros(3, 4, 2).double(), torch.zeros(3, 4).double(), path, discounts, 6)
    assert windows.counts.shape == (3, 6, 4)
    for b in range(3):
        for t in range(6):
            counts, flows = [0.0] * 4, [[0.0] * 4 for _ in range(4)]
            for k in range(t, t + 6):
                counts[path[b, k]] += 1
                flows[path[b, k]][path[b, k + 1]] += discounts[b, k].item()
            assert windows.counts[b, t].tolist() == pytest.approx(counts)
            np.testing.assert_allclose(windows.flows[b, t], flows, atol=1e-12)
            assert windows.queries[b, t] == path[b, t + 6]
            assert windows.contexts.path.view(3, 6, 7)[b, t].tolist() == path[b, t : t + 7].tolist()


def plain_loss(transformer, windows):
    """Every window as a context of its own, whose transitions are gone through one by one."""
    B, M = transformer.blocks[0].attention.kernel.matrix.tolist(), CONFIG.num_states
    w_R, w_u, w_v = transformer.blocks[0].value_weights.tolist()
    total, count = 0.0, 0
    for points, rewards, path, gammas in zip(
        *(a.tolist() for a in (windows.points, windows.rewards, windows.path, windows.discounts)), strict=True
    ):
        at_end = []
        for t in range(WINDOWS + 1):
            keys, v = range(t, t + LENGTH), [0.0] * M
            for _ in range(CONFIG.num_layers):
                after = []
                for s in range(M):
                    scores = [
                        math.fsum(points[s][i] * B[i][j] * points[path[k]][j] for i in range(3) for j in range(3))
                        for k in keys
                    ]
                    weights = [math.exp(score) for score in scores]
                    sent = [w_R * rewards[path[k]] + w_u * gammas[k] * v[path[k + 1]] + w_v * v[path[k]] for k in keys]
                    after.append(v[s] + sum(a * m for a, m in zip(weights, sent, strict=True)) / sum(weights))
                v = after
            at_end.append(v[path[t + LENGTH]])
        for t in range(WINDOWS):
            k = t + LENGTH
            total += (rewards[path[k]] + gammas[k] * at_end[t + 1] - at_end[t]) ** 2
            count += 1
    return total / count


def test_the_loss_is_that_of_a_plain_loop():
    transformer, windows = first_windows()
    assert sliding_td_loss(transformer, windows).item() == pytest.approx(plain_loss(transformer, windows), rel=1e-10)


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-12), ("float32", 1e-4)])
def test_the_written_out_gradient_is_that_of_the_graph(precision, tolerance):
    transformer, windows = first_windows(precision=precision)
    parameters = list(transformer.parameters())
    loss, plain = sliding_td_loss(transformer, windows), plain_td_loss(transformer, windows)
    assert loss.grad_fn.name() == "_KnownBackward"
    assert loss.item() == pytest.approx(plain.item(), rel=tolerance)
    pairs = zip(torch.autograd.grad(3 * loss, parameters), torch.autograd.grad(3 * plain, parameters), strict=True)
    for written, graph in pairs:
        assert graph.abs().max() > 1e-3
        torch.testing.assert_close(written, graph, rtol=tolerance, atol=tolerance)


def test_shared_sweeps_are_the_forward_pass_and_their_gradient_that_of_finite_differences():
    transformer, windows = first_windows()
    block = transformer.blocks[0]
    scores = block.attention.kernel.score(windows.points, windows.points).detach().numpy()
    weights = block.value_weights.tolist()
    values = SharedSweeps(scores, weights, windows).values(4)
    expected = state_values(transformer, windows.contexts).detach().view(4, WINDOWS + 1, -1)
    np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12)
    weighted = np.random.default_rng(0).normal(size=values.shape)
    sweeps = SharedSweeps(scores, weights, windows)
    sweeps.values(4)
    to_scores, to_weights = sweeps.gradients(weighted)
    for i in range(3):
        up, down = ([w + h * (i == j) for j, w in enumerate(weights)] for h in (1e-6, -1e-6))
        slope = SharedSweeps(scores, up, windows).values(4) - SharedSweeps(scores, down, windows).values(4)
        assert to_weights[i] == pytest.approx((weighted * slope).sum() / 2e-6, rel=1e-6)
    for index in ((0, 1, 2), (3, 4, 4), (2, 0, 3)):
        step = np.zeros_like(scores)
        step[index] = 1e-6
        slope = SharedSweeps(scores + step, weights, windows).values(4)
        slope = slope - SharedSweeps(scores - step, weights, windows).values(4)
        assert to_scores[index] == pytest.approx((weighted * slope).sum() / 2e-6, rel=1e-5, abs=1e-8)


def test_scores_that_spread_too_far_take_the_careful_way():
    transformer, windows = first_windows(precision="float32")
    with torch.no_grad():
        transformer.blocks[0].attention.kernel.matrix.mul_(1e3)
    loss = sliding_td_loss(transformer, windows)
    assert loss.isfinite()
    assert torch.equal(loss, plain_td_loss(transformer, windows))


FORMS = {
    "linear": {"form": "linear"},
    "dual": {"form": "dual_head"},
    "sequential": {"tied": False},
    "full": {"parametrisation": "full"},
}


@pytest.mark.parametrize("changes", FORMS.values(), ids=FORMS)
def test_other_forms_take_each_window_as_a_context(changes):
    transformer, windows = first_windows(**changes)
    loss = sliding_td_loss(transformer, windows)
    values = transformer(windows.contexts.context, windows.contexts.points).view(4, WINDOWS + 1, -1).tolist()
    total = 0.0
    for b in range(4):
        path, gammas, rewards = windows.path[b].tolist(), windows.discounts[b].tolist(), windows.rewards[b].tolist()
        for t in range(WINDOWS):
            now, following = path[t + LENGTH], path[t + LENGTH + 1]
            target = rewards[now] + gammas[t + LENGTH] * values[b][t + 1][following]
            total += (target - values[b][t][now]) ** 2 / (4 * WINDOWS)
    assert loss.item() == pytest.approx(total, rel=1e-9)
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in transformer.parameters())


@pytest.mark.parametrize(("dtype", "sharp", "largest"), [(torch.float64, 40.0, 1e-9), (torch.float32, 16.0, 1e-3)])
def test_states_that_a_window_has_left_leave_nothing_behind(dtype, sharp, largest):
    rng = np.random.default_rng(0)
    steps = (rng.random((4, 60)) < 0.3).cumsum(1) % 6  # a slow walk around six states
    rewards = torch.as_tensor(rng.normal(size=(4, 6))).to(dtype)
    points = torch.eye(6, dtype=dtype).expand(4, 6, 6)
    windows = SlidingWindows.along(points, rewards, torch.as_tensor(steps), torch.full((4, 59), 0.9, dtype=dtype), 5)
    scores = sharp * np.broadcast_to(np.eye(6, dtype=points.numpy().dtype), (4, 6, 6))
    found = SharedSweeps(scores, [1.0, 1.0, -1.0], windows).values(20)
    transformer = weighted_softmax_td(DotProduct(sharp * torch.eye(6)), 20)
    expected = state_values(transformer, windows.contexts).reshape(found.shape)
    np.testing.assert_allclose(found, expected, rtol=largest, atol=largest * float(expected.abs().max()))


def test_gradients_are_of_the_last_values_however_often_they_were_asked_for():
    _, windows = first_windows()
    scores = np.random.default_rng(0).normal(size=(len(windows.rewards), CONFIG.num_states, CONFIG.num_states))
    once, twice = (SharedSweeps(scores, [1.0, 0.9, -0.8], windows) for _ in range(2))
    twice.values(7)
    ones = np.ones_like(once.values(3))
    np.testing.assert_array_equal(twice.values(3), once.values(3))
    (first, to_weights), (found, to_weights_too) = once.gradients(ones), twice.gradients(ones)
    np.testing.assert_array_equal(found, first)
    assert to_weights_too == to_weights


@pytest.mark.parametrize("gap", [700.0, 715.0, 740.0, 800.0])
def test_scores_whose_sum_has_lost_its_digits_are_refused(gap):
    scores = np.zeros((1, 3, 3))
    scores[..., 2] = gap
    points, discounts = torch.eye(3, dtype=torch.float64)[None], torch.full((1, 6), 0.9, dtype=torch.float64)
    path, rewards = torch.tensor([[0, 1, 0, 1, 2, 2, 2]]), torch.ones(1, 3, dtype=torch.float64)
    windows = SlidingWindows.along(points, rewards, path, discounts, 3)
    if gap > 700:
        with pytest.raises(DivergenceError, match="expected numbers within 700"):
            SharedSweeps(scores, [1.0, 1.0, -1.0], windows)
    else:
        values = SharedSweeps(scores, [1.0, 1.0, -1.0], windows).values(3)
        np.testing.assert_allclose(values, (1 - 0.9**3) / 0.1)


def test_windows_that_are_longer_than_the_trajectory_are_refused():
    path = torch.zeros(1, 4, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"length must be an integer in \[1, 3\]; got 4"):
        SlidingWindows.along(torch.zeros(1, 1, 1), torch.zeros(1, 1), path, torch.zeros(1, 3), 4)
