"""What the claims are checked on: trajectories of every kind of environment, and random finite chains."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch

import icrl_envs  # noqa: F401 - registers the environments
from icrl_agents.collection import collect_episodes
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.studies.verify.plain import Transitions

GAMMA = 0.9
LENGTHS = {"one trajectory": (24,), "several episodes": (9, 1, 13, 6)}
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "icrl/BoyanChain-v0": {"num_states": 6},
    "icrl/LoopChain-v0": {"features": "random"},
    "icrl/RKHS-v0": {"dim": 2},
    "icrl/CartPole-v0": {},
    "icrl/MetaWorldMRP-v0": {},
}


class Sample(NamedTuple):
    """Episodes of one environment, as a context and as plain arrays, and states that are not in them, ``(m, d)``."""

    name: str
    context: Context
    transitions: Transitions
    queries: np.ndarray


@cache
def samples(seed: int, device: str, *, continuing: bool = False) -> tuple[Sample, ...]:
    """One sample per environment and form of context; CartPole's several episodes end in their terminations.

    Args:
        seed: Of tasks and trajectories.
        device: Of the contexts.
        continuing: Whether to leave the terminating ones out.
    """
    found = []
    for name, settings in ENVIRONMENTS.items():
        env = gym.make(name, task_seed=seed, **settings)
        cut = None if name == "icrl/CartPole-v0" else max(map(max, LENGTHS.values()))
        episodes = collect_episodes(env, num_episodes=5, seed=seed, max_episode_steps=cut)
        env.close()
        for form, lengths in LENGTHS.items():
            parts = [
                _part(episode, n, end=form != "one trajectory") for episode, n in zip(episodes, lengths, strict=False)
            ]
            if not (continuing and any(part.terminated for part in parts)):
                found.append(_sample(f"{name}, {form}", parts, episodes[-1].observations[:4], device))
    return tuple(found)


def _part(episode: Episode, length: int, *, end: bool) -> Episode:
    """The last ``length`` steps of an episode that terminates, the first ones of any other."""
    if end and episode.terminated:
        return Episode(episode.observations[-length - 1 :], episode.rewards[-length:], terminated=True)
    length = min(length, len(episode) - episode.terminated)
    return Episode(episode.observations[: length + 1], episode.rewards[:length])


def _sample(name: str, episodes: list[Episode], queries: np.ndarray, device: str) -> Sample:
    context = Context.from_episodes(episodes, GAMMA).to(device)
    return Sample(name, context, Transitions.of(episodes, GAMMA), queries)


def largest_error(found: torch.Tensor | np.ndarray, expected: torch.Tensor | np.ndarray) -> float:
    """The largest |found − expected| relative to max(1, |expected|); infinite where the shapes differ."""
    a, b = (x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else np.asarray(x) for x in (found, expected))
    return float((np.abs(a - b) / np.maximum(np.abs(b), 1.0)).max()) if a.shape == b.shape else float("inf")
