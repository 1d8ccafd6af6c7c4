"""Rollouts of an actor in the copies of an environment, going on where the last one stopped."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from icrl_agents.collection.copies import OneCopy, VectorCopies
from icrl_agents.collection.recorder import beyond_single, flattening
from icrl_agents.context import Context
from icrl_agents.control.actor import Actor
from icrl_agents.control.rollout import Rollout


class EpisodeEnd(NamedTuple):
    """The end of an episode.

    Args:
        step: Steps of the environment so far, over all copies.
        undiscounted_return: Sum of the episode's rewards.
    """

    step: int
    undiscounted_return: float


class Batch(NamedTuple):
    """The n transitions of a rollout, those of copy 0 first.

    Args:
        context: States, rewards, discounts and next states.
        actions: What the actor did, ``(n,)`` or ``(n, k)``.
        log_probs: Log π of it, ``(n,)``.
    """

    context: Context
    actions: Tensor
    log_probs: Tensor


class Collector:
    """Steps N copies, in any autoreset mode; restarts are no transitions.

    Args:
        copies: Single or vector environment.
        seed: Of the environment.
    """

    def __init__(self, copies: OneCopy | VectorCopies, seed: int) -> None:
        self._copies = copies
        space = copies.observation_space
        self._row = flattening(space)
        # In double precision, an offset is left to be taken away by the critic; the actor is float32 in any case.
        self._type = np.float64 if beyond_single(space) else np.float32
        self._states = self._flat(copies.reset(seed))
        self._running = np.ones(copies.num_envs, dtype=bool)
        self._returns = np.zeros(copies.num_envs)
        self.steps = 0
        self.episodes: list[EpisodeEnd] = []

    def collect(self, actor: Actor, num_steps: int, gamma: float, generator: torch.Generator) -> Batch:
        """Returns what ``actor`` does in ``num_steps`` steps of each copy.

        Raises:
            ValueError: If an observation that the actor is to act on, or a reward, is not finite.
        """
        rollout, chosen = Rollout(self._copies.num_envs), []
        for _ in range(num_steps):
            if self._copies.autoreset_mode is AutoresetMode.DISABLED and not self._running.all():
                self._states = self._flat(self._copies.restart(~self._running))
                self._running[:] = True
            actions, log_probs = actor.sample(self._acted_on(), generator)
            chosen.append((actions, log_probs))
            self._step(rollout, actor, actions)
        valid = rollout.valid
        actions, log_probs = (torch.stack(parts, dim=1)[valid] for parts in zip(*chosen, strict=True))
        return Batch(rollout.context(gamma), actions, log_probs)

    def _step(self, rollout: Rollout, actor: Actor, actions: Tensor) -> None:
        step = self._copies.step(actor.fitting(actions))
        terminated, truncated = np.array(step.terminated, dtype=bool), np.array(step.truncated, dtype=bool)
        valid = self._running.copy()
        rewards = self._finite(step.rewards)
        rollout.add(self._states, rewards, self._flat(step.next_observations), terminated, truncated, valid)
        self.steps += int(valid.sum())
        self._returns += np.where(valid, rewards, 0.0)
        ended = valid & (terminated | truncated)
        for total in self._returns[ended].tolist():
            self.episodes.append(EpisodeEnd(self.steps, total))
        self._returns[ended] = 0.0
        if self._copies.autoreset_mode is not AutoresetMode.SAME_STEP:
            self._running = ~ended
        self._states = self._flat(step.observations)

    def _finite(self, rewards: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            wrong = np.flatnonzero(self._running & ~np.isfinite(rewards.astype(np.float32)))
        if len(wrong):
            raise ValueError(
                f"env: expected rewards that are finite as float32, got {rewards[wrong[0]]} in copy {wrong[0]} after "
                f"{self.steps} steps; mend or scale them, for instance with gymnasium.wrappers.TransformReward."
            )
        return rewards

    def _acted_on(self) -> Tensor:
        """The states, those of copies that are about to restart 0: what they do is not heeded, whatever was last seen.

        Raises:
            ValueError: If another one is not finite.
        """
        running = torch.from_numpy(self._running)
        wrong = (running & ~torch.isfinite(self._states.float()).all(-1)).nonzero()[:, 0].tolist()
        if wrong:
            raise ValueError(
                f"env: expected observations that are finite as float32, got {self._states[wrong[0]].tolist()} in copy "
                f"{wrong[0]} after {self.steps} steps; mend or clip them, for instance with "
                "gymnasium.wrappers.TransformObservation."
            )
        return self._states.masked_fill(~running[:, None], 0.0)

    def _flat(self, observations: object) -> Tensor:
        rows = [self._row(observation) for observation in observations]  # type: ignore[attr-defined]
        return torch.from_numpy(np.stack(rows).astype(self._type))
