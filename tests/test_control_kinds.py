"""What control loops are given that is of an unusual kind: random streams, value functions."""

import copy
import threading
from dataclasses import replace

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
import torch

from icrl_agents.adaptive import AdaptiveTD
from icrl_agents.context import Context
from icrl_agents.control import Critic, Experience, FiniteMDP, PPOConfig, policy_iteration, ppo
from icrl_agents.control.improvement import cross_fitted_advantages
from icrl_agents.episode import Episode
from icrl_agents.evaluators import LSTD, AverageRewardTD, MonteCarlo, OffsetCorrected, TabularTD
from icrl_agents.kernels import Identity


class OldStream(gym.Env):
    """An environment whose random stream is of NumPy's old kind."""

    observation_space, action_space = gym.spaces.Box(-9.0, 9.0, (1,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self._np_random = np.random.RandomState(seed)
        return self.np_random.normal(size=1).astype(np.float32), {}

    def step(self, action):
        return self.np_random.normal(size=1).astype(np.float32), 1.0, False, False, {}


def test_an_environment_with_an_old_random_stream_is_trained_in_and_a_callback_that_moves_it_refused():
    def run(on_update):
        env = OldStream()
        return ppo(
            env,
            LSTD(0.1),
            total_steps=16,
            seed=0,
            config=PPOConfig(rollout_steps=8, epochs=1, hidden=(4,)),
            on_update=lambda *_: on_update(env),
        )

    run(lambda env: None)
    with pytest.raises(ValueError, match="on_update: expected it to leave env alone"):
        run(lambda env: env.step(0))


class Corridor(gym.Env):
    """Cells in a row, without chance."""

    observation_space, action_space = gym.spaces.Box(-9.0, 9.0, (1,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.zeros(1, np.float32)
        return self.place.copy(), {}

    def step(self, action):
        self.place = np.clip(self.place + 2 * action - 1, -4, 4).astype(np.float32)
        return self.place.copy(), float(self.place[0]), False, False, {}


@pytest.mark.parametrize("copies", [None, 2])
def test_a_callback_that_moves_an_environment_without_chance_is_refused_and_one_that_moves_another_is_not(copies):
    def run(use):
        env = Corridor() if copies is None else gym.vector.SyncVectorEnv([Corridor] * copies)
        settings = PPOConfig(rollout_steps=8, epochs=1, hidden=(4,))
        ppo(env, LSTD(0.1), total_steps=16, seed=0, config=settings, on_update=lambda *_: use(env))
        assert (Corridor.reset, Corridor.step) == methods

    def walk(env):
        env.reset()
        env.step(env.action_space.sample())

    methods = Corridor.reset, Corridor.step
    for right in (lambda env: walk(Corridor()), lambda env: walk(copy.deepcopy(env)), lambda env: None):
        run(right)
    wrong = [lambda env: env.step(env.action_space.sample()), walk]
    for use in wrong if copies is None else [*wrong, lambda env: walk(env.envs[1])]:
        with pytest.raises(ValueError, match="on_update: expected it to leave env alone"):
            run(use)


def test_callbacks_of_trainings_in_several_threads_are_each_held_to_their_own_environment():
    settings, methods = PPOConfig(rollout_steps=8, epochs=1, hidden=(4,)), (Corridor.reset, Corridor.step)
    began, begun, ended = (threading.Event() for _ in range(3))

    def first(*_):
        began.set()
        assert begun.wait(60)

    def run():
        ppo(Corridor(), LSTD(0.1), total_steps=8, seed=0, config=settings, on_update=first)
        ended.set()

    def second(*_):  # begins while the first lasts, and ends later
        begun.set()
        assert ended.wait(60)
        env.step(0)

    env, other = Corridor(), threading.Thread(target=run)
    other.start()
    assert began.wait(60)
    with pytest.raises(ValueError, match="on_update: expected it to leave env alone"):
        ppo(env, LSTD(0.1), total_steps=8, seed=0, config=settings, on_update=second)
    other.join()
    assert (Corridor.reset, Corridor.step) == methods


def test_a_callback_may_send_the_class_of_the_environment_to_workers():
    class Viewed(Corridor):
        def __init__(self):
            self.viewer = threading.Lock()  # which is no worker's

    sent = []
    settings = PPOConfig(rollout_steps=8, epochs=1, hidden=(4,))
    ppo(
        Viewed(),
        LSTD(0.1),
        total_steps=8,
        seed=0,
        config=settings,
        on_update=lambda *_: sent.append(cloudpickle.dumps(Viewed)),
    )
    assert cloudpickle.loads(sent[0])().reset()[0].tolist() == [0.0]


def test_differential_values_make_no_advantages():
    step = Episode([[0.0], [1.0], [2.0]], [1.0, 2.0], terminated=False)
    for use in (
        lambda evaluator: Critic(evaluator).assess(Context.from_episodes([step], 0.9)),
        lambda evaluator: cross_fitted_advantages([step, replace(step)], evaluator, gamma=0.9, lambda_=0.5, folds=2),
        lambda evaluator: policy_iteration(Experience([0], [0], [1.0], [0], 1, 1), evaluator, gamma=0.9),
    ):
        with pytest.raises(ValueError, match="evaluator: expected a discounted evaluator, got differential values"):
            use(AverageRewardTD(5))


def test_monte_carlo_is_refused_in_policy_iteration_inside_other_evaluators_too():
    """Transitions have no returns but single rewards, of which it makes a wrong policy in silence."""
    rng = np.random.default_rng(0)
    experience = FiniteMDP.random(4, 2, 0.9, rng).experience(20, rng)
    corrected = OffsetCorrected(MonteCarlo(Identity()))
    for evaluator in (corrected, AdaptiveTD([TabularTD(200), corrected])):
        with pytest.raises(TypeError, match="evaluator: expected one that bootstraps, got MonteCarlo"):
            policy_iteration(experience, evaluator, gamma=0.9)
    assert policy_iteration(experience, OffsetCorrected(TabularTD(200)), gamma=0.9).converged


def test_first_weights_of_an_actor_do_not_depend_on_the_number_of_threads():
    found, before = [], torch.get_num_threads()
    settings = PPOConfig(rollout_steps=8, epochs=1, hidden=(64, 64))
    for count in (1, 4):
        torch.set_num_threads(count)
        try:
            trained = ppo(gym.make("Pendulum-v1"), LSTD(1.0), total_steps=16, seed=0, config=settings)
        finally:
            torch.set_num_threads(before)
        found.append(torch.nn.utils.parameters_to_vector(trained.actor.parameters()))
    assert torch.equal(*found)
