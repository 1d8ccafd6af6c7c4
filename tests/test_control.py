"""Actor-critic loops: advantages against a plain loop, the critic, the rollouts, and PPO end to end."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl_agents.collection import collect
from icrl_agents.collection.copies import copies_of
from icrl_agents.context import Context
from icrl_agents.control import Actor, Critic, PPOConfig, generalised_advantages, ppo, quadratic_features
from icrl_agents.control.collector import Collector
from icrl_agents.control.features import mapped, standardising
from icrl_agents.control.rollout import Rollout
from icrl_agents.divergence import DivergenceWarning
from icrl_agents.evaluators import LSTD, KernelTD, MonteCarlo, TabularTD, WeightedSoftmaxTD
from icrl_agents.kernels import Laplace
from icrl_agents.notices import warn
from icrl_envs import FixedPolicy

EVALUATORS = {
    "softmax": WeightedSoftmaxTD(Laplace(0.5), num_sweeps=20),
    "kernel": KernelTD(Laplace(0.5), num_sweeps=20),
    "LSTD": LSTD(ridge=1e-3),
    "Monte-Carlo": MonteCarlo(Laplace(0.5)),
    "zero": WeightedSoftmaxTD(Laplace(0.5), num_sweeps=0),
}


def slow_advantages(rewards, terminated, ends, values, next_values, gamma, lambda_):
    """Σ_l (γλ)^l δ_{t+l} by two loops, up to the end of t's trajectory."""
    T = len(rewards)
    delta = [rewards[t] + (0.0 if terminated[t] else gamma * next_values[t]) - values[t] for t in range(T)]
    result = []
    for t in range(T):
        total, weight, k = 0.0, 1.0, t
        while True:
            total += weight * delta[k]
            if ends[k] or k == T - 1:
                break
            weight *= gamma * lambda_
            k += 1
        result.append(total)
    return result


@settings(deadline=None, max_examples=50)
@given(
    kinds=st.lists(st.sampled_from(["runs", "runs", "terminates", "is cut"]), min_size=1, max_size=12),
    lambda_=st.sampled_from([0.0, 0.5, 0.95, 1.0]),
    gamma=st.sampled_from([0.0, 0.9, 1.0]),
    seed=st.integers(0, 1_000),
)
def test_advantages_equal_two_plain_loops(kinds, lambda_, gamma, seed):
    rng = np.random.default_rng(seed)
    terminated = np.array([kind == "terminates" for kind in kinds])
    ends = np.array([kind != "runs" for kind in kinds])
    states, rewards = rng.normal(size=(len(kinds) + 1, 2)), rng.normal(size=len(kinds))
    next_states = np.where(ends[:, None], rng.normal(size=(len(kinds), 2)), states[1:])
    rollout = Rollout(1)
    for t in range(len(kinds)):
        x, x_next = torch.from_numpy(states[t : t + 1]), torch.from_numpy(next_states[t : t + 1])
        rollout.add(x, rewards[t : t + 1], x_next, terminated[t : t + 1], (ends & ~terminated)[t : t + 1])
    context = rollout.context(gamma)

    def v(x):
        return np.sin(x).sum(-1)

    expected = slow_advantages(rewards, terminated, ends, v(states[:-1]), v(next_states), gamma, lambda_)
    found = generalised_advantages(context, torch.from_numpy(v(context.points.numpy())), lambda_)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_termination_and_truncation_are_handled_apart():
    states, next_states = [[0.0], [1.0]], [[1.0], [5.0]]
    for last, expected in ((0.0, [1.0 + 0.9 * 1.0, 1.0]), (0.9, [1.0 + 0.9 * (1.0 + 0.9 * 5.0), 1.0 + 0.9 * 5.0])):
        context = Context(states, [1.0, 1.0], [0.9, last], next_states)
        advantages = generalised_advantages(context, context.points[:, 0], 1.0)
        np.testing.assert_allclose(advantages + context.states[:, 0], expected)


@pytest.mark.parametrize("lambda_", [-0.1, 1.5, "high"])
def test_a_wrong_lambda_is_named(lambda_):
    with pytest.raises(ValueError, match="lambda_: expected"):
        generalised_advantages(Context([[0.0]], [1.0], [0.0], [[0.0]]), torch.zeros(1), lambda_)


def test_standardised_features_have_mean_0_and_deviation_1_and_constants_vanish():
    rng = np.random.default_rng(0)
    states = np.stack([1e3 + rng.normal(size=50), 1e-3 * rng.normal(size=50), np.full(50, 7.3)], axis=-1)
    context = Context(states, np.zeros(50), np.full(50, 0.9), np.roll(states, -1, axis=0))
    standardised = mapped(context, standardising(context))
    np.testing.assert_allclose(standardised.states.mean(0), 0.0, atol=1e-9)
    np.testing.assert_allclose(standardised.states.std(0, correction=0), [1.0, 1.0, 0.0], atol=1e-9)
    np.testing.assert_array_equal(standardised.contiguous, context.contiguous)
    np.testing.assert_array_equal(standardised.next_states[:-1], standardised.states[1:])


def test_a_window_fits_on_the_last_batches_and_assesses_the_last_one():
    batches = [Context([[0.0]], [reward], [0.0], [[0.0]]) for reward in (1.0, 3.0, 7.0)]
    critic = Critic(TabularTD(num_sweeps=1), window=2)
    values = [float(critic.assess(batch).values) for batch in batches]
    assert values == [1.0, 2.0, 5.0]
    assert float(critic(batches[0].states)) == 5.0
    assert float(Critic(TabularTD(1))(batches[0].states)) == 0.0


def test_returns_are_advantages_plus_values():
    context = Context([[0.0], [1.0]], [1.0, 2.0], [0.9, 0.0], [[1.0], [2.0]])
    assessment = Critic(EVALUATORS["zero"], gae_lambda=1.0).assess(context)
    np.testing.assert_allclose(assessment.returns, context.returns()[0])


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1"])
def test_an_actor_does_not_depend_on_torchs_default_type(id):
    found = []
    for default in (torch.float32, torch.float64):
        torch.set_default_dtype(default)
        try:
            trained = ppo(gym.make(id), LSTD(ridge=1.0), total_steps=16, seed=0, config=PPOConfig(rollout_steps=8))
        finally:
            torch.set_default_dtype(torch.float32)
        found.append(torch.nn.utils.parameters_to_vector(trained.actor.parameters()))
    assert torch.equal(*found)


def test_quadratic_features_are_all_products():
    found = quadratic_features(torch.tensor([[2.0, 3.0]]))
    assert found.tolist() == [[1.0, 2.0, 3.0, 4.0, 6.0, 9.0]]
    assert quadratic_features(np.array([[2.0, 3.0]])).tolist() == found.tolist()
    for states, error in (("a", TypeError), (1.0, ValueError), (np.array([[1e200, 1.0]]), ValueError)):
        with pytest.raises(error, match="states: expected"):
            quadratic_features(states)


def test_sweeps_that_do_not_contract_are_counted_and_other_warnings_given():
    class Complaining:
        def fit(self, context):
            warn("the iteration does not contract", DivergenceWarning)
            warn("something else")
            return LSTD(ridge=1.0).fit(context)

    critic = Critic(Complaining())
    batch = Context([[0.0], [1.0]], [1.0, 2.0], [0.9, 0.0], [[1.0], [2.0]])
    with pytest.warns(UserWarning, match="something else"):
        critic.assess(batch)
    assert critic.divergences == 1


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"evaluator": LSTD}, TypeError, "evaluator: expected an object with fit"),
        ({"window": 0}, ValueError, "window must be an integer ≥ 1"),
        ({"features": 3}, TypeError, "features: expected a callable"),
    ],
)
def test_what_is_no_critic_is_named(change, error, message):
    arguments = {"evaluator": LSTD(), **change}
    with pytest.raises(error, match=message):
        Critic(arguments.pop("evaluator"), **arguments)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_rollouts_hold_no_restarts_and_the_true_final_observations(mode):
    env = gym.make_vec("CartPole-v1", 3, "sync", vector_kwargs={"autoreset_mode": mode})
    generator = torch.Generator().manual_seed(0)
    actor = Actor(env.single_observation_space, env.single_action_space, (8,), generator)
    collector = Collector(copies_of(env), seed=1)
    parts = [collector.collect(actor, 40, 0.9, generator) for _ in range(3)]
    for batch in parts:
        context, n = batch.context, len(batch.context)
        assert len(batch.actions) == len(batch.log_probs) == n
        fallen = context.next_states[context.discounts == 0].abs()
        assert bool(((fallen[:, 0] > 2.4) | (fallen[:, 2] > 0.2094)).all())
        assert bool((context.states[:, 2].abs() < 0.2095).all())
    terminal = sum(int((batch.context.discounts == 0).sum()) for batch in parts)
    assert collector.steps == sum(len(batch.context) for batch in parts)
    assert terminal == len(collector.episodes) > 5
    assert sum(end.undiscounted_return for end in collector.episodes) <= collector.steps
    env.close()


@pytest.mark.parametrize("name", EVALUATORS)
def test_ppo_runs_with_every_evaluator_and_is_reproducible(name):
    state = torch.get_rng_state()
    config = PPOConfig(rollout_steps=32, epochs=2, window=2)
    features = quadratic_features if name == "LSTD" else None

    def run():
        env = gym.make_vec("Pendulum-v1", 2, "sync")
        return ppo(env, EVALUATORS[name], total_steps=100, seed=3, config=config, features=features).actor

    first, second = run(), run()
    for parameter, other in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=0.0, atol=0.0)
    assert torch.equal(torch.get_rng_state(), state)


def test_ppo_improves_cart_pole_and_its_actor_is_a_policy():
    steps = []
    env = gym.make_vec("CartPole-v1", 8, "sync")
    evaluator = WeightedSoftmaxTD(Laplace(0.5), num_sweeps=50)
    config = PPOConfig(rollout_steps=64, learning_rate=1e-3)
    result = ppo(
        env, evaluator, total_steps=2_000, seed=0, config=config, on_update=lambda step, actor: steps.append(step)
    )
    assert steps[0] == 0
    assert steps[-1] >= 2_000
    single = gym.make("CartPole-v1")
    context = collect(single, num_episodes=3, gamma=0.99, seed=0, policy=result.actor)
    assert len(context) / 3 > 60  # a random policy stays up for 22 steps
    FixedPolicy(single, result.actor).reset(seed=0)


def test_a_single_environment_will_do():
    env = gym.make("CartPole-v1", max_episode_steps=10)
    result = ppo(env, LSTD(ridge=1.0), total_steps=64, seed=0, config=PPOConfig(rollout_steps=32, epochs=1))
    assert [end.step for end in result.episodes][-1] <= 64
    assert all(end.undiscounted_return <= 10 for end in result.episodes)


def test_unfit_spaces_and_settings_are_named():
    generator = torch.Generator()
    vector = spaces.Box(-1.0, 1.0, (2,))
    with pytest.raises(TypeError, match="action_space: expected Discrete or a Box"):
        Actor(vector, spaces.MultiDiscrete([2, 2]), (4,), generator)
    with pytest.raises(ValueError, match="pixel"):
        Actor(spaces.Box(0, 255, (8, 8, 3), np.uint8), spaces.Discrete(2), (4,), generator)
    with pytest.raises(ValueError, match="rollout_steps must be an integer ≥ 2"):
        PPOConfig(rollout_steps=1)
    for hidden in (64, "64"):
        with pytest.raises(TypeError, match="hidden must be a tuple of integers ≥ 1, such as"):
            PPOConfig(hidden=hidden)
    with pytest.raises(TypeError, match=r"did you mean gymnasium\.make"):
        ppo("CartPole-v1", LSTD(), total_steps=10, seed=0)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e39])
def test_an_actor_refuses_observations_that_single_precision_does_not_hold(number):
    space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    actor = Actor(space, spaces.Discrete(2), [8], torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="observation: expected numbers that are finite in float32, got"):
        actor.get_action(np.array([0.0, number]))
