"""One training run: PPO with one critic in one environment, evaluated along the way."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from icrl_agents.adaptive import AdaptiveTD
from icrl_agents.control.defaults import LENGTH_SCALE, NUM_SWEEPS, default_evaluator
from icrl_agents.control.features import quadratic_features
from icrl_agents.evaluators import LSTD, KernelTD, WeightedSoftmaxTD
from icrl_agents.integrations.sb3 import InContextPPO
from icrl_agents.kernels import RBF, Laplace
from icrl_agents.studies.control.config import EARLY, ENVIRONMENTS, EPISODES, EVALUATE_EVERY, Cell
from icrl_agents.value_function import DivergenceError, Evaluator

EVALUATION_SEED = 20_000_000
"""Of the starts on which policies are evaluated, which no training run has."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A policy along its training.

    Args:
        environment: Id.
        critic: Name.
        seed: Of the run.
        total_steps: Length of the run.
        step: Steps of the environment so far.
        mean_return: Of ``EPISODES`` episodes with deterministic actions.
        seconds: Processor time of the training so far, without evaluations: wall time on a core of its own.
    """

    environment: str
    critic: str
    seed: int
    total_steps: int
    step: int
    mean_return: float
    seconds: float


def train(cell: Cell, *, device: str = "cpu", pretrained: Evaluator | None = None) -> list[Row]:
    """Trains on a torch device and returns the evaluations, the first of them before any update.

    Args:
        cell: The run.
        device: Of the actor and the critic.
        pretrained: What the critic ``pretrained`` stands for.

    Raises:
        ValueError: If the critic diverges.
    """
    model = make_model(cell, device=device, pretrained=pretrained)
    evaluations = Evaluations(cell)
    try:
        model.learn(cell.steps, callback=evaluations)
    except DivergenceError as error:
        raise ValueError(f"critics: {cell.name} diverges; leave {cell.critic} out ({error}).") from error
    evaluations.evaluate()
    evaluations.env.close()
    return evaluations.rows


def make_model(cell: Cell, *, device: str = "cpu", pretrained: Evaluator | None = None) -> PPO:
    """PPO with the cell's critic, untrained, on a torch device; the arguments are those of ``train``."""
    place = ENVIRONMENTS[cell.environment]
    if cell.critic == "default":
        return PPO("MlpPolicy", make_vec_env(cell.environment, seed=cell.seed), seed=cell.seed, device=device)
    env = make_vec_env(cell.environment, n_envs=place.num_envs, seed=cell.seed)
    settings: dict[str, Any] = {**place.settings, "seed": cell.seed, "device": device}
    if cell.critic == "learned":
        return PPO("MlpPolicy", env, **settings)
    return InContextPPO("MlpPolicy", env, **settings, **critic_settings(cell.critic, pretrained))


def critic_settings(critic: str, pretrained: Evaluator | None = None) -> dict[str, Any]:
    """Arguments of ``InContextPPO`` for an in-context critic, the same in all environments.

    Raises:
        ValueError: If the critic is ``pretrained`` and none is given.
    """
    if critic == "pretrained":
        if pretrained is None:
            raise ValueError("pretrained: expected a transformer for the critic 'pretrained', got None.")
        return {"evaluator": pretrained}
    if critic == "softmax":
        return {"evaluator": default_evaluator()}
    if critic == "kernel":
        return {"evaluator": KernelTD(RBF(1.0), num_sweeps=200)}
    if critic == "adaptive":
        narrow = WeightedSoftmaxTD(Laplace(LENGTH_SCALE / 2), NUM_SWEEPS // 2)
        return {"evaluator": AdaptiveTD([default_evaluator(), narrow], (25, 50, NUM_SWEEPS), max_folds=3)}
    if critic == "lstd":
        return {"evaluator": LSTD(ridge=1e-3), "features": quadratic_features}
    return {"evaluator": WeightedSoftmaxTD(RBF(1.0), num_sweeps=0), "gae_lambda": 1.0}  # v = 0: returns as they are


class Evaluations(BaseCallback):
    """Evaluates the policy between rollouts, by deterministic actions from the same starts each time.

    Args:
        cell: The run.
    """

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        native = cell.environment.startswith("CartPole")
        mode = "vector_entry_point" if native else "sync"
        self.env = gym.make_vec(cell.environment, num_envs=EPISODES, vectorization_mode=mode)
        self.cell, self.rows, self._due = cell, [], 0
        self._spent, self._start = 0.0, time.process_time()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self._due:
            self.evaluate()
            self._due = self.num_timesteps + EVALUATE_EVERY * (1 if self.num_timesteps < EARLY else 4)

    def evaluate(self) -> None:
        """Adds a row."""
        begin = time.process_time()
        seconds = begin - self._start - self._spent
        returns = self._returns()
        self._spent += time.process_time() - begin
        self.rows.append(
            Row(
                environment=self.cell.environment,
                critic=self.cell.critic,
                seed=self.cell.seed,
                total_steps=self.cell.steps,
                step=self.num_timesteps,
                mean_return=float(returns.mean()),
                seconds=seconds,
            )
        )

    def _returns(self) -> np.ndarray:
        observations, _ = self.env.reset(seed=EVALUATION_SEED)
        returns, running = np.zeros(EPISODES), np.ones(EPISODES, dtype=bool)
        while running.any():
            actions, _ = self.model.predict(observations, deterministic=True)
            observations, rewards, terminated, truncated, _ = self.env.step(actions)
            returns += rewards * running
            running &= ~(terminated | truncated)
        return returns
