"""Banks mixed in context: against slow loops over trajectories, and what must not change the choice."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from icrl_agents import constructions
from icrl_agents.adaptive import AdaptiveTD, RelevanceTD, default_bank
from icrl_agents.adaptive.mixture import simplex_weights
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import AverageRewardTD, TabularTD, WeightedSoftmaxTD
from icrl_agents.kernels import Laplace, Linear, ProductLaplace
from icrl_agents.value_function import Evaluator
from tests.adaptive_loops import (
    DEPTHS,
    GAMMA,
    SCALES,
    candidate_values,
    enumerated,
    episodes,
    fold_errors,
    rows_of,
    slow_weights,
)

BANK: list[Evaluator] = [WeightedSoftmaxTD(Laplace(scale), 4) for scale in SCALES]
ADAPTIVE = AdaptiveTD(BANK, DEPTHS, caution=0.2, return_weight=0.7)
QUERIES = torch.linspace(-2, 2, 7, dtype=torch.float64)[:, None]


@pytest.mark.parametrize(("seed", "caution", "terminated"), [(0, 0.2, ()), (1, 0.0, (1, 3)), (2, 1.0, (0,))])
def test_the_mixture_is_that_of_the_slow_loops(seed, caution, terminated):
    walks = episodes(seed=seed, terminated=terminated)
    values = AdaptiveTD(BANK, DEPTHS, caution, return_weight=0.7).fit(Context.from_episodes(walks, GAMMA))
    weights, step = slow_weights(walks, caution, 0.7)
    assert values.choice.step == pytest.approx(step)
    np.testing.assert_allclose(values.choice.weights, weights, atol=1e-8)
    rows = [row for walk in walks for row in rows_of(walk)]
    expected = weights @ np.array(candidate_values(rows, QUERIES.tolist()))
    np.testing.assert_allclose(values(QUERIES), expected, atol=1e-8)
    td = [[np.mean(np.square(delta)) for delta in deltas] for deltas, _ in fold_errors(walks)]
    np.testing.assert_allclose(values.choice.td_losses, td, rtol=1e-10)
    errors = [[np.mean(np.square(e)) for e in returns] for _, returns in fold_errors(walks)]
    np.testing.assert_allclose(values.choice.return_errors, errors, rtol=1e-10)


@pytest.mark.parametrize("rank", [1, 3, 6])
def test_weights_on_the_simplex_are_the_best_of_all_supports(rank):
    rng = np.random.default_rng(rank)
    for scale in np.geomspace(1e-6, 1e6, 20):
        root = scale * rng.normal(loc=rng.choice([0.0, 1.0]), size=(rank, 6))
        np.testing.assert_allclose(
            simplex_weights(torch.as_tensor(root.T @ root)), enumerated(root.T @ root), atol=1e-9
        )


def test_a_finer_kernel_is_found_where_it_is_better():
    context = Context.from_episodes(episodes(6, 60), GAMMA)
    held_out = Context.from_episodes(episodes(6, 60, seed=9), GAMMA)
    values = AdaptiveTD(BANK, DEPTHS).fit(context)
    losses = [float(v.td_errors(held_out).square().mean()) for v in (values, BANK[0].fit(context))]
    assert losses[0] < 0.7 * losses[1]
    assert float(values.choice.weights[2:].sum()) > 0.5
    assert str(values.choice).startswith("mixture: 1.00 of the way from the default to the best one of 6 folds\n")


def test_the_value_is_the_mixture_of_the_parts_at_every_depth():
    values = ADAPTIVE.fit(Context.from_episodes(episodes(), GAMMA))
    assert values.choice.step > 0
    for depth in range(5):
        expected = torch.zeros(len(QUERIES), dtype=torch.float64)
        for candidate, weight in zip(values.choice.candidates, values.choice.weights, strict=True):
            part = values.parts[BANK.index(candidate.evaluator)]
            assert part is not None
            expected += weight * part.at_depth(min(depth, candidate.depth))(QUERIES)
        torch.testing.assert_close(values.at_depth(depth)(QUERIES), expected)


def test_the_order_of_trajectories_and_the_unit_of_reward_change_no_choice():
    walks = episodes(terminated=(2,))
    base = ADAPTIVE.fit(Context.from_episodes(walks, GAMMA))
    turned = ADAPTIVE.fit(Context.from_episodes(walks[::-1], GAMMA))
    torch.testing.assert_close(turned(QUERIES), base(QUERIES))
    scaled = [Episode(w.observations, 7 * w.rewards, w.terminated) for w in walks]
    torch.testing.assert_close(ADAPTIVE.fit(Context.from_episodes(scaled, GAMMA))(QUERIES), 7 * base(QUERIES))


def test_raw_transitions_and_padding_give_the_same_as_episodes():
    context = Context.from_episodes(episodes(), GAMMA)
    raw = Context(context.states, context.rewards, context.discounts, context.next_states)
    padded = Context.stack([context, Context.concatenate([context, context])])
    first = Context(*(getattr(padded, n)[0] for n in ("states", "rewards", "discounts", "next_states", "mask")))
    for same in (raw, first):
        torch.testing.assert_close(ADAPTIVE.fit(same)(QUERIES), ADAPTIVE.fit(context)(QUERIES))


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_trajectories_leave_the_default(count):
    context = Context.from_episodes(episodes(count), GAMMA)
    values = ADAPTIVE.fit(context)
    assert torch.equal(values(QUERIES), BANK[0].fit(context)(QUERIES))
    assert values.choice.reason.startswith(f"default: {count} traject")


def test_what_shows_no_difference_leaves_the_default():
    still = [Episode(w.observations, 0 * w.rewards) for w in episodes()]
    choice = ADAPTIVE.fit(Context.from_episodes(still, GAMMA)).choice
    assert choice.weights.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert choice.reason == "default: no mixture beat it by 0.2 standard errors over 4 folds"
    endless = Context.from_episodes(episodes(), 1.0)
    with pytest.warns(RuntimeWarning, match="no return in it is complete"):
        assert ADAPTIVE.fit(endless).choice.return_errors.isnan().all()


def test_more_trajectories_than_folds_are_grouped():
    choice = AdaptiveTD(BANK, DEPTHS, max_folds=3).fit(Context.from_episodes(episodes(8), GAMMA)).choice
    assert choice.td_losses.shape == (3, 4)


def test_frozen_transformers_make_a_bank_as_their_algorithms_do():
    context = Context.from_episodes(episodes(), GAMMA)
    heads = [constructions.weighted_softmax_td(Laplace(scale), 4, form="temporal_shift") for scale in SCALES]
    before = [tensor.clone() for head in heads for tensor in head.state_dict().values()]
    found = AdaptiveTD(heads, DEPTHS, 0.2, 0.7).fit(context)
    torch.testing.assert_close(found(QUERIES), ADAPTIVE.fit(context)(QUERIES))
    after = [tensor for head in heads for tensor in head.state_dict().values()]
    assert all(map(torch.equal, before, after))


def test_single_precision_stays_single():
    walks = Context.from_episodes(episodes(), GAMMA)
    values = ADAPTIVE.fit(walks.to(dtype=torch.float32))
    assert values(QUERIES.float()).dtype == torch.float32
    torch.testing.assert_close(values(QUERIES.float()).double(), ADAPTIVE.fit(walks)(QUERIES), atol=1e-4, rtol=1e-3)


def test_the_default_bank_is_its_default_first():
    bank = default_bank(6)
    assert len(bank) == 5
    assert isinstance(bank[0], WeightedSoftmaxTD)
    assert isinstance(bank[0].kernel, ProductLaplace)
    values = AdaptiveTD(bank, (2, 6)).fit(Context.from_episodes(episodes(), GAMMA))
    assert [c.depth for c in values.choice.candidates] == [6, 2] * 5
    assert isinstance(values.choice.candidates[-1].evaluator, RelevanceTD)


@pytest.mark.parametrize(
    ("error", "settings", "message"),
    [
        (ValueError, {"evaluators": []}, "evaluators: expected at least one"),
        (TypeError, {"evaluators": [Linear()]}, "evaluators: expected objects with a method fit"),
        (TypeError, {"evaluators": [TabularTD]}, r"evaluators: expected objects .*; did you mean TabularTD\("),
        (TypeError, {"evaluators": {TabularTD(3), TabularTD(4)}}, "evaluators: expected a list of evaluators"),
        (TypeError, {"evaluators": TabularTD(3)}, r"evaluators: expected a list of evaluators, .* in brackets"),
        (TypeError, {"depths": 5}, r"depths: expected a list of integers ≥ 0, such as \(20, 80\), got 5"),
        (ValueError, {"depths": ()}, "depths: expected integers ≥ 0, one at least"),
        (ValueError, {"depths": (1.5,)}, "depths: expected integers"),
        (ValueError, {"caution": -1.0}, "caution: expected a finite number ≥ 0"),
        (ValueError, {"return_weight": math.nan}, "return_weight: expected a finite number"),
        (ValueError, {"max_folds": 2}, "max_folds: expected an integer ≥ 3, got 2"),
    ],
)
def test_wrong_settings_are_refused(error, settings, message):
    with pytest.raises(error, match=message):
        AdaptiveTD(**{"evaluators": BANK, **settings})


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_rewards_of_any_size_choose_the_same_mixture(size):
    context = Context.from_episodes(episodes(), GAMMA)
    scaled = Context(
        context.states, context.rewards * size, context.discounts, context.next_states, contiguous=context.contiguous
    )
    bank = AdaptiveTD([*BANK, RelevanceTD(0.3, 4)], caution=0.0)
    expected, found = bank.fit(context), bank.fit(scaled)
    assert expected.choice.step > 0
    assert found.choice.reason == expected.choice.reason
    torch.testing.assert_close(found.choice.weights, expected.choice.weights, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found(QUERIES) / size, expected(QUERIES), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("evaluator", [ADAPTIVE, RelevanceTD(0.3, 2)])
def test_a_batch_is_refused(evaluator):
    context = Context.from_episodes(episodes(), GAMMA)
    with pytest.raises(ValueError, match="expected one context, got a batch"):
        evaluator.fit(Context.stack([context, context]))


def test_the_example_of_the_documentation_runs(capsys):
    text = (Path(__file__).parents[1] / "docs" / "adaptive.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    exec(compile(code, "docs/adaptive.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith(("default: ", "mixture: "))
    assert "tensor([" in printed


def test_gradients_are_those_of_the_parts_with_the_weights_as_they_are():
    rewards = torch.sin(torch.arange(40.0, dtype=torch.float64)).requires_grad_()
    states = torch.linspace(0, 3, 41, dtype=torch.float64)[:, None].sin()
    pieces = [
        Context(states[i : i + 10], rewards[i : i + 10], [0.9] * 10, states[i + 1 : i + 11]) for i in range(0, 40, 10)
    ]
    with pytest.warns(RuntimeWarning, match="no return in it is complete"):
        value = AdaptiveTD().fit(Context.concatenate(pieces))
    found = torch.autograd.grad(value([[0.3]]).sum(), rewards, retain_graph=True)[0]
    parts = zip(value.parts, value.choice.weights.split(2), strict=True)
    mixed = sum((part.by_depth([[0.3]], [80, 20]) * weights).sum() for part, weights in parts)
    torch.testing.assert_close(found, torch.autograd.grad(mixed, rewards)[0])


def test_what_was_chosen_stays_with_other_depths_and_offsets():
    values = ADAPTIVE.fit(Context.from_episodes(episodes(), GAMMA))
    for other in (values.at_depth(2), values.offset_corrected(), values.at_depth(2).at_depth(3).offset_corrected()):
        assert other.choice is values.choice
        assert other.parts is values.parts
        assert repr(other).startswith("AdaptiveValueFunction(depth=")
    assert (values.depth, values.at_depth(2).depth) == (4, 2)


def test_episodes_that_end_where_they_start_are_told_apart():
    rng, episodes = np.random.default_rng(0), []
    for _ in range(5):
        observations = np.concatenate([[[0.0]], np.cumsum(rng.normal(size=(12, 1)), axis=0)])
        observations[-1] = 0.0
        episodes.append(Episode(observations, rng.normal(size=12), terminated=True))
    known = Context.from_episodes(episodes, 0.9)
    guessed = Context(known.states, known.rewards, known.discounts, known.next_states)
    assert AdaptiveTD().fit(guessed).choice.reason == AdaptiveTD().fit(known).choice.reason
    assert "over 5 folds" in AdaptiveTD().fit(guessed).choice.reason


def test_differential_values_have_no_part_in_a_mixture():
    context = Context.from_episodes([Episode(np.eye(4, 2), np.ones(3)) for _ in range(3)], 0.9)
    with pytest.raises(ValueError, match="evaluators: expected discounted ones"):
        AdaptiveTD([WeightedSoftmaxTD(Laplace(1.0), 3), AverageRewardTD(3)], depths=(3,)).fit(context)
