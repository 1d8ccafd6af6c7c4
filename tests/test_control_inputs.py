"""What actor-critic loops refuse: actors that diverge, observations that are no numbers, and wrong arguments."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from icrl_agents.collection import collect
from icrl_agents.collection.copies import copies_of
from icrl_agents.context import Context
from icrl_agents.control import Critic, PPOConfig, default_evaluator, generalised_advantages, ppo
from icrl_agents.control.actor import Actor
from icrl_agents.control.collector import Collector
from icrl_agents.divergence import DivergenceError
from icrl_agents.evaluators import LSTD

SHORT = PPOConfig(rollout_steps=8, epochs=1, hidden=(4,))


class Broken(gym.ObservationWrapper):
    """Observations are NaN from the fifth on."""

    count = 0

    def observation(self, observation):
        self.count += 1
        return observation if self.count < 5 else np.full_like(observation, np.nan)


class Watched(gym.ActionWrapper):
    """Fails at the first action that is no number."""

    def action(self, action):
        assert np.isfinite(action).all()
        return action


@pytest.mark.parametrize("learning_rate", [10.0, 1e30])
def test_an_actor_that_diverges_is_an_error_before_it_acts(learning_rate):
    config = PPOConfig(rollout_steps=32, epochs=20, hidden=(2,), learning_rate=learning_rate)
    with pytest.raises(DivergenceError, match=r"learning_rate .* is too large"):
        ppo(Watched(gym.make("Pendulum-v1")), LSTD(ridge=1.0), total_steps=2_000, seed=0, config=config)


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1"])
def test_an_observation_that_is_no_number_is_named(id):
    with pytest.raises(ValueError, match=r"env: expected observations that are finite .* after 4 steps"):
        ppo(Broken(gym.make(id)), LSTD(ridge=1.0), total_steps=16, seed=0, config=SHORT)


@pytest.mark.parametrize("name", ["learning_rate", "clip", "max_gradient", "entropy"])
def test_settings_beyond_float32_are_refused(name):
    with pytest.raises(ValueError, match=rf"{name} must be a finite number in .0, 1e\+30\]; got 1e\+300"):
        PPOConfig(**{name: 1e300})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"config": {"gamma": 0.9}}, TypeError, r"config must be a PPOConfig, such as PPOConfig\(gamma=0.9\)"),
        ({"on_update": 3}, TypeError, "on_update must be a callable"),
        ({"seed": 2**70}, ValueError, "seed must be an integer in"),
    ],
)
def test_wrong_arguments_of_ppo_are_named(change, error, message):
    with pytest.raises(error, match=message):
        ppo(gym.make("CartPole-v1"), LSTD(), **{"total_steps": 8, "seed": 0, "config": SHORT, **change})


@pytest.mark.parametrize("features", [lambda states: states[:1], lambda states: states[:, 0], lambda states: None])
def test_features_that_are_not_a_row_for_each_state_are_named(features):
    context = Context([[0.0], [1.0]], [1.0, 2.0], [0.9, 0.0], [[1.0], [2.0]])
    with pytest.raises(ValueError, match=r"features: expected a tensor \(2, f\), a row for each state, got"):
        Critic(LSTD(), features=features).assess(context)


def test_padding_has_no_part_in_a_critic():
    rng = np.random.default_rng(0)
    x, y, r, g = rng.normal(size=(4, 2)), rng.normal(size=(4, 2)), np.arange(4.0), np.full(4, 0.9)
    for chosen in ([True, True, False, False], [False, True, True, True]):
        padded, alone = Critic(default_evaluator(), window=2), Critic(default_evaluator(), window=2)
        for _ in range(2):
            found, expected = (
                padded.assess(Context(x, r, g, y, mask=chosen)),
                alone.assess(Context(x[chosen], r[chosen], g[chosen], y[chosen])),
            )
            for name in ("values", "advantages"):
                torch.testing.assert_close(getattr(found, name)[torch.tensor(chosen)], getattr(expected, name))
                assert not getattr(found, name)[~torch.tensor(chosen)].any()


def test_after_a_refused_batch_a_critic_goes_on_as_before():
    def batch(dim, seed=0):
        rng = np.random.default_rng(seed)
        return Context(rng.normal(size=(5, dim)), rng.normal(size=5), np.full(5, 0.9), rng.normal(size=(5, dim)))

    disturbed, plain = (Critic(default_evaluator(), window=2) for _ in range(2))
    for critic in (disturbed, plain):
        critic.assess(batch(2))
    with pytest.raises(ValueError, match="one state dimension"):
        disturbed.assess(batch(3))
    with pytest.raises(ValueError, match=r"batch: expected one without batch dimensions, got shape \(1, 5\)"):
        disturbed.assess(Context.stack([batch(2)]))
    with pytest.raises(TypeError):
        disturbed.load_state_dict({"batches": [{}], "divergences": 0})
    found, expected = (critic.assess(batch(2, seed=1)).values for critic in (disturbed, plain))
    assert torch.equal(found, expected)
    assert torch.equal(disturbed(batch(2).states), plain(batch(2).states))


def test_a_batch_without_transitions_is_worth_nothing():
    critic = Critic(default_evaluator())
    found = critic.assess(Context(np.zeros((0, 2)), np.zeros(0), np.zeros(0), np.zeros((0, 2))))
    assert (len(found.values), len(found.advantages)) == (0, 0)
    assert critic(torch.ones(3, 2).double()).tolist() == [0.0, 0.0, 0.0]


class LostAtTheEnd(gym.Wrapper):
    """Says nothing but NaN of where an episode has terminated."""

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return np.full_like(observation, np.nan) if terminated else observation, reward, terminated, truncated, info


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_an_observation_after_a_termination_is_never_read(mode):
    def rollout(*wrappers):
        env = gym.make_vec("CartPole-v1", 3, "sync", vector_kwargs={"autoreset_mode": mode}, wrappers=wrappers)
        generator = torch.Generator().manual_seed(0)
        actor = Actor(env.single_observation_space, env.single_action_space, (8,), generator)
        return Collector(copies_of(env), seed=1).collect(actor, 60, 0.9, generator)

    lost, seen = rollout(LostAtTheEnd), rollout()
    assert int((seen.context.discounts == 0).sum()) > 3
    for name in ("states", "rewards", "discounts"):
        assert torch.equal(getattr(lost.context, name), getattr(seen.context, name))
    assert torch.equal(lost.actions, seen.actions)


def test_an_observation_that_is_no_number_names_its_copy():
    env = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1"), lambda: Broken(gym.make("CartPole-v1"))])
    with pytest.raises(ValueError, match=r"got \[nan, .*\] in copy 1 after 8 steps"):
        ppo(env, LSTD(ridge=1.0), total_steps=16, seed=0, config=SHORT)


class Paid(gym.Wrapper):
    """Pays the same in each step, whatever it is."""

    def __init__(self, env, reward):
        super().__init__(env)
        self.reward = reward

    def step(self, action):
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, self.reward, terminated, truncated, info


@pytest.mark.parametrize("reward", [None, "1", 1j, np.array([1.0, 2.0]), np.zeros(0)])
def test_a_reward_that_is_no_number_is_named(reward):
    env = Paid(gym.make("CartPole-v1"), reward)
    for run in (
        lambda: ppo(env, LSTD(ridge=1.0), total_steps=16, seed=0, config=SHORT),
        lambda: collect(env, num_steps=5, gamma=0.9, seed=0),
    ):
        with pytest.raises(ValueError, match="env: expected a reward that is one real number, got"):
            run()
    with pytest.raises(ValueError, match="float64 would round the integer 9007199254740993"):
        collect(Paid(env, 2**53 + 1), num_steps=5, gamma=0.9, seed=0)
    for one in (1, True, np.float32(1), np.array([1.0]), torch.tensor(1.0)):
        assert collect(Paid(env, one), num_steps=2, gamma=0.9, seed=0).rewards.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("reward", [np.nan, -np.inf, 1e39])
def test_a_reward_that_is_not_finite_names_copy_and_step(reward):
    env = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1"), lambda: Paid(gym.make("CartPole-v1"), reward)])
    with pytest.raises(
        ValueError, match=r"expected rewards that are finite as float32, got .* in copy 1 after 0 steps"
    ):
        ppo(env, LSTD(ridge=1.0), total_steps=16, seed=0, config=SHORT)


def test_advantages_keep_the_wider_type_of_context_and_values():
    context = Context([[0.0], [1.0]], [0.7, 0.6], [0.9, 0.0], [[1.0], [2.0]])
    for dtype in (torch.float32, torch.float64):
        found = generalised_advantages(context, torch.zeros(2, dtype=dtype), 1.0)
        assert found.dtype == torch.float64
        np.testing.assert_allclose(found, [0.7 + 0.9 * 0.6, 0.6])
    with pytest.raises(TypeError, match="values: expected floating-point numbers"):
        generalised_advantages(context, torch.tensor([0, 0]), 1.0)
    narrow = context.to(dtype=torch.float32)
    assert generalised_advantages(narrow, torch.zeros(2), 1.0).dtype == torch.float32
    assert generalised_advantages(narrow, torch.zeros(2, dtype=torch.float64), 1.0).dtype == torch.float64
    with pytest.raises(ValueError, match="values: expected finite numbers whose TD errors are finite, got nan"):
        generalised_advantages(context, torch.tensor([0.0, np.nan]), 1.0)
    with pytest.raises(ValueError, match=r"values: expected shape \(2,\), got \(2, 2\)"):
        generalised_advantages(context, torch.zeros(2, 2), 1.0)


@pytest.mark.parametrize("unit", [1e155, 1e307, 1e-162, 1e-300, 2.0**-1030])
def test_a_critic_does_not_depend_on_the_unit_of_states(unit):
    rng = np.random.default_rng(0)
    states, rewards = rng.normal(size=(41, 3)) * [1.0, 1e-3, 0.0], rng.normal(size=40)
    values = []
    for x in (states, states * unit):
        context = Context(x[:-1], rewards, np.full(40, 0.9), x[1:])
        values.append(Critic(default_evaluator()).assess(context).values)
    np.testing.assert_allclose(values[1], values[0], rtol=1e-9, atol=1e-10)


def test_the_actor_does_not_depend_on_the_unit_of_small_rewards():
    def trained(unit):
        env = gym.wrappers.TransformReward(gym.make("Pendulum-v1"), lambda reward: float(reward) * unit)
        config = PPOConfig(rollout_steps=32, epochs=2, hidden=(4,))
        actor = ppo(env, default_evaluator(), total_steps=64, seed=0, config=config).actor
        return torch.nn.utils.parameters_to_vector(actor.parameters()).detach()

    expected = trained(1.0)
    for unit in (2.0**-40, 2.0**-100):
        torch.testing.assert_close(trained(unit), expected, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match=r"env: expected rewards that torch\.float32 holds, got smaller ones"):
        trained(1e-60)


@pytest.mark.parametrize("make", [lambda: gym.make("CartPole-v1"), lambda: gym.make_vec("CartPole-v1", 2, "sync")])
def test_a_callback_that_moves_the_environment_of_the_training_is_refused(make):
    def run(env, evaluated, seed):
        def on_update(steps, actor):
            collect(evaluated, num_steps=5, gamma=0.9, seed=seed, policy=actor)

        return ppo(env, LSTD(0.1), total_steps=16, seed=0, config=SHORT, on_update=on_update)

    env = make()
    run(env, make(), 0)
    for seed in (0, None):
        with pytest.raises(ValueError, match="on_update: expected it to leave env alone, whose episode is running"):
            run(env, env, seed)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_a_training_is_the_same_where_gradients_are_switched_off(off):
    def trained():
        return ppo(gym.make("CartPole-v1"), LSTD(0.1), total_steps=16, seed=0, config=SHORT).actor.state_dict()

    expected = trained()
    with off():
        torch.testing.assert_close(trained(), expected, rtol=0.0, atol=0.0)
