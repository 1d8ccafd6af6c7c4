"""In threads warnings are those of a loop, as values are."""

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from icrl_agents import Context, InContextTransformer, collect
from icrl_agents.adaptive import AdaptiveTD
from icrl_agents.constructions import weighted_softmax_td
from icrl_agents.control import Critic
from icrl_agents.divergence import DivergenceWarning
from icrl_agents.evaluators import WeightedSoftmaxTD
from icrl_agents.kernels import RBF, Laplace
from icrl_agents.layers import export_multihead_attention
from icrl_agents.machine import one_thread
from icrl_envs import ProcessEnv
from icrl_envs.cartpole import random_cartpole


def random_context(seed, n=40):
    rng = torch.Generator().manual_seed(seed)
    states, following = torch.randn(2, n, 2, generator=rng, dtype=torch.float64)
    return Context(states, torch.randn(n, generator=rng, dtype=torch.float64), [0.9] * n, following)


DIVERGING = WeightedSoftmaxTD(RBF(0.2), 15)
CONTEXTS = [random_context(seed) for seed in range(12)]


def warned(fit, map_):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(map_(fit, CONTEXTS))
    return sorted(str(each.message) for each in caught)


@pytest.mark.parametrize(
    "evaluator",
    [AdaptiveTD([WeightedSoftmaxTD(Laplace(scale), 20) for scale in (0.1, 3.0)]), DIVERGING],
    ids=["adaptive", "diverging"],
)
def test_every_warning_of_a_loop_is_given_in_threads(evaluator):
    alone = warned(evaluator.fit, map)
    assert len(alone) >= 3
    with ThreadPoolExecutor(4) as pool:
        assert warned(evaluator.fit, pool.map) == alone
    assert warned(evaluator.fit, map) == alone  # nor is any lost afterwards


def test_a_critic_counts_its_own_divergences_alone():
    critics = [Critic(WeightedSoftmaxTD(RBF(0.05), 20)) for _ in CONTEXTS]

    def both(critic, context):
        DIVERGING.fit(context)
        critic.assess(context)

    with ThreadPoolExecutor(4) as pool, pytest.warns(DivergenceWarning):
        list(pool.map(both, critics, CONTEXTS))
    assert all(critic.divergences == 0 for critic in critics)


def test_a_process_is_the_same_in_threads_that_share_it():
    process = random_cartpole(task_seed=0)

    def rollout(seed):
        return collect(ProcessEnv(process), num_steps=2_000, gamma=0.9, seed=seed).states

    alone, interval = list(map(rollout, range(8))), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(rollout, range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert all(map(torch.equal, alone, together))


@pytest.mark.parametrize("trained", [False, True], ids=["expansion", "columns"])
def test_weights_stay_in_their_module_while_threads_use_it(trained):
    """Other weights than its own are in its place meanwhile, such as those in another floating type."""
    layer = export_multihead_attention(weighted_softmax_td(RBF(1.0), 1).blocks[0], 2)  # type: ignore[arg-type]
    transformer = InContextTransformer([layer], 3).requires_grad_(trained)
    own = dict(transformer.named_parameters())
    contexts = [context.to(dtype=(torch.float32, torch.float64)[i % 2]) for i, context in enumerate(CONTEXTS)] * 3

    def values(context):
        value = transformer.fit(context)
        return value(context.states[:3]) + value(context.states[:3])

    alone, interval = list(map(values, contexts)), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(values, contexts))
    finally:
        sys.setswitchinterval(interval)
    assert all(map(torch.equal, alone, together))
    assert all(weight is own[name] for name, weight in transformer.named_parameters())


def test_what_keeps_torch_on_one_thread_gives_back_what_was_before_however_it_overlaps():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_num_threads() == 1
        second.__exit__(None, None, None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
