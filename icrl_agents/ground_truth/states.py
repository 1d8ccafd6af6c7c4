"""Environments whose state can be taken and given back, and states along their episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces, wrappers

from icrl_agents.collection.outcomes import RESET, single_step
from icrl_agents.collection.recorder import flattening
from icrl_agents.collection.seeds import held_streams, warn_of_unseeded_draws
from icrl_agents.global_streams import global_streams, warn_of_global_draws
from icrl_envs import arguments
from icrl_envs.metaworld.limits import EpisodeLimit

PASSIVE = (
    wrappers.TimeLimit,
    wrappers.OrderEnforcing,
    wrappers.PassiveEnvChecker,
    wrappers.RecordEpisodeStatistics,
    wrappers.RecordVideo,
    EpisodeLimit,
)
"""Wrappers that leave observations and rewards as they are."""


class Restorable(Protocol):
    """A Markov reward process as a Gymnasium environment, with exact snapshots; its one action is 0."""

    observation_space: spaces.Space[Any]

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        ...

    def step(self, action: int, /) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Moves one step on."""
        ...

    def get_state(self) -> Any:  # noqa: ANN401 - of the environment's own kind
        """Returns a snapshot."""
        ...

    def set_state(self, snapshot: Any, /, *, seed: int | None = None) -> Any:  # noqa: ANN401
        """Goes back to a snapshot, with random streams of their own by ``seed``, and returns its observation."""
        ...


def restorable(env: gym.Env[Any, Any]) -> Restorable:
    """Returns the environment below its wrappers, whose time limits do not belong to the process.

    Raises:
        TypeError: If it is no environment, or has no ``get_state`` and ``set_state``.
        ValueError: If it has another action space than ``Discrete(1)``, or a wrapper that may change observations or
            rewards, which would not be seen.
    """
    if not isinstance(env, gym.Env):
        raise TypeError(f"env: expected a gymnasium.Env, got {type(env).__name__}.")
    inner = env.unwrapped
    if not (hasattr(inner, "get_state") and hasattr(inner, "set_state")):
        raise TypeError(
            "env: expected an environment with get_state() and set_state(snapshot, seed=...), such as "
            f"icrl/MetaWorldMRP-v0 or icrl/BoyanChain-v0, got {type(inner).__name__}."
        )
    if not (isinstance(inner.action_space, spaces.Discrete) and inner.action_space.n == 1):
        raise ValueError(
            f"env: expected a Markov reward process, with action space Discrete(1), got {inner.action_space}."
        )
    while isinstance(env, gym.Wrapper):
        if not any(_is_as_passive(type(env), each) for each in PASSIVE):
            raise ValueError(
                f"env: expected none but passive wrappers, got {type(env).__name__}, which may change observations or "
                "rewards; take it off, or make it a part of the environment."
            )
        env = env.env
    return cast(Restorable, inner)


def _is_as_passive(kind: type, passive: type) -> bool:
    """Whether a class is ``passive``, or one of it that steps and resets as it does."""
    return issubclass(kind, passive) and all(
        getattr(kind, name) is getattr(passive, name) for name in ("step", "reset")
    )


def states_along(
    env: gym.Env[Any, Any], *, episodes: int, states_per_episode: int, steps: int, seed: int, before: int | None = None
) -> list[Any]:
    """Returns snapshots of states at random times, in order: one from each of equal stretches of every episode.

    No time comes twice: where two neighbours fall into one step, on the edge of their stretches, the later moves on.

    The episodes are those that ``collect_episodes`` makes of ``env.unwrapped``, below any time limit, with
    ``num_episodes=episodes, max_episode_steps=steps, seed=seed``.

    It is left in the first of them.

    Args:
        env: See ``Restorable``.
        episodes: How many.
        states_per_episode: How many from each.
        steps: Length of an episode.
        seed: Of the episodes and of the times.
        before: Times are below it; it is at least ``states_per_episode``. Default ``steps``.

    Raises:
        TypeError: If the environment cannot be restored, or its observations cannot be flattened as by ``collect``.
        ValueError: If a number is out of range, observations are pixels, an episode ended before one of the times, or
            later steps have written into a snapshot.
    """
    process, seed = restorable(env), arguments.integer("seed", seed, 0)
    row = flattening(process.observation_space)
    rng = np.random.default_rng([seed, 1])
    count = arguments.integer("states_per_episode", states_per_episode, 1)
    steps = arguments.integer("steps", steps, count)
    edges = np.linspace(0, steps if before is None else arguments.integer("before", before, count, steps), count + 1)
    order, snapshots, first = np.arange(count), list[Any](), None
    streams, held = global_streams(), held_streams(env)
    for index in range(arguments.integer("episodes", episodes, 1)):
        observation, _ = arguments.returned("reset", process.reset(seed=seed if index == 0 else None), *RESET)
        drawn = rng.uniform(edges[:-1], edges[1:]).astype(int)
        times = np.maximum.accumulate(drawn - order) + order  # each after the one before
        for time in range(steps):
            if time in times:
                first = row(observation) if first is None else first
                snapshots.append(process.get_state())
            observation, _, terminated, truncated, _ = single_step(process.step(0))
            if terminated or truncated:
                if time < times[-1]:
                    raise ValueError(
                        f"steps: expected at most the length of episodes, got {steps}; one had {time + 1}."
                    )
                break
    check_kept(row(restored(process, snapshots[0])), first)
    warn_of_global_draws(streams, seed, stacklevel=2)
    warn_of_unseeded_draws(env, held, seed, stacklevel=2)
    return snapshots


def restored(process: Restorable, snapshot: Any, *, seed: int | None = None) -> Any:  # noqa: ANN401 - of any space
    """Goes back to a snapshot and returns its observation; ValueError if ``set_state`` returns none, or a pair."""
    observation = process.set_state(snapshot, seed=seed)
    pair = isinstance(observation, tuple) and not isinstance(process.observation_space, spaces.Tuple)
    if observation is None or pair:
        raise ValueError(
            "env: expected set_state(snapshot, seed=...) to go back to a snapshot and to return its observation, got "
            f"{observation!r}."
        )
    return observation


def check_kept(observation: np.ndarray, before: Any) -> None:  # noqa: ANN401 - another row
    """Raises ValueError if a snapshot shows another observation ``(d,)`` than ``before``."""
    if not np.allclose(observation, before, rtol=1e-6, atol=0.0, equal_nan=True):
        raise ValueError(
            "env: expected a snapshot to show what its state showed before; steps have written into it. Let get_state "
            "return a copy, and set_state go on from another copy."
        )


def observed(env: gym.Env[Any, Any], snapshots: Sequence[Any]) -> np.ndarray:
    """Returns what ``env`` shows of snapshots, ``(m, d)``; it may show more or less than the one that took them.

    Observations are flattened as by ``collect``, discrete ones one-hot, but float64 throughout.

    It is left in the last of them, its random streams seeded with 0: reset it with a seed before another use.

    Raises:
        TypeError: If the environment cannot be restored, observations cannot be flattened, or ``snapshots`` are no
            list.
        ValueError: If there are none, observations are pixels, or one does not fit the environment.
    """
    process = restorable(env)
    if not isinstance(snapshots, Sequence) or isinstance(snapshots, str):
        raise TypeError(f"snapshots: expected a list, from states_along, got {type(snapshots).__name__}.")
    if len(snapshots) == 0:
        raise ValueError("snapshots: expected at least one, got none.")
    row = flattening(process.observation_space)
    return np.stack([row(restored(process, snapshot, seed=0)) for snapshot in snapshots]).astype(np.float64)
