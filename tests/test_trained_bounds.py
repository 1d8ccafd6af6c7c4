"""Models act within the bounds that they were trained with, or are refused."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agents import collect, collect_episodes
from icrl_agents.control import PPOConfig, ppo
from icrl_agents.control.improvement import AmplifiedPolicy
from icrl_agents.evaluators import TabularTD
from icrl_envs import FixedPolicy
from icrl_envs.fixed_policy import action_function


class Trained:
    """Says in which spaces it was trained, as models of Stable-Baselines3 do; pushes as hard as it can."""

    def __init__(self, env):
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.broadcast_to(self.action_space.high, (*np.shape(observation)[:-1], 1)), state


def test_a_model_whose_actions_had_other_bounds_in_training_is_refused():
    plain = gym.make("Pendulum-v1")
    scaled = gym.wrappers.RescaleAction(plain, np.float32(-1.0), np.float32(1.0))
    for env in (plain, gym.make_vec("Pendulum-v1", 2, vectorization_mode="sync")):
        with pytest.raises(ValueError, match=r"policy: the model was trained with action_space .* wrap this env"):
            collect_episodes(env, num_steps=3, seed=0, policy=Trained(scaled))
    with pytest.raises(ValueError, match="action_space"):
        FixedPolicy(plain, Trained(scaled))
    own = [
        collect_episodes(env, num_steps=9, seed=0, policy=Trained(env))[0].rewards
        for env in (plain, scaled)  # the same torque
    ]
    np.testing.assert_array_equal(own[0], own[1])


def test_a_model_whose_observations_had_other_bounds_in_training_is_told_of():
    plain = gym.make("Pendulum-v1")
    scaled = gym.wrappers.RescaleObservation(plain, np.float32(-1.0), np.float32(1.0))
    with pytest.warns(UserWarning, match="policy: the model was trained with observation_space"):
        FixedPolicy(plain, Trained(scaled))
    FixedPolicy(plain, Trained(plain))


def test_an_actor_of_ppo_has_the_bounds_that_it_was_trained_with():
    plain = gym.make("Pendulum-v1")
    scaled = gym.wrappers.RescaleAction(gym.make("Pendulum-v1"), np.float32(-1.0), np.float32(1.0))
    settings = {"total_steps": 4, "seed": 0, "config": PPOConfig(rollout_steps=4)}
    actor = ppo(scaled, TabularTD(num_sweeps=1), **settings).actor
    for env in (plain, gym.make_vec("Pendulum-v1", 2, vectorization_mode="sync")):
        with pytest.raises(ValueError, match="policy: the model was trained with action_space"):
            collect_episodes(env, num_steps=3, seed=0, policy=actor)
    collect_episodes(scaled, num_steps=3, seed=0, policy=actor)


def test_an_actor_of_ppo_knows_whether_observations_were_normalised():
    def unbounded():  # as MuJoCo's are, so that bounds do not tell
        free = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        return gym.wrappers.TransformObservation(gym.make("Pendulum-v1"), lambda x: x, free)

    settings = {"total_steps": 4, "seed": 0, "config": PPOConfig(rollout_steps=4)}
    envs = unbounded(), gym.wrappers.NormalizeObservation(unbounded())
    for own, other in (envs, envs[::-1]):
        actor = ppo(own, TabularTD(num_sweeps=1), **settings).actor
        FixedPolicy(own, actor)
        with pytest.raises(ValueError, match=r"policy: expected a model of .* NormalizeObservation"):
            FixedPolicy(other, actor)
    fresh, vector = gym.wrappers.NormalizeObservation(unbounded()), gym.vector.SyncVectorEnv([unbounded] * 2)
    vectors = [
        gym.wrappers.vector.NormalizeObservation(vector),
        gym.vector.SyncVectorEnv([lambda: gym.wrappers.NormalizeObservation(unbounded())] * 2),
        gym.vector.AsyncVectorEnv([lambda: gym.wrappers.NormalizeObservation(unbounded())] * 2),
    ]
    actor = ppo(envs[1], TabularTD(num_sweeps=1), **settings).actor
    for each in (fresh, *vectors):
        with pytest.warns(UserWarning, match="policy: .* has seen none yet, .* give it the obs_rms of the model's own"):
            action_function(actor, each)
        each.close()
    fresh.obs_rms = envs[1].obs_rms
    FixedPolicy(fresh, actor)


def test_a_model_of_other_kinds_or_numbers_of_actions_or_observations_is_refused():
    box, discrete = gym.make("Pendulum-v1"), gym.make("CartPole-v1")
    counted = gym.wrappers.DiscretizeAction(box, 5, multidiscrete=True)  # one of 0 … 4 would be taken for a torque
    three = gym.wrappers.TransformAction(discrete, lambda action: min(action, 1), gym.spaces.Discrete(3))
    for trained, env in ((counted, box), (discrete, three)):
        for each in (env, gym.vector.SyncVectorEnv([lambda env=env: env])):
            with pytest.raises(ValueError, match="policy: the model was trained with action_space"):
                collect_episodes(each, num_steps=3, seed=0, policy=Actions(trained))
        assert len(collect_episodes(trained, num_steps=3, seed=0, policy=Actions(trained))[0]) == 3
    grids = [gym.wrappers.TransformObservation(box, lambda x: 0, gym.spaces.Discrete(n)) for n in (64, 16)]
    with pytest.raises(ValueError, match="policy: the model was trained with observation_space"):
        FixedPolicy(grids[1], Actions(grids[0]))


class Actions(Trained):
    """Takes the first of its actions everywhere."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.zeros((*np.shape(observation)[:-1], *self.action_space.shape), np.int64), state


class Masked(Actions):
    """Is told which actions are allowed, as sb3-contrib's MaskablePPO."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False, action_masks=None):
        return super().predict(observation)


def test_a_model_whose_actions_are_masked_is_refused_as_it_would_choose_among_all():
    env = gym.make("CartPole-v1")
    model = Masked(env)
    for each in (env, gym.vector.SyncVectorEnv([lambda: env])):
        with pytest.raises(ValueError, match=r"policy: .* takes action_masks; pass lambda observation, rng"):
            collect_episodes(each, num_steps=3, seed=0, policy=model)
    policy = lambda observation, rng: model.predict(observation, action_masks=np.array([True, False]))[0]  # noqa: E731
    assert len(collect_episodes(env, num_steps=3, seed=0, policy=policy)[0]) == 3


def test_a_function_whose_second_parameter_is_another_setting_is_not_given_the_generator_for_it():
    env, weights, stream = gym.make("CartPole-v1"), np.ones(4), np.random.default_rng(0)
    for policy in (
        lambda observation, deterministic=False: int(bool(deterministic)),
        lambda observation, action=1: action,
        lambda observation, weights=weights: int(weights @ observation > 0),
    ):
        with pytest.raises(TypeError, match=r"policy must be a callable \(observation, rng\) -> action"):
            collect_episodes(env, num_steps=3, seed=0, policy=policy)
    for policy in (
        lambda observation, rng=None: int(np.random.default_rng(rng).integers(2)),
        lambda observation, rng=stream: int(rng.integers(2)),
        lambda *both: int(both[1].integers(2)),
        lambda observation, *rest: int(rest[0].integers(2)),
        lambda observation, rng, action=1: action,
    ):
        assert len(collect_episodes(env, num_steps=3, seed=0, policy=policy)[0]) == 3


class Net(torch.nn.Module):
    """A policy as a torch module, whose parameters are those of its ``forward``."""

    def forward(self, observation, deterministic=False):
        return int(bool(deterministic))


class Drawn(Net):
    """The same, which draws as asked."""

    def forward(self, observation, rng):
        return int(rng.integers(2))


def test_a_torch_module_and_a_space_are_asked_as_functions_are():
    env = gym.make("CartPole-v1")
    for policy in (Net(), Net().forward, env.action_space.sample):
        with pytest.raises(TypeError, match=r"policy must be a callable \(observation, rng\) -> action"):
            collect_episodes(env, num_steps=3, seed=0, policy=policy)
    assert len(collect_episodes(env, num_steps=3, seed=0, policy=Drawn())[0]) == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its compiler
@pytest.mark.parametrize("made", [torch.compile, torch.nn.DataParallel])
def test_a_compiled_or_parallel_module_is_asked_as_the_module_in_it(made):
    env = gym.make("CartPole-v1")
    with pytest.raises(TypeError, match=r"policy must be a callable \(observation, rng\) -> action"):
        collect_episodes(env, num_steps=3, seed=0, policy=made(Net()))
    FixedPolicy(env, made(Drawn()))


@pytest.mark.filterwarnings("ignore:Constant.* may be too high")  # the scripted policies' own remark
def test_scripts_of_metaworld_are_refused_where_what_they_take_for_the_goal_is_none():
    from metaworld.policies import ENV_POLICY_MAP

    def make(**options):
        return gym.make("icrl/MetaWorld-v0", domain="reach-v3", **options)

    script, refusal = ENV_POLICY_MAP["reach-v3"](), "MetaWorld's scripts read the goal from the last three numbers"
    for options in ({"observation": "state"}, {"goal_visible": False}, {"observation": "full", "goal_visible": False}):
        with pytest.raises(ValueError, match=refusal):
            FixedPolicy(make(**options), script)
        with pytest.raises(ValueError, match=refusal):
            collect(
                gym.vector.SyncVectorEnv([partial(make, **options)] * 2), num_steps=2, gamma=0.9, seed=0, policy=script
            )
    with pytest.raises(ValueError, match=refusal):
        FixedPolicy(gym.make("CartPole-v1"), script)
    wrapped = gym.wrappers.FlattenObservation(make(observation="full"))
    assert len(collect(wrapped, num_steps=3, gamma=0.9, seed=0, policy=script)) == 3
    FixedPolicy(make(), script)


def test_the_scripts_of_the_library_are_refused_where_the_last_three_numbers_are_no_goal():
    from icrl_envs.metaworld.policies import scripted_policy

    script = scripted_policy("reach-v3")
    for policy in (lambda observation, rng: script(observation), AmplifiedPolicy(script, np.zeros(4), 0.1)):
        for options in ({"observation": "state"}, {"observation": "full", "goal_visible": False}):
            env = gym.make("icrl/MetaWorld-v0", domain="reach-v3", **options)
            with pytest.raises(ValueError, match="MetaWorld's scripts read the goal from the last three numbers"):
                collect(env, num_steps=2, gamma=0.9, seed=0, policy=policy)
        actions = []
        for observation in ("full", "core"):
            env = gym.make("icrl/MetaWorld-v0", domain="reach-v3", observation=observation)
            actions.append(policy(env.reset(seed=0)[0], np.random.default_rng(0)))
        np.testing.assert_allclose(*actions, rtol=1e-6)
