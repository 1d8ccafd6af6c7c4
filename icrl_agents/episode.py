"""Episodes: what an environment did, from a reset to its end."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icrl_agents.arrays import floating
from icrl_agents.notices import warn
from icrl_envs import arguments


@dataclass(frozen=True, eq=False)
class Episode:
    """One trajectory S₀, R₁, S₁, …, R_T, S_T; arrays and lists are copied, so that a buffer may be filled anew.

    An episode that ended without terminating was truncated: its last transition bootstraps from S_T.
    Where an environment reports both, terminated wins.

    Args:
        observations: The states S₀ … S_T, shape ``(T+1, d)``; the last one is the true final observation.
        rewards: R₁ … R_T, shape ``(T,)``.
        terminated: Whether S_T is terminal, so that nothing follows it.
        actions: A₀ … A_{T−1}, shape ``(T, a)``, where they were kept. Evaluation does not read them.
    """

    observations: np.ndarray
    rewards: np.ndarray
    terminated: bool = False
    actions: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Copies arrays and lists; what is of another kind is for ``episode_arrays`` to refuse."""
        warn_of_one("observations", self.observations, (np.ndarray, Tensor, list), stacklevel=3)
        for name in ("observations", "rewards", "actions"):
            object.__setattr__(self, name, _copied(getattr(self, name)))

    def __len__(self) -> int:
        """Number of transitions T."""
        return len(self.rewards)


def warn_of_one(name: str, given: Any, kinds: tuple[type, ...], stacklevel: int) -> None:  # noqa: ANN401
    """Warns if what was ``given`` is a list that holds one object of these kinds, or views of one, again and again."""
    several = isinstance(given, Sequence) and len(given) > 1
    if several and isinstance(given[0], kinds) and len({_place(each) for each in given}) == 1:
        warn(
            f"{name}: one {type(given[0]).__name__}, {len(given)} times, as where an environment fills one anew at "
            "each step; append a copy of each.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


def _place(item: Any) -> int:  # noqa: ANN401 - whatever was given
    """Where the numbers of an array are that are all of some memory; of anything else, where it is itself."""
    if isinstance(item, np.ndarray) and (item.base is None or getattr(item.base, "nbytes", None) == item.nbytes):
        return item.__array_interface__["data"][0]
    if isinstance(item, Tensor) and item.layout == torch.strided and item.device.type != "meta":
        with contextlib.suppress(RuntimeError):  # of torch.func, whose tensors have no memory
            return item.data_ptr() if item.untyped_storage().nbytes() == item.nbytes else id(item)
    return id(item)


def _copied(given: Any) -> Any:  # noqa: ANN401 - whatever was given
    if isinstance(given, (list, tuple, deque)):
        return [_copied(each) for each in given]
    return given.clone() if isinstance(given, Tensor) else given.copy() if isinstance(given, np.ndarray) else given


def episode_arrays(index: int, episode: Episode) -> tuple[Tensor, Tensor]:
    """Observations ``(T+1, d)`` and float64 rewards ``(T,)`` of an episode, checked.

    Raises:
        TypeError: If the observations are not float32 or float64, or ``terminated`` is not a bool.
        ValueError: Naming the episode (and the step) if shapes disagree or something that would be read is not finite.
    """
    observations = floating(f"episode {index}, observations", episode.observations)
    rewards = floating(f"episode {index}, rewards", episode.rewards, integers=True).to(torch.float64)
    if not isinstance(episode.terminated, (bool, np.bool_)):
        raise TypeError(f"episode {index}: expected terminated to be True or False, got {episode.terminated!r}.")
    if observations.ndim != 2 or rewards.ndim != 1:
        raise ValueError(
            f"episode {index}: expected observations (T+1, d) and rewards (T,), "
            f"got {tuple(observations.shape)} and {tuple(rewards.shape)}."
        )
    if len(observations) != len(rewards) + 1:
        raise ValueError(
            f"episode {index}: expected one observation more than rewards (the final one included), "
            f"got {len(observations)} observations and {len(rewards)} rewards."
        )
    read = observations[:-1] if episode.terminated else observations
    for name, values in (("observation", read), ("reward", rewards[:, None])):
        bad = (~torch.isfinite(values)).any(-1).nonzero()
        if len(bad):
            step = int(bad[0])
            raise ValueError(f"episode {index}, step {step}: expected a finite {name}, got {values[step].tolist()}.")
    return observations, rewards


def episode_actions(index: int, episode: Episode) -> np.ndarray | None:
    """Actions ``(T, a)`` of an episode, checked; None where they were not kept.

    Raises:
        TypeError: If they are no real numbers.
        ValueError: Naming the episode (and the step) if there is not one row for each reward, or one is not finite.
    """
    if episode.actions is None:
        return None
    arguments.unmasked(f"episode {index}, actions", episode.actions)
    kept = episode.actions
    actions = np.asarray(kept.numpy(force=True) if isinstance(kept, Tensor) else kept)
    if actions.dtype.kind not in "biuf":
        raise TypeError(f"episode {index}, actions: expected real numbers, got {actions.dtype}.")
    if actions.ndim != 2:
        raise ValueError(f"episode {index}, actions: expected shape (T, a), got {actions.shape}.")
    if len(actions) != len(episode):
        raise ValueError(
            f"episode {index}: expected one action for each of its {len(episode)} rewards, got {len(actions)}."
        )
    bad = np.flatnonzero(~np.isfinite(actions).all(-1))
    if len(bad):
        raise ValueError(f"episode {index}, step {bad[0]}: expected a finite action, got {actions[bad[0]].tolist()}.")
    return actions
