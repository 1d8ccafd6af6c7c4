"""Numbers near the ends of their type: the right value, or an error, and never an infinity in silence."""

import numpy as np
import pytest
import torch

from icrl_agents import Context, Episode
from icrl_agents.adaptive import AdaptiveTD, RelevanceTD
from icrl_agents.control import FiniteMDP, generalised_advantages
from icrl_agents.control.finite_mdp import Experience
from icrl_agents.control.improvement import AmplifiedPolicy, Trial, return_advantages
from icrl_agents.divergence import DivergenceError
from icrl_agents.evaluators import LSTD, KernelTD, Nystrom, OffsetCorrected, WeightedSoftmaxTD
from icrl_agents.kernels import RBF, Exponential

STATES = np.random.default_rng(0).normal(size=(60, 2))


def context(reward=1.0, gamma=0.9, states=STATES):
    n = len(states)
    return Context(states, np.full(n, reward), np.full(n, gamma), np.roll(states, -1, axis=0))


@pytest.mark.filterwarnings("ignore::icrl_agents.divergence.DivergenceWarning")  # nor do sweeps converge with so few
@pytest.mark.parametrize(("dtype", "rewards"), [(torch.float64, (1e-170, 1e200)), (torch.float32, (1e-25, 1e25))])
def test_the_error_of_landmarks_does_not_depend_on_the_size_of_the_rewards(dtype, rewards):
    evaluator = WeightedSoftmaxTD(RBF(0.3), 20, approximation=Nystrom(np.int64(3)))
    with pytest.warns(RuntimeWarning, match="take more landmarks"):
        expected = evaluator.fit(context().to(dtype=dtype)).approximation_error
    for reward in rewards:
        with pytest.warns(RuntimeWarning, match="take more landmarks"):
            found = evaluator.fit(context(reward).to(dtype=dtype)).approximation_error
        assert found == pytest.approx(expected, rel=1e-3)


def test_a_kernel_that_overflows_at_the_landmarks_is_named():
    with pytest.raises(ValueError, match="kernel: gives NaN or overflows"):
        WeightedSoftmaxTD(Exponential(1e-3), 5, approximation=Nystrom(10)).fit(context())


@pytest.mark.parametrize(("reward", "gamma"), [(1e307, 0.999), (1e308, 0.5)])
def test_an_offset_beyond_the_largest_number_is_an_error(reward, gamma):
    with pytest.raises(DivergenceError, match="offset_corrected: constants overflow"):
        OffsetCorrected(WeightedSoftmaxTD(RBF(1.0), 1)).fit(context(reward, gamma))


def test_an_offset_within_range_is_right_though_sums_of_errors_are_not():
    value = OffsetCorrected(WeightedSoftmaxTD(RBF(1.0), 1)).fit(context(1e307, 0.5))
    assert torch.allclose(value(STATES), torch.full((60,), 2e307, dtype=torch.float64), rtol=1e-9)


def test_a_value_or_td_error_that_overflows_is_an_error():
    linear = LSTD().fit(context(states=STATES * 1e-200))
    with pytest.raises(DivergenceError, match="values of these states overflow"):
        linear([1e200, 1e200])
    large = WeightedSoftmaxTD(RBF(1.0), 3).fit(context(1e308, 0.4))
    with pytest.raises(DivergenceError, match="TD errors on this context overflow"):
        large.td_errors(context(-1.7e308, 0.0))


def test_a_return_or_advantage_that_overflows_is_an_error():
    whole = Context.from_episodes([Episode(np.arange(4.0)[:, None], np.full(3, 1e308))], 1.0)
    with pytest.raises(ValueError, match="rewards: expected finite numbers whose sums along a trajectory are finite"):
        whole.returns()
    with pytest.raises(ValueError, match="values: expected finite numbers whose TD errors have finite sums"):
        generalised_advantages(whole, whole.rewards.new_zeros(4), 1.0)

    def advantages(*rewards):
        return return_advantages([Episode(np.zeros((2, 1)), np.array([reward])) for reward in rewards], 0.5)

    for rewards in ([1.7e308, -1e308], [-1e308, -1e308, 1.7e308]):  # whose differences are none
        with pytest.raises(ValueError, match="episodes: expected finite numbers as returns, less their mean"):
            advantages(*rewards)
    assert not np.any(advantages(1e308, 1e308))


def test_scales_of_relevance_follow_the_states_to_any_size():
    rng = np.random.default_rng(1)
    walks = [np.cumsum(rng.normal(size=(12, 2)), axis=0) for _ in range(4)]

    def value(factor):
        episodes = [Episode(factor * walk, np.sin(walk[:-1, 0])) for walk in walks]
        return RelevanceTD(0.3, 10).fit(Context.from_episodes(episodes, 0.9))(factor * walks[0])

    assert torch.allclose(value(2.0**530), value(1.0), rtol=1e-9)


def test_an_empty_context_of_a_batch_has_no_offset():
    empty = Context(np.zeros((0, 2)), np.zeros(0), np.zeros(0), np.zeros((0, 2)))
    value = OffsetCorrected(WeightedSoftmaxTD(RBF(1.0), 3)).fit(Context.stack([context(), empty]))
    assert torch.allclose(value(STATES)[0], torch.full((60,), 10.0, dtype=torch.float64))
    assert not value(STATES)[1].any()


def test_queries_of_another_batch_are_refused_with_what_fits():
    for evaluator in (WeightedSoftmaxTD(RBF(1.0), 3), KernelTD(RBF(1.0), 3), LSTD()):
        value = evaluator.fit(Context.stack([context(), context()]))
        with pytest.raises(ValueError, match=r"states: expected shape \(m, 2\) or \(2, m, 2\), got \(3, 4, 2\)"):
            value(np.zeros((3, 4, 2)))
        with pytest.raises(ValueError, match="states: expected shape"):
            evaluator.fit(context())(np.zeros((0, 4, 2)))
        with pytest.raises(ValueError, match="states: expected shape"):
            value.td_errors(Context.stack([context()] * 3))


def test_what_is_no_list_of_depths_no_evaluator_or_no_plain_array_is_named():
    value = WeightedSoftmaxTD(RBF(1.0), 3).fit(context())
    with pytest.raises(TypeError, match="depths: expected a list of integers, got 3; at_depth takes a single one"):
        value.by_depth(STATES, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"evaluator: expected an object with fit\(context\)"):
        OffsetCorrected(WeightedSoftmaxTD)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="states: the mask of a masked array would be lost"):
        context(states=np.ma.array(STATES, mask=STATES > 1))
    with pytest.raises(TypeError, match="states: the mask of a masked array would be lost"):
        context(states=[np.ma.array(row, mask=row > 1) for row in STATES])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="caution"):
        AdaptiveTD(caution=10**400)


def test_masked_arrays_are_refused_in_control_too():
    mask = [0, 0, 1]
    for name in ("states", "actions", "next_states", "rewards"):
        given = {each: np.zeros(3, int) for each in ("states", "actions", "next_states", "rewards")}
        given[name] = np.ma.masked_array(given[name], mask)
        with pytest.raises(TypeError, match=f"{name}: the mask of a masked array would be lost"):
            Experience(**given, num_states=1, num_actions=1)
    with pytest.raises(TypeError, match="policy: the mask of a masked array would be lost"):
        FiniteMDP(np.ones((1, 1, 1)), np.ones((1, 1)), 0.5).values(np.ma.masked_array([0], [1]))
    with pytest.raises(TypeError, match="deviations: the mask of a masked array would be lost"):
        Trial(Episode(np.zeros((4, 1)), np.zeros(3)), np.zeros((3, 1)), np.ma.masked_array(np.zeros((3, 1)), True))
    policy = AmplifiedPolicy(lambda x: np.ma.masked_array(x, mask), np.zeros(3), 0.1)
    with pytest.raises(TypeError, match="scripted: actions: the mask of a masked array would be lost"):
        policy(np.zeros(3), np.random.default_rng(0))


def test_a_member_that_cannot_be_fitted_on_a_fold_is_named():
    rng = np.random.default_rng(2)
    episodes = [Episode(rng.normal(size=(5, 2)), rng.normal(size=4), terminated=i == 0) for i in range(4)]
    bank = [WeightedSoftmaxTD(RBF(1.0), 5), OffsetCorrected(WeightedSoftmaxTD(RBF(1.0), 5))]
    with pytest.raises(ValueError, match=r"evaluators: OffsetCorrected.* cannot be fitted on a part of the context"):
        AdaptiveTD(bank).fit(Context.from_episodes(episodes, 1.0))
