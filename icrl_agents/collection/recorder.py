"""Recording: what one copy of an environment does, row after row, kept as episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from icrl_agents.arrays import float_rows
from icrl_agents.collection.outcomes import array_of
from icrl_agents.episode import Episode
from icrl_envs import arguments

LONGEST_EPISODE = 50_000
"""Steps after which an episode counts as endless, unless it is to be cut anyway."""

SMALLEST_PICTURE = 32
"""Boxes with two axes at least this long are taken for pictures, whatever their type."""


@dataclass
class Recorder:
    """Keeps the episodes of one copy up to its quota; beyond that it only follows whether an episode is running.

    Args:
        row: From an observation to its row ``(d,)``, a new array on each call.
        num_steps: Quota of transitions, or None.
        num_episodes: Quota of episodes, or None.
        max_episode_steps: Length at which an episode is cut, or None.
        action_row: From an action to its row ``(a,)`` where actions are kept, or None.

    Attributes:
        episodes: The episodes so far.
        running: Whether an episode is running, so that the next action matters.
    """

    row: Callable[[Any], np.ndarray]
    num_steps: int | None = None
    num_episodes: int | None = None
    max_episode_steps: int | None = None
    action_row: Callable[[Any], np.ndarray] | None = None
    episodes: list[Episode] = field(default_factory=list, init=False)
    running: bool = field(default=False, init=False)
    _observations: list[np.ndarray] = field(default_factory=list, init=False)
    _rewards: list[float] = field(default_factory=list, init=False)
    _actions: list[np.ndarray] = field(default_factory=list, init=False)
    _taken: int = field(default=0, init=False)

    @property
    def full(self) -> bool:
        """Whether the quota is reached."""
        return self._taken == self.num_steps or len(self.episodes) == self.num_episodes

    def begin(self, observation: Any) -> None:  # noqa: ANN401 - of any space
        """Begins an episode at its first observation."""
        self.running = True
        self._observations, self._rewards, self._actions = [self.row(observation)], [], []

    def add(self, action: Any, observation: Any, reward: Any, terminated: Any, truncated: Any) -> None:  # noqa: ANN401
        """Adds a transition by ``action`` to ``observation``; terminated wins over truncated.

        Raises:
            ValueError: If the episode does not end.
        """
        self.running = not (terminated or truncated)
        if self.full:
            return
        self._taken += 1
        self._observations.append(self.row(observation))
        self._rewards.append(float(reward))
        if self.action_row is not None:
            self._actions.append(self.action_row(action))
        if len(self._rewards) == self.max_episode_steps:
            self.running = False
        if not self.running or self._taken == self.num_steps:
            actions = np.stack(self._actions) if self._actions else None
            rewards = np.array(self._rewards)
            self.episodes.append(Episode(np.stack(self._observations), rewards, bool(terminated), actions))
        elif self.num_steps is None and self.max_episode_steps is None and len(self._rewards) == LONGEST_EPISODE:
            raise ValueError(
                f"num_episodes: an episode has not ended after {LONGEST_EPISODE:,} steps; ask for num_steps instead, "
                "or pass max_episode_steps (for a vector environment, to gymnasium.make_vec)."
            )


def flattening(space: spaces.Space[Any]) -> Callable[[Any], np.ndarray]:
    """Returns the function from an observation in ``space`` to its row ``(d,)``, a new array on each call.

    Raises:
        TypeError: If observations have no fixed number of entries.
        ValueError: If they are, or contain, pixels.
    """
    if not space.is_np_flattenable:
        raise TypeError(f"env: expected observations that flatten to a vector of numbers, got {space}.")
    for part in _leaves(space):
        if isinstance(part, spaces.Text):
            raise TypeError(f"env: expected observations that flatten to a vector of numbers, got text, {part}.")
        if isinstance(part, spaces.Box) and _is_picture(part):
            raise ValueError(
                f"env: pixel observations {part.shape} are no features to compare states by; expected a vector: "
                "encode them first, for instance with gymnasium.wrappers.TransformObservation, or take "
                "gymnasium.wrappers.FlattenObservation where they are no picture, such as stacked vectors."
            )
    return rows_of("observations", space)


def rows_of(name: str, space: spaces.Space[Any]) -> Callable[[Any], np.ndarray]:
    """Returns the function from an element of ``space`` to its row, float32 where all of it is, otherwise float64.

    Args:
        name: What the elements are, for the error.
        space: A space whose elements flatten.

    Raises:
        TypeError: If they do not.
    """
    if not space.is_np_flattenable:
        raise TypeError(f"env: expected {name} that flatten to a vector of numbers, got {space}.")
    return _row(name, space)


def _row(name: str, space: spaces.Space[Any]) -> Callable[[Any], np.ndarray]:
    if isinstance(space, spaces.Dict):
        parts = {key: _row(name, part) for key, part in space.spaces.items()}
        return lambda element: np.concatenate([row(element[key]) for key, row in parts.items()])
    if isinstance(space, spaces.Tuple):
        rows = [_row(name, part) for part in space.spaces]
        return lambda element: np.concatenate([row(part) for row, part in zip(rows, element, strict=True)])
    if isinstance(space, spaces.Discrete):
        return _one_hot(name, space)
    dim, box = spaces.flatdim(space), isinstance(space, spaces.Box)

    def row(element: Any) -> np.ndarray:  # noqa: ANN401
        arguments.unmasked(f"env: {name}", element)
        flattened = element if box else spaces.flatten(space, _counted(name, space, element))
        given = array_of(name, flattened)
        flat = given.ravel()
        if box and flat.shape == (dim,) and given.ndim > 1 and _wide(given.shape) != _wide(space.shape or ()):
            raise ValueError(f"env: expected {name} of shape {space.shape} as in {space}, got {given.shape}.")
        if flat.shape != (dim,):
            raise ValueError(f"env: expected {name} of {dim} numbers as in {space}, got {flat.size}.")
        return float_rows(name, flat)

    return row


def _wide(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without its axes of length 1."""
    return tuple(length for length in shape if length != 1)


def _one_hot(name: str, space: spaces.Discrete) -> Callable[[Any], np.ndarray]:
    first, count = int(space.start), int(space.n)

    def row(element: Any) -> np.ndarray:  # noqa: ANN401
        array = np.asarray(element)
        position = array.item() - first if array.size == 1 and array.dtype.kind in "biuf" else -1
        if not (0 <= position < count and position == int(position)):
            raise ValueError(f"env: expected {name} in {space}, got {element!r}.")
        flat = np.zeros(count)
        flat[int(position)] = 1.0
        return flat

    return row


def _counted(name: str, space: spaces.Space[Any], element: Any) -> Any:  # noqa: ANN401
    """Returns an element of a space of several whole numbers; ValueError where it is none.

    Gymnasium would flatten that all the same, to the row of another one. What is of another space stays as it is.
    """
    if not isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
        return element
    start, count = (space.start, space.nvec) if isinstance(space, spaces.MultiDiscrete) else (0, 2)
    array, shape = np.asarray(element), space.shape
    if array.dtype.kind in "biuf" and array.shape == shape:
        from_start = array.astype(float) - start
        if ((from_start >= 0) & (from_start < count) & (from_start == np.floor(from_start))).all():
            return array.astype(np.int64)
    raise ValueError(f"env: expected {name} in {space}, got {element!r}.")


def beyond_single(space: spaces.Space[Any]) -> bool:
    """Returns whether there is a box in ``space`` whose numbers float32 would round: of float64 or large integers."""
    boxes = (part for part in _leaves(space) if isinstance(part, spaces.Box))
    return any(not np.can_cast(box.dtype, np.float32) for box in boxes)


def _leaves(space: spaces.Space[Any]) -> Iterator[spaces.Space[Any]]:
    """Yields the spaces that ``space`` is made of."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for part in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            yield from _leaves(part)
    else:
        yield space


def _is_picture(box: spaces.Box) -> bool:
    coloured = box.dtype == np.uint8 and len(box.shape) >= 3
    return coloured or sum(length >= SMALLEST_PICTURE for length in box.shape) >= 2
