"""One cell of the study: a domain and a seed, each way to get advantages, before and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from icrl_agents import constructions, kernels
from icrl_agents.control.improvement import (
    AmplifiedPolicy,
    cross_fitted_advantages,
    gain_scores,
    gain_step,
    return_advantages,
)
from icrl_agents.episode import Episode
from icrl_agents.studies.improve.config import MOST_ROUNDS, ImproveConfig
from icrl_agents.studies.improve.rollouts import Rollout, rollouts, trials
from icrl_agents.value_function import DivergenceError
from icrl_envs.metaworld.policies import scripted_policy

Advantages = Callable[[list[Episode]], list[np.ndarray]]
SCRIPT, CRITIC, RETURNS, SHUFFLED = "script", "critic", "returns", "shuffled"
TEST_STREAM = MOST_ROUNDS


@dataclass(frozen=True)
class Cell:
    """What is improved.

    Args:
        domain: MetaWorld domain.
        seed: Of the goals and of the noise.
    """

    domain: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """A policy on goals of the test split.

    Args:
        domain: MetaWorld domain.
        seed: Of the cell.
        policy: ``"script"``, or where the advantages that improved it came from.
        sigma: Noise σ under which it was evaluated.
        success: Share of successful episodes.
        reward: Mean reward per step.
        gain_x: Gain of the first dimension of the action, the displacement in x.
        gain_y: The same in y.
        gain_z: The same in z.
        gain_gripper: Gain of the gripper's force.
    """

    domain: str
    seed: int
    policy: str
    sigma: float
    success: float
    reward: float
    gain_x: float
    gain_y: float
    gain_z: float
    gain_gripper: float


def rows_of(config: ImproveConfig, cell: Cell) -> list[Row]:
    """Improves the script in each way; evaluates it and all that came out, and two of them without noise.

    Raises:
        ValueError: If the critic diverges.
    """
    script = AmplifiedPolicy(scripted_policy(cell.domain), np.zeros(4), config.sigma)
    first = _collect(config, cell, script, 0)
    policies = {SCRIPT: script}
    for name, advantages in _ways(config, cell).items():
        policies[name] = _improved(config, cell, script, first, advantages)
    rows = [_evaluated(config, cell, name, policy) for name, policy in policies.items()]
    for name in (SCRIPT, CRITIC):
        quiet = AmplifiedPolicy(script.scripted, policies[name].log_gains, 0.0)
        rows.append(_evaluated(config, cell, name, quiet))
    return rows


def _ways(config: ImproveConfig, cell: Cell) -> dict[str, Advantages]:
    critic = constructions.weighted_softmax_td(kernels.Laplace(config.length_scale), config.depth)
    rng = np.random.default_rng([cell.seed, 2])

    def criticised(episodes: list[Episode]) -> list[np.ndarray]:
        settings = {"gamma": config.gamma, "lambda_": config.gae_lambda, "folds": config.folds}
        try:
            return cross_fitted_advantages(episodes, critic, **settings, device=config.device)
        except DivergenceError as error:
            raise ValueError(
                f"depth: in {cell.domain}, seed {cell.seed}, the critic diverges; take fewer layers ({error})."
            ) from error

    def shuffled(episodes: list[Episode]) -> list[np.ndarray]:
        advantages = criticised(episodes)
        ends = np.cumsum([len(a) for a in advantages])[:-1]
        return np.split(rng.permutation(np.concatenate(advantages)), ends)

    return {CRITIC: criticised, RETURNS: lambda episodes: return_advantages(episodes, config.gamma), SHUFFLED: shuffled}


def _improved(
    config: ImproveConfig, cell: Cell, policy: AmplifiedPolicy, done: list[Rollout], advantages: Advantages
) -> AmplifiedPolicy:
    for index in range(1, config.rounds + 1):
        tried = list(trials(policy, done))
        scores = gain_scores(tried, advantages([trial.episode for trial in tried]))
        step = gain_step(scores, largest=config.largest_factor, caution=config.caution)
        policy = AmplifiedPolicy(policy.scripted, policy.log_gains + step, policy.noise)
        done = _collect(config, cell, policy, index) if index < config.rounds else []
    return policy


def _collect(config: ImproveConfig, cell: Cell, policy: AmplifiedPolicy, stream: int) -> list[Rollout]:
    """Episodes with goals of the training split, or of the test split in the stream that is kept for evaluation."""
    test = stream == TEST_STREAM
    return rollouts(
        cell.domain,
        policy,
        split="test" if test else "train",
        task_seed=cell.seed,
        seed=int(np.random.SeedSequence([cell.seed, stream]).generate_state(1)[0]),
        episodes=config.test_episodes if test else config.episodes,
        steps=config.steps,
    )


def _evaluated(config: ImproveConfig, cell: Cell, name: str, policy: AmplifiedPolicy) -> Row:
    """The policy on the same goals and the same noise as every other."""
    done = _collect(config, cell, policy, TEST_STREAM)
    gains = dict(zip(("gain_x", "gain_y", "gain_z", "gain_gripper"), np.exp(policy.log_gains).tolist(), strict=True))
    return Row(
        domain=cell.domain,
        seed=cell.seed,
        policy=name,
        sigma=policy.noise,
        success=float(np.mean([rollout.success for rollout in done])),
        reward=float(np.mean([rollout.rewards.mean() for rollout in done])),
        **gains,
    )
