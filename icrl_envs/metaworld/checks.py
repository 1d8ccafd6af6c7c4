"""Checks of what crosses the boundary of the MetaWorld environments."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icrl_envs import arguments
from icrl_envs.metaworld.goals import GOALS_PER_SET, MAX_TASK_SEED
from icrl_envs.metaworld.snapshots import Snapshot

HORIZON = 500
"""The benchmark's episode length in steps, beyond which the library refuses to go."""


def reward_version(version: object) -> str:
    """Return the version of the rewards, ``"v1"`` or ``"v2"``.

    Raises:
        TypeError: If it is not a string.
        ValueError: If there is no such version.
    """
    if version == "v3":
        raise ValueError(
            "reward_version must be 'v2' or 'v1'; got 'v3'. The library has no rewards of that version: it silently "
            "computes v1 in 49 domains and fails in assembly-v3. The v3 in a domain's name goes with rewards v2."
        )
    return arguments.choice("reward_version", version, ("v2", "v1"))


def task_seed(seed: object) -> int:
    """Return the seed of a goal set.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is negative or above 2³² − 2, as the benchmark's generator takes seeds of 32 bits.
    """
    return arguments.integer("task_seed", seed, 0, MAX_TASK_SEED)


def max_episode_steps(steps: object) -> int:
    """Return the number of steps after which an episode is truncated, at most 500.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is outside ``[1, 500]``.
    """
    try:
        return arguments.integer("max_episode_steps", steps, 1, HORIZON)
    except ValueError as error:
        raise ValueError(f"{error} MetaWorld's rewards and policies are made for {HORIZON} steps.") from None


def render_mode(mode: object, modes: list[str]) -> str | None:
    """Return the render mode, or None where there is none.

    Raises:
        TypeError: If it is neither a string nor None.
        ValueError: If there is no such mode.
    """
    return None if mode is None else arguments.choice("render_mode", mode, modes)


def reset_options(options: object, split: str) -> tuple[int | None, int | None]:
    """Return the ``task_seed`` and the ``goal_index`` of ``reset(options=...)``, each None where it is not given.

    Raises:
        TypeError: If the options are not a dictionary or a value is not an integer.
        ValueError: If a key is unknown, a value is out of range, or there is no goal set to choose from.
    """
    if options is None:
        return None, None
    if not isinstance(options, dict):
        raise TypeError(f"options must be a dictionary or None; got {options!r}.")
    for key in options:
        arguments.choice("the key of options", key, ("task_seed", "goal_index"))
        if split == "all":
            raise ValueError(
                f"options must not have {key!r} where split='all', which draws a new goal at each reset: "
                "make the environment with split='train' or 'test' to choose from a goal set."
            )
    seed, index = options.get("task_seed"), options.get("goal_index")
    return (
        None if seed is None else task_seed(seed),
        None if index is None else arguments.integer("goal_index", index, 0, GOALS_PER_SET - 1),
    )


def action(value: ArrayLike) -> NDArray[Any]:
    """Return an action ``(4,)`` in [−1, 1] in float32 or float64, as it came; any other dtype becomes float64.

    The library computes in the dtype of an action: it would round in float16, and take 255 for −1 in uint8.

    Raises:
        TypeError: If it does not hold real numbers.
        ValueError: If it has another shape, or an entry is not finite or out of bounds.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"action must be an array of real numbers; got a masked array, {value!r}.")
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"action must be an array of real numbers; got {value!r}.")
    array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
    if array.shape != (4,) or not (np.abs(array) <= 1.0).all():  # NaN compares false
        raise ValueError(
            f"action must have shape (4,) and finite entries in [-1, 1]; got {value!r}. "
            "gymnasium.wrappers.ClipAction clips the actions of a policy that exceeds its bounds."
        )
    return array


def snapshot(value: object, domain: str, version: str, streams: tuple[str, ...]) -> Snapshot:
    """Return a snapshot that fits a domain, a reward version and the random streams to restore.

    Raises:
        TypeError: If it is not a snapshot.
        ValueError: If it belongs to another domain or reward version, or lacks a stream.
    """
    if not isinstance(value, Snapshot):
        raise TypeError(f"snapshot must come from get_state(); got an object of type {type(value).__name__}.")
    if (value.domain, value.reward_version) != (domain, version):
        raise ValueError(
            f"snapshot must belong to {domain!r} with rewards {version!r}, like the environment; "
            f"got one of {value.domain!r} with rewards {value.reward_version!r}."
        )
    if not value.streams.keys() >= set(streams):
        raise ValueError(
            "snapshot has no stream of the policy's noise, as it comes from an environment for control: "
            "call set_state(snapshot, seed=...) to begin one."
        )
    return value
