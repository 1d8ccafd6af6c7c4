"""Minari datasets, read as episodes (extra ``[minari]``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from icrl_agents.arrays import float_rows
from icrl_agents.collection.recorder import flattening, rows_of
from icrl_agents.episode import Episode
from icrl_agents.extras import import_extra


def minari_episodes(dataset: Any) -> list[Episode]:  # noqa: ANN401 - Minari need not be there
    """Returns the episodes of a Minari dataset.

    Observations and actions are flattened as ``collect_episodes`` does, discrete ones one-hot. An episode whose last
    step is a termination terminated; any other, also one that neither flag ends, was truncated, and bootstraps from
    its last observation.

    Args:
        dataset: A ``minari.MinariDataset``, or the id of one that is on this machine.

    Raises:
        MissingExtraError: If Minari is not installed.
        FileNotFoundError: If no dataset of that id is on this machine.
        TypeError: If ``dataset`` is neither, or its observations do not flatten.
        ValueError: If it is damaged, its observations are pixels, or an episode goes on after it has ended or has
            arrays whose lengths disagree, naming the episode.
    """
    dataset = _loaded(dataset)
    row, action_row = flattening(dataset.observation_space), rows_of("actions", dataset.action_space)
    episodes = []
    for i, data in enumerate(_stored(dataset)):
        _check_lengths(i, data)
        ended = np.logical_or(data.terminations, data.truncations)
        if ended[:-1].any():
            step = int(np.flatnonzero(ended[:-1])[0])
            raise ValueError(
                f"episode {i}, step {step}: terminated or truncated there, yet it has {len(ended)} steps; "
                "expected the end of an episode at its last step."
            )
        length = len(data.rewards)
        observations = _rows(dataset.observation_space, data.observations, length + 1, row)
        actions = _rows(dataset.action_space, data.actions, length, action_row)
        terminated = length > 0 and bool(data.terminations[-1])
        episodes.append(Episode(observations, np.asarray(data.rewards), terminated, actions))
    return episodes


def _loaded(dataset: Any) -> Any:  # noqa: ANN401
    minari = import_extra("minari", "minari", "A Minari dataset")
    if isinstance(dataset, minari.MinariDataset):
        return dataset
    if not isinstance(dataset, str):
        raise TypeError(f"dataset: expected a minari.MinariDataset or the id of one, got {type(dataset).__name__}.")
    try:
        return minari.load_dataset(dataset)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"dataset: {dataset!r} is not on this machine; `minari list local` tells which are, and "
            f"`minari download {dataset}` fetches one of Minari's own."
        ) from None
    except Exception as error:  # what Minari and its storage raise depends on where the damage is
        raise _damaged(error) from error


def _stored(dataset: Any) -> Iterator[Any]:  # noqa: ANN401
    try:
        yield from dataset.iterate_episodes()
    except Exception as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> ValueError:
    return ValueError(
        f"dataset: Minari cannot read it, so it is damaged or of another version ({type(error).__name__}: {error}); "
        "write it or download it again."
    )


def _check_lengths(index: int, data: Any) -> None:  # noqa: ANN401 - Minari's EpisodeData
    """Raises ValueError if an episode of T rewards does not have T actions and flags, and T + 1 observations."""
    length = len(data.rewards)
    for name in ("actions", "terminations", "truncations", "observations"):
        expected = length + 1 if name == "observations" else length
        for got in _leaf_lengths(getattr(data, name)):
            if got != expected:
                raise ValueError(
                    f"episode {index}: expected {expected} {name} beside its {length} rewards, got {got}; the dataset "
                    "is damaged, or was not written whole."
                )


def _leaf_lengths(batch: Any) -> Iterator[int]:  # noqa: ANN401
    if isinstance(batch, (dict, tuple)):
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from _leaf_lengths(part)
    else:
        yield len(batch)


def _rows(space: spaces.Space[Any], batch: Any, length: int, row: Callable[[Any], np.ndarray]) -> np.ndarray:  # noqa: ANN401
    """The rows ``(length, d)`` of a batch of elements, in which time is the first axis of every array."""
    if isinstance(space, spaces.Box):
        if len(batch):
            row(batch[0])  # refuses other shapes than the space's
        return float_rows("dataset", np.asarray(batch).reshape(len(batch), spaces.flatdim(space)))
    rows = [row(element) for element in iterate(batch_space(space, length), batch)]
    return np.stack(rows) if rows else np.empty((0, spaces.flatdim(space)))
