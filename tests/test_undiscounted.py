"""γ = 1: where nothing ends there is no value, which is said; where something does, fits are silent."""

import importlib
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agents import constructions
from icrl_agents.context import Context
from icrl_agents.control import Critic
from icrl_agents.divergence import DivergenceWarning, value_bound
from icrl_agents.episode import Episode
from icrl_agents.evaluators import (
    AverageRewardTD,
    KernelTD,
    LinearTD,
    Nystrom,
    ResidualGradient,
    TabularTD,
    TDLambda,
    WeightedSoftmaxTD,
)
from icrl_agents.kernels import RBF, Laplace

LOOP = Context([[1.0]], [1.0], [1.0], [[1.0]])
BESIDE = Context([[0.0], [5.0]] * 5, [1.0] * 10, [1.0, 0.0] * 5, [[0.0], [5.0]] * 5)
EVALUATORS = {
    "tabular": TabularTD,
    "softmax": lambda depth: WeightedSoftmaxTD(RBF(0.5), depth),
    "kernel": lambda depth: KernelTD(RBF(0.5), depth),
    "linear": LinearTD,
    "lambda": lambda depth: TDLambda(0.5, depth),
    "softmax layers": lambda depth: constructions.weighted_softmax_td(RBF(0.5), depth),
    "kernel layers": lambda depth: constructions.kernel_td(RBF(0.5), depth),
    "linear layers": lambda depth: constructions.linear_td(1, depth),
    "landmarks": lambda depth: WeightedSoftmaxTD(RBF(0.5), depth, approximation=Nystrom(5)),
}
ENDLESS = "at γ = 1, states of this context from which no transition that ends is reached have no finite value"


def walks(length, *, terminated, count=10):
    rng = np.random.default_rng(length)
    paths = [np.cumsum(0.3 * rng.normal(size=(length + 1, 1)), 0) for _ in range(count)]
    return Context.from_episodes([Episode(path, np.ones(length), terminated) for path in paths], 1.0)


def silent(fit):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return fit()


@pytest.mark.parametrize("name", EVALUATORS)
def test_a_loop_that_never_ends_has_no_value_which_is_said(name):
    with pytest.warns(DivergenceWarning, match=rf"not settled after 40 (sweep|layer)s: {ENDLESS}.*take γ < 1, epis"):
        value = EVALUATORS[name](40).fit(LOOP)
    assert float(value([1.0])) == pytest.approx(40.0)  # the sum over 40 steps, which is what it says
    assert float(silent(lambda: EVALUATORS[name](9).fit(LOOP))([1.0])) == pytest.approx(9.0)  # a horizon asked for


@pytest.mark.parametrize("name", ["tabular", "softmax", "kernel", "softmax layers"])
def test_a_part_that_never_ends_is_seen_beside_one_that_does(name):
    with pytest.warns(DivergenceWarning, match=ENDLESS):
        EVALUATORS[name](20).fit(BESIDE)
    with pytest.warns(DivergenceWarning, match=ENDLESS):
        EVALUATORS[name](20).fit(Context.stack([walks(5, terminated=True), BESIDE]))


@pytest.mark.parametrize("name", ["tabular", "softmax", "kernel", "linear"])
@pytest.mark.parametrize("length", [5, 30])
def test_episodes_that_terminate_have_a_value(name, length):
    context = walks(length, terminated=True)
    for dtype in (torch.float32, torch.float64):
        for depth in (12, 40):
            silent(lambda d=depth, t=dtype: EVALUATORS[name](d).fit(context.to(dtype=t)))


def test_what_has_a_limit_all_the_same_is_silent():
    silent(lambda: AverageRewardTD(40).fit(LOOP))
    silent(lambda: constructions.average_reward_td(1, 40).fit(LOOP))
    silent(lambda: ResidualGradient(40).fit(LOOP))
    exchange = Context([[0.0], [1.0]] * 10, [1.0, -1.0] * 10, [1.0] * 20, [[1.0], [0.0]] * 10)
    value = silent(lambda: TabularTD(60, step_size=0.5).fit(exchange))
    assert value([[0.0], [1.0]]).tolist() == [pytest.approx(0.5), pytest.approx(-0.5)]
    silent(lambda: TabularTD(60).fit(walks(50, terminated=False)))  # the last states were never left: v = 0 there


def test_next_states_that_no_key_reaches_are_ends_of_kernel_td():
    far = Context([[0.0], [1.0]], [1.0, 2.0], [1.0, 1.0], [[100.0], [0.0]])
    value = silent(lambda: KernelTD(RBF(0.3), 40).fit(far))
    assert value([[0.0], [1.0], [100.0]]).tolist() == [pytest.approx(v, abs=1e-4) for v in (1.0, 3.0, 0.0)]


def test_a_loop_beside_an_end_that_attention_leaks_to_is_told_of_and_a_next_state_that_is_hardly_reached_is_an_end():
    states = [[0.0], [0.3], [0.6], [0.9]]
    loop = Context(states, [1.0] * 4, [1.0, 0.0, 1.0, 1.0], [[0.3], [9.0], [0.9], [0.6]])
    for evaluator in (KernelTD(RBF(0.1), 40), WeightedSoftmaxTD(RBF(0.1), 40)):
        with pytest.warns(DivergenceWarning, match=ENDLESS):
            evaluator.fit(loop)
    x, x_next = np.array([0.0, 0.3, 0.6]), np.array([0.3, 0.6, 2.1])
    near = Context(x[:, None], np.ones(3), np.ones(3), x_next[:, None])
    K, K_next = (np.exp(-np.abs(points[:, None] - x)) for points in (x, x_next))
    value = silent(lambda: KernelTD(Laplace(1.0), 30).fit(near))
    expected = K @ np.linalg.solve(K - K_next, np.ones(3))
    np.testing.assert_allclose(value(x[:, None]), expected, rtol=0.02)


def test_rewards_of_0_have_no_bound_at_1_and_are_silent():
    nothing = Context([[0.0]], [0.0], [1.0], [[0.0]])
    assert value_bound(nothing) == float("inf")
    assert float(silent(lambda: TabularTD(40).fit(nothing))([0.0])) == 0.0


def test_long_contexts_are_measured_past_their_transient():
    context = walks(100, terminated=True)
    for name in ("softmax", "kernel"):
        silent(lambda n=name: EVALUATORS[n](40).fit(context))
    with pytest.warns(DivergenceWarning, match=ENDLESS):
        EVALUATORS["softmax"](40).fit(walks(100, terminated=False))


def test_a_critic_passes_the_first_such_warning_on():
    critic = Critic(TabularTD(40))
    with pytest.warns(DivergenceWarning, match=ENDLESS):
        critic.assess(LOOP)
    silent(lambda: critic.assess(LOOP))
    assert critic.divergences == 2
    silent(lambda: critic.assess(Context([[1.0]], [1.0], [0.9], [[1.0]])))


def test_ppo_without_a_discount_or_an_end_says_so():
    pytest.importorskip("stable_baselines3")
    sb3 = importlib.import_module("icrl_agents.integrations.sb3")
    small = {"n_steps": 64, "batch_size": 32, "n_epochs": 1, "device": "cpu", "seed": 0, "gamma": 1.0}
    with pytest.warns(DivergenceWarning, match=ENDLESS):
        sb3.InContextPPO("MlpPolicy", gym.make("Pendulum-v1"), **small).learn(64)
    assert silent(lambda: sb3.InContextPPO("MlpPolicy", "CartPole-v1", **small).learn(128)).critic.divergences == 0


@pytest.mark.parametrize("half", [50, 150, 300])
@pytest.mark.parametrize("evaluator", [TabularTD(300), WeightedSoftmaxTD(RBF(0.1), 300), KernelTD(RBF(0.1), 300)])
def test_a_loop_beside_an_episode_that_ends_is_told_of_however_many_states_there_are(half, evaluator):
    ends, stuck = np.arange(half + 1.0), 1_000.0 + np.arange(2 * half + 1) % half
    states, after = np.concatenate([ends[:-1], stuck[:-1]]), np.concatenate([ends[1:], stuck[1:]])
    discounts = np.ones(len(states))
    discounts[half - 1] = 0.0
    context = Context(states[:, None], -np.ones(len(states)), discounts, after[:, None])
    with pytest.warns(DivergenceWarning, match="values have not settled after 300 sweeps: at γ = 1"):
        evaluator.fit(context)
