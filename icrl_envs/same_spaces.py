"""Spaces that are the same for a model, whichever objects they are."""

from typing import Any

import numpy as np
from gymnasium import spaces


def same_space(space: spaces.Space[Any], other: spaces.Space[Any]) -> bool:
    """Whether two spaces are of one kind, with the same bounds but for rounding; shapes are for the model to refuse."""
    bounds, others = _bounds(space), _bounds(other)
    return kind_of(space) == kind_of(other) and all(map(_alike, bounds, others))


def kind_of(space: spaces.Space[Any]) -> Any:  # noqa: ANN401
    """The kind of a space, with the numbers of its elements where they are counted."""
    if isinstance(space, spaces.Dict):
        return {name: kind_of(part) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return [kind_of(part) for part in space.spaces]
    if isinstance(space, spaces.Discrete):
        return "Discrete", int(space.n), int(space.start)
    return type(space).__name__, getattr(space, "nvec", np.array(0)).tolist()


def _bounds(space: spaces.Space[Any]) -> list[np.ndarray]:
    """Bounds of a box, or of those within dictionaries and tuples."""
    if isinstance(space, spaces.Box):
        return [space.low, space.high]
    if isinstance(space, spaces.Dict):  # by their names, whatever their order
        return [each for _, part in sorted(space.spaces.items()) for each in _bounds(part)]
    return [each for part in space.spaces for each in _bounds(part)] if isinstance(space, spaces.Tuple) else []


def _alike(bound: np.ndarray, other: np.ndarray) -> bool:
    return bound.shape != other.shape or np.allclose(bound, other)
