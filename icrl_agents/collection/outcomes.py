"""What environments return from a step, checked: rewards, flags and final observations of their copies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from icrl_agents.arrays import float_rows
from icrl_envs import arguments

RESET, STEP = ("observation", "info"), ("observation", "reward", "terminated", "truncated", "info")
"""What Gymnasium's environments return."""


class Step(NamedTuple):
    """What one step of N copies gave.

    Args:
        observations: What each copy observes now, the first of a new episode where it has already restarted.
        next_observations: What each transition led to, the true final observation at the end of an episode.
        rewards: R as float64, shape ``(N,)``; NaN and inf are for the reader to refuse, who knows the step.
        terminated: Whether each episode terminated, booleans ``(N,)``.
        truncated: Whether each episode was cut, booleans ``(N,)``.
    """

    observations: Sequence[Any]
    next_observations: Sequence[Any]
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


FINAL = ("terminal_observation", "final_observation", "final_obs")
"""Names in ``info`` of the final observation of a copy that has restarted, Stable-Baselines3's and older ones first."""


def detached(given: Any) -> Any:  # noqa: ANN401 - of any environment
    """What an environment gave, where it is a tensor without its gradient, whose history would be kept along."""
    return given.detach() if isinstance(given, torch.Tensor) else given


def array_of(name: str, given: Any) -> np.ndarray:  # noqa: ANN401 - of any environment
    """A new array of what an environment gave, bfloat16 as float32; TypeError if it is masked."""
    arguments.unmasked(f"env: {name}", given)
    if isinstance(given, torch.Tensor):
        given = detached(given).to("cpu", torch.float32 if given.dtype == torch.bfloat16 else given.dtype).numpy()
    return np.array(given)


def rewards_of(given: Any, count: int) -> np.ndarray:  # noqa: ANN401 - checked here
    """Rewards of ``count`` copies as float64 ``(count,)``; ValueError if they are not as many real numbers."""
    array = array_of("rewards", given)
    if array.dtype.kind not in "biuf" or array.size != count:
        expected = "a reward that is one real number" if count == 1 else f"{count} rewards, real numbers"
        raise ValueError(f"env: expected {expected}, got {given!r}.")
    return float_rows("rewards", array).astype(np.float64).reshape(count)


def flags_of(terminated: Any, truncated: Any, count: int) -> list[np.ndarray]:  # noqa: ANN401 - checked here
    """Both flags of ``count`` copies as booleans ``(count,)``; ValueError if one is neither true nor false."""
    checked = []
    for name, given in (("terminated", terminated), ("truncated", truncated)):
        array = array_of(name, given)
        known = array.dtype == bool or (array.dtype.kind in "iuf" and ((array == 0) | (array == 1)).all())
        if not known or array.size != count:
            expected = "True or False" if count == 1 else f"{count} flags that are True or False"
            raise ValueError(f"env: expected {name} to be {expected}, got {given!r}.")
        checked.append(array.astype(bool).reshape(count))
    return checked


def single_step(given: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, Any]:  # noqa: ANN401 - checked here
    """Observation, reward and both flags, ``(1,)`` each, and info of what ``step`` of one environment gave.

    Raises:
        ValueError: If it is anything else, or a time limit counts as a termination.
    """
    observation, reward, terminated, truncated, info = arguments.returned("step", given, *STEP)
    terminated, truncated = flags_of(terminated, truncated, 1)
    check_cuts(truncated, info)
    return observation, rewards_of(reward, 1), terminated, truncated, info


def equal(one: Any, other: Any) -> bool:  # noqa: ANN401 - of any space
    """Whether two observations are equal, NaN to NaN."""
    if isinstance(one, dict):
        return all(equal(part, other[key]) for key, part in one.items())
    if isinstance(one, tuple):
        return all(equal(*parts) for parts in zip(one, other, strict=True))
    return np.array_equal(one, other) or np.array_equal(one, other, equal_nan=True)


def finals_of(ended: Sequence[int], info: Any, names: Sequence[str] = FINAL) -> dict[int, Any]:  # noqa: ANN401
    """The final observations of copies that have ended, as far as ``info`` has them, by the last of ``names``."""
    found = {}
    for i, name in itertools.product(ended, names):
        listed = isinstance(info, list)  # one for each copy, by gymnasium.wrappers.vector.DictInfoToList
        given = info[i] if listed else info
        final = (given[name] if listed else given[name][i]) if name in given else None
        if final is not None:
            found[i] = final
    return found


def typed(observation: Any, like: Any) -> Any:  # noqa: ANN401 - of one space
    """An observation, its numbers in the type in which those of ``like`` come where that is one of floats."""
    if isinstance(like, dict):
        return {key: typed(observation[key], part) for key, part in like.items()}
    if isinstance(like, tuple):
        return tuple(typed(*parts) for parts in zip(observation, like, strict=True))
    dtype, number = np.asarray(like).dtype, np.asarray(observation).dtype.kind in "biuf"
    return np.asanyarray(observation, dtype) if dtype.kind == "f" and number else observation


def check_not_restarted(observation: Any, info: Any) -> None:  # noqa: ANN401 - of any environment
    """Raises ValueError if ``info`` has another final observation than the one at an episode's end, as large."""
    final = finals_of([0], [info]).get(0) if isinstance(info, dict) else None
    if final is not None and _alike(final, observation) and not equal(typed(final, observation), observation):
        name = next(name for name in FINAL[::-1] if info.get(name) is not None)
        raise ValueError(
            f"env: expected step to return the final observation of an episode, got another one than info[{name!r}], "
            "as where a wrapper restarts the environment in the same step: take that wrapper off, since reset is "
            "called where an episode ends; or let that entry of info have another name."
        )


def _alike(one: Any, other: Any) -> bool:  # noqa: ANN401 - of any space
    """Whether two observations have one form."""
    if isinstance(other, dict):
        return isinstance(one, dict) and one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(other, tuple):
        return isinstance(one, tuple) and len(one) == len(other) and all(map(_alike, one, other))
    return not isinstance(one, (dict, tuple)) and np.shape(one) == np.shape(other)


def check_cuts(truncated: np.ndarray, info: Any) -> None:  # noqa: ANN401 - of any environment
    """Raises ValueError if ``info`` says, as gym did, that time ran out in a copy that is not ``truncated (N,)``."""
    cut = info.get("TimeLimit.truncated") if isinstance(info, dict) else None
    if cut is not None and bool((np.asarray(cut, dtype=bool) & ~truncated).any()):
        raise ValueError(
            "env: expected truncated to be True where info['TimeLimit.truncated'] is, got False: the time limit would "
            "count as a termination, as where the flag done of an older environment is taken for it; return "
            "terminated = done and not info['TimeLimit.truncated'], and truncated = info['TimeLimit.truncated']."
        )
