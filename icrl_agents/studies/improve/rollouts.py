"""Episodes of a policy in a MetaWorld domain, with what it did and whether it succeeded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from icrl_agents.control.improvement import AmplifiedPolicy, Trial
from icrl_agents.episode import Episode
from icrl_envs.metaworld.env import MetaWorldEnv
from icrl_envs.random_streams import policy_stream

FEATURES = np.array([0, 1, 2, 3, 4, 5, 6, 36, 37, 38])
"""What the critic sees of the full observation: hand, gripper, object, goal, as observation ``"core"``."""


@dataclass(frozen=True, eq=False)
class Rollout:
    """One episode.

    Args:
        observations: Full observations, ``(T+1, 39)``.
        actions: ``(T, 4)``.
        rewards: ``(T,)``.
        success: Whether the domain's success was reported at any step.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    success: bool


def rollouts(
    domain: str, policy: AmplifiedPolicy, *, split: str, task_seed: int, seed: int, episodes: int, steps: int
) -> list[Rollout]:
    """Runs a policy.

    Args:
        domain: MetaWorld domain.
        policy: Reads the full observation.
        split: ``"train"`` or ``"test"`` goals.
        task_seed: Of the goal set.
        seed: Of the goals drawn from it, and of the policy's noise.
        episodes: How many.
        steps: Length of each.
    """
    env = MetaWorldEnv(domain, observation="full", split=split, task_seed=task_seed)
    rng = policy_stream(seed)
    with contextlib.closing(env):
        return [_rollout(env, policy, seed if i == 0 else None, rng, steps) for i in range(episodes)]


def trials(policy: AmplifiedPolicy, done: list[Rollout]) -> Iterator[Trial]:
    """Yields the rollouts of ``policy`` as the improvement reads them."""
    for rollout in done:
        means = policy.means(rollout.observations[:-1])
        yield Trial(Episode(rollout.observations[:, FEATURES], rollout.rewards), means, rollout.actions - means)


def _rollout(
    env: MetaWorldEnv, policy: AmplifiedPolicy, seed: int | None, rng: np.random.Generator, steps: int
) -> Rollout:
    observations = [env.reset(seed=seed)[0]]
    actions, rewards, success = [], [], False
    for _ in range(steps):
        actions.append(policy(observations[-1], rng))
        observation, reward, _, _, info = env.step(actions[-1])
        observations.append(observation)
        rewards.append(reward)
        success = success or bool(info["success"])
    return Rollout(np.stack(observations), np.stack(actions), np.array(rewards), success)
