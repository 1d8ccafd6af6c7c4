"""Episodes in an npz file, which NumPy alone can read and write.

The file holds ``observations (N + E, d)`` and ``rewards (N,)`` of E episodes with N transitions in all, one after the
other; ``lengths (E,)``, their numbers of transitions; ``terminated (E,)``; where actions were kept,
``actions (N, a)``; and ``about``, a string. Nothing in it is ever unpickled.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from icrl_agents.arrays import check_list, float_rows
from icrl_agents.episode import Episode, episode_actions, episode_arrays
from icrl_agents.files import DAMAGE, at_home, create_atomically, write_atomically

_NEEDED = {"observations": 2, "rewards": 1, "lengths": 1, "terminated": 1}
_OTHERS = ("actions", "about")


def save_episodes(path: str | Path, episodes: Sequence[Episode], about: str = "", *, replace: bool = True) -> None:
    """Writes episodes as an npz file, whole or not at all.

    Args:
        path: The file.
        episodes: At least one; of one observation dimension, all with actions or all without.
        about: What they are, for whoever reads the file.
        replace: Whether a file that exists is replaced.

    Raises:
        FileExistsError: If there is one that is not to be replaced; it is left as it is.
        TypeError: If something is not an Episode, or an array of another type than numbers.
        ValueError: If the episodes do not fit together, or arrays do not; the message names the episode.
        OSError: If the file cannot be written.
    """
    check_list("episodes", episodes, Episode)
    if not isinstance(about, str):
        raise TypeError(f"about: expected a string, got {type(about).__name__}.")
    columns = []
    for i, episode in enumerate(episodes):
        columns.append((*episode_arrays(i, episode), episode_actions(i, episode)))
        expected, got = _shape(episodes[0]), _shape(episode)
        if got != expected:
            raise ValueError(f"episode {i}: expected (d, a) = {expected} as in episode 0, got {got}.")
    arrays = {
        "observations": np.concatenate([observations.numpy(force=True) for observations, _, _ in columns]),
        "rewards": np.concatenate([rewards.numpy(force=True) for _, rewards, _ in columns]),
        "lengths": np.array([len(episode) for episode in episodes]),
        "terminated": np.array([bool(episode.terminated) for episode in episodes]),
        "about": np.array(about),
    }
    if episodes[0].actions is not None:
        arrays["actions"] = np.concatenate([actions for _, _, actions in columns])
        if arrays["actions"].dtype.kind == "f":  # integers of other episodes have become fractions
            for i, (_, _, actions) in enumerate(columns):
                float_rows(f"episode {i}, actions", cast(np.ndarray, actions))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write = write_atomically if replace else create_atomically
    write(at_home(path), buffer.getvalue())


def load_episodes(path: str | Path) -> list[Episode]:
    """Reads what ``save_episodes`` wrote, or any npz file of the same arrays.

    Args:
        path: The file.

    Raises:
        OSError: If it cannot be read.
        TypeError: If an array is of another type than numbers.
        ValueError: If it is no such file: damaged, with arrays missing or of other names, or with shapes that disagree.
    """
    try:
        with at_home(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in (*_NEEDED, "actions") if name in archive.files}
            unknown = sorted(set(archive.files) - {*_NEEDED, *_OTHERS})
            _check_number(file, len(archive.files))
    except DAMAGE as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        pickled = "pickle" in str(error)
        cause = "it is of another kind, or holds pickled objects, which are never loaded" if pickled else error
        raise ValueError(f"{path}: is no npz file of episodes, or damaged ({cause}).") from None
    _check(path, arrays)
    if unknown:
        known = ", ".join((*_NEEDED, *_OTHERS))
        raise ValueError(f"{path}: expected no arrays but {known}, got {', '.join(map(repr, unknown))}.")
    ends = np.cumsum(arrays["lengths"])
    episodes = []
    for i, (end, length) in enumerate(zip(ends.tolist(), arrays["lengths"].tolist(), strict=True)):
        start = end - length
        actions = arrays["actions"][start:end] if "actions" in arrays else None
        observations, rewards = arrays["observations"][start + i : end + i + 1], arrays["rewards"][start:end]
        episodes.append(Episode(observations, rewards, bool(arrays["terminated"][i]), actions))
        episode_arrays(i, episodes[-1])
        episode_actions(i, episodes[-1])
    return episodes


def _shape(episode: Episode) -> tuple[int, int | None]:
    """Dimensions of the observations and of the actions."""
    actions = None if episode.actions is None else np.shape(episode.actions)[-1]
    return np.shape(episode.observations)[-1], actions


def _check_number(file: BinaryIO, found: int) -> None:
    """Raises ValueError if the archive says, in its last 22 bytes, that it has another number of arrays."""
    file.seek(-22, io.SEEK_END)
    end = file.read()
    if end.startswith(b"PK\5\6") and found != int.from_bytes(end[10:12], "little"):
        raise ValueError("its table of contents has lost an array")


def _check(path: str | Path, arrays: dict[str, np.ndarray]) -> None:
    missing = [name for name in _NEEDED if name not in arrays]
    if missing:
        raise ValueError(f"{path}: expected the arrays {', '.join(_NEEDED)} in the file, {', '.join(missing)} missing.")
    for name, ndim in {**_NEEDED, "actions": 2}.items():
        if name in arrays and arrays[name].ndim != ndim:
            raise ValueError(f"{path}: expected {name} with {ndim} axes, got shape {arrays[name].shape}.")
    lengths, terminated = arrays["lengths"], arrays["terminated"]
    if lengths.dtype.kind not in "iu" or len(lengths) == 0 or (lengths < 0).any():
        raise ValueError(f"{path}: expected lengths, at least one, of integers ≥ 0, got {lengths.dtype} {lengths[:5]}.")
    if terminated.dtype != np.bool_ or len(terminated) != len(lengths):
        raise ValueError(f"{path}: expected terminated with {len(lengths)} booleans, got {terminated.dtype} array.")
    total = int(lengths.sum())
    for name, rows in {"rewards": total, "observations": total + len(lengths), "actions": total}.items():
        if name in arrays and len(arrays[name]) != rows:
            raise ValueError(f"{path}: expected {rows} rows of {name} by its lengths, got {len(arrays[name])}.")
