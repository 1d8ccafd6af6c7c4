"""Banks with members that diverge, are hopeless, or approximate; and trajectories of very different length."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agents.adaptive import AdaptiveTD
from icrl_agents.adaptive.bank import relevant_scales
from icrl_agents.adaptive.folds import folds, subset
from icrl_agents.collection import collect
from icrl_agents.constructions import kernel_td
from icrl_agents.context import Context, Episode
from icrl_agents.control import Critic
from icrl_agents.evaluators import KernelTD, Nystrom, OffsetCorrected, TabularTD, WeightedSoftmaxTD
from icrl_agents.kernels import Laplace, Linear
from icrl_agents.value_function import DivergenceError, Evaluator
from tests.adaptive_loops import DEPTHS, GAMMA, SCALES, episodes

BANK: list[Evaluator] = [WeightedSoftmaxTD(Laplace(scale), 4) for scale in SCALES]
ADAPTIVE = AdaptiveTD(BANK, DEPTHS, caution=0.2, return_weight=0.7)
QUERIES = torch.linspace(-2, 2, 7, dtype=torch.float64)[:, None]


@pytest.mark.filterwarnings("ignore::icrl_agents.divergence.DivergenceWarning")
def test_a_member_that_diverges_is_left_out_and_a_default_that_does_is_an_error():
    context = Context.from_episodes(episodes(), GAMMA)
    wild = KernelTD(Linear(), 4_000, step_size=1e3)
    values = AdaptiveTD([*BANK, wild], DEPTHS, 0.2, 0.7).fit(context)
    assert values.parts[2] is not None
    assert values.parts[2].max_depth == 1  # which does not diverge yet, and has no weight
    assert values.choice.weights[-1] == 0
    assert AdaptiveTD([*BANK, wild], [4]).fit(context).parts[2] is None
    torch.testing.assert_close(values(QUERIES), ADAPTIVE.fit(context)(QUERIES))
    with pytest.raises(DivergenceError, match="not finite"):
        AdaptiveTD([wild, *BANK]).fit(context)


@pytest.mark.filterwarnings("ignore::icrl_agents.divergence.DivergenceWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda depth: KernelTD(Laplace(0.5), depth, step_size=0.5),
        lambda depth: OffsetCorrected(KernelTD(Laplace(0.5), depth, step_size=0.5)),
        lambda depth: kernel_td(Laplace(0.5), depth, step_size=0.5),
    ],
)
def test_a_member_that_diverges_in_the_end_is_judged_by_what_it_is_before(make):
    context = Context.from_episodes(episodes(6, 60), GAMMA)
    with pytest.raises(DivergenceError):
        make(500).fit(context)
    found, expected = (AdaptiveTD([BANK[1], make(depth)], (1, 4), 0.2).fit(context) for depth in (500, 4))
    assert [c.depth for c in found.choice.candidates] == [4, 1, 4, 1]
    for name in ("weights", "td_losses", "return_errors"):
        torch.testing.assert_close(getattr(found.choice, name), getattr(expected.choice, name))
    torch.testing.assert_close(found(QUERIES), expected(QUERIES))


def test_a_default_that_diverges_after_its_depth_is_one_and_one_that_does_before_is_an_error():
    context = Context.from_episodes(episodes(6, 60), GAMMA)
    wild = KernelTD(Linear(), 4_000, step_size=1e3)
    assert AdaptiveTD([wild, *BANK], (1,)).fit(context).choice.candidates[0].depth == 1
    with pytest.raises(DivergenceError, match=r"TD errors have grown|not finite"):
        AdaptiveTD([wild, *BANK], (1, 50)).fit(context)


@pytest.mark.filterwarnings("ignore::icrl_agents.divergence.DivergenceWarning")
@pytest.mark.parametrize(("step_size", "sweeps"), [(3.0, 4), (1e200, 1)])
def test_a_hopeless_member_changes_nothing(step_size, sweeps):
    context = Context.from_episodes(episodes(6, 60), GAMMA)
    hopeless = KernelTD(Laplace(0.5), sweeps, step_size)
    expected, found = (AdaptiveTD(bank, DEPTHS, 0.2, 0.7).fit(context) for bank in (BANK, [*BANK, hopeless]))
    assert float(found.choice.td_losses[:, 4].mean()) > 1e6 * float(found.choice.td_losses[:, 0].mean())
    assert expected.choice.step > 0
    torch.testing.assert_close(found.choice.weights[:4], expected.choice.weights)
    torch.testing.assert_close(found(QUERIES), expected(QUERIES))


def test_one_long_trajectory_among_short_ones_leaves_no_fold_empty():
    lengths = [1_000, *[1] * 10]
    walks = [episodes(1, length, seed=i)[0] for i, length in enumerate(lengths)]
    context = Context.from_episodes(walks, GAMMA)
    found = folds(context, 10)
    assert [len(fold) for fold in found] == [1_000, *[1] * 8, 2]
    assert torch.equal(torch.cat(found), torch.arange(1_010))
    assert "folds" in AdaptiveTD(BANK, DEPTHS).fit(context).choice.reason


def test_what_is_taken_for_a_constant_has_no_relevance():
    rng = np.random.default_rng(0)
    states = np.stack([rng.normal(size=50), 1e9 + rng.normal(size=50)], axis=-1)
    context = Context(states, states[:, 1] - 1e9, [0.0] * 50, states)
    torch.testing.assert_close(relevant_scales(context)[1], torch.tensor(2**0.5 / 0.1, dtype=torch.float64))


@pytest.mark.filterwarnings("ignore:approximation")
def test_a_mixture_says_how_well_its_parts_approximate():
    context = Context.from_episodes(episodes(6, 60), GAMMA)
    landmarks = WeightedSoftmaxTD(Laplace(0.15), 4, approximation=Nystrom(40))
    value = AdaptiveTD([landmarks, BANK[0]], (4,)).fit(context)
    assert value.parts[0] is not None
    assert value.approximation_error == value.parts[0].approximation_error is not None
    assert ADAPTIVE.fit(context).approximation_error is None


@pytest.mark.parametrize("found", [None, np.zeros(3), [0.0], lambda states: np.zeros(len(states))])
def test_an_evaluator_that_infers_no_value_function_is_refused(found):
    class Evaluates:
        def fit(self, context):
            return found

    context = Context.from_episodes(episodes(), GAMMA)
    own: Evaluator = Evaluates()
    for evaluator in (AdaptiveTD([own]), AdaptiveTD([*BANK, own]), OffsetCorrected(own)):
        with pytest.raises(TypeError, match="result of fit: expected a ValueFunction, got"):
            evaluator.fit(context)
    if callable(found):
        with pytest.raises(TypeError, match="evaluator: values: expected a Tensor, got ndarray"):
            Critic(own).assess(context)


def test_a_choice_by_td_errors_alone_is_told_of():
    chain = gym.make("icrl/LoopChain-v0", num_states=6)
    bank = [WeightedSoftmaxTD(Laplace(scale), 80) for scale in (0.1, 1.0, 10.0)]
    linked = collect(chain, num_steps=1_000, gamma=0.9, seed=0)
    parts = linked.states, linked.rewards, linked.discounts, linked.next_states
    unlinked = Context(*parts, contiguous=torch.zeros(1_000, dtype=torch.bool))
    with pytest.warns(RuntimeWarning, match="no return in it is complete"):
        assert AdaptiveTD(bank).fit(unlinked).choice.step > 0
    AdaptiveTD(bank, return_weight=0.0).fit(unlinked)  # as asked
    AdaptiveTD(bank[:1]).fit(unlinked)  # nothing to choose


def test_a_bank_that_is_appended_to_later_stays():
    bank, depths = BANK[:1], [4]
    adaptive, context = AdaptiveTD(bank, depths), Context.from_episodes(episodes(), GAMMA)
    bank.append(BANK[1])
    depths.append(8)
    assert len(adaptive.fit(context).parts) == 1
    assert adaptive.depths == (4,)


def test_episodes_that_are_there_twice_are_left_out_together():
    once = Context.from_episodes(episodes(), GAMMA)
    twice = Context.from_episodes([*episodes(), *episodes()], GAMMA)
    assert len(folds(twice, 100)) == len(folds(once, 100)) > 3
    found, expected = (ADAPTIVE.fit(each) for each in (twice, once))
    torch.testing.assert_close(found(QUERIES), expected(QUERIES), rtol=0, atol=1e-9)
    alike = Context.from_episodes([episodes()[0]] * 5, GAMMA)
    assert AdaptiveTD(BANK, DEPTHS).fit(alike).choice.reason.startswith("default: 1 trajectory")


@pytest.mark.skipif(torch.__version__.startswith("2.8"), reason="torch 2.8 lists no tensors inside of a transform")
def test_the_values_of_an_adaptive_evaluator_are_differentiated_inside_of_a_transform():
    context = Context.from_episodes(episodes(), GAMMA)
    found = torch.func.jacrev(lambda queries: ADAPTIVE.fit(context)(queries))(QUERIES)
    slopes = torch.func.jacrev(ADAPTIVE.fit(context))(QUERIES)
    torch.testing.assert_close(found, slopes)


def test_episodes_that_came_out_equal_by_chance_in_a_finite_process_are_left_out_each_by_itself():
    rng = np.random.default_rng(0)
    walks = [rng.choice([-1.0, 1.0], size=5).cumsum() for _ in range(60)]
    chance = Context.from_episodes([Episode(np.append(0.0, walk)[:, None], walk > 2) for walk in walks], GAMMA)
    assert len({tuple(walk) for walk in walks}) < 40
    assert len(folds(chance, 100)) == 60
    far = rng.normal(size=(30, 1, 1)) + np.arange(6.0)[:, None]
    bootstrap = [Episode(far[i], np.ones(5)) for i in rng.integers(0, 30, size=60)]
    assert len(folds(Context.from_episodes(bootstrap, GAMMA), 100)) < 30


def test_an_evaluator_that_stops_at_a_depth_of_its_own_takes_part_with_that():
    class Stopped:
        def fit(self, context):
            return WeightedSoftmaxTD(Laplace(0.5), 80).fit(context).at_depth(3)

    context = Context.from_episodes(episodes(), GAMMA)
    values = AdaptiveTD([Stopped()], depths=(20, 80)).fit(context)
    assert torch.equal(values(QUERIES), Stopped().fit(context)(QUERIES))
    assert [each.depth for each in values.choice.candidates] == [3]


def test_an_evaluator_with_fewer_sweeps_on_smaller_contexts_takes_part_with_those():
    class ByLength:
        def fit(self, context):
            return WeightedSoftmaxTD(Laplace(0.5), len(context) // 2).fit(context)

    context = Context.from_episodes(episodes(), GAMMA)
    values = AdaptiveTD([ByLength(), TabularTD(2)], depths=(5, len(context))).fit(context)
    whole, parts = len(context) // 2, folds(context, 10)
    assert [each.depth for each in values.choice.candidates] == [whole, 5, 2]
    for losses, fold in zip(values.choice.td_losses, parts, strict=True):
        seen = subset(context, torch.cat([each for each in parts if each is not fold]))
        fitted, unseen = ByLength().fit(seen), subset(context, fold)
        expected = [unseen.td_errors(fitted.at_depth(depth)(unseen.points)) for depth in (fitted.depth, 5)]
        torch.testing.assert_close(losses[:2], torch.stack([each.square().mean() for each in expected]))
