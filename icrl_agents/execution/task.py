"""What an executor is, and how it runs one cell."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Generic, Protocol, TypeVar

Cell = TypeVar("Cell")
Result = TypeVar("Result")
_KINDS = (ValueError, TypeError, OSError, MemoryError)
"""Kinds of errors that the command line tells apart."""


class Executor(Protocol):
    """Where the cells of a study are computed. A cell's result does not depend on where, nor on other cells.

    That holds for tasks that read no setting of their process, such as torch's default type or a global generator.
    """

    def map(self, task: Callable[[Cell], Result], cells: Sequence[Cell]) -> Generator[tuple[Cell, Result], None, None]:
        """Yields each cell with ``task(cell)``, as they finish.

        A worker or node that is lost costs the cells that it had not finished: others compute them. An error that
        ``task`` raises ends the map; from a worker, one that cannot be pickled is one of its built-in kind that says
        the same. Torch has one thread in each cell, so that results do not depend on how many cells run at once. Close
        the iterator, or use it up, to end the workers.

        Args:
            task: A function that can be imported by its name, or a ``functools.partial`` of one.
            cells: Its arguments, which can be pickled, as its results can.

        Raises:
            OSError: If a cell's workers were lost again and again.
        """
        ...


@dataclass(frozen=True)
class Outcome(Generic[Result]):
    """What comes back from a worker: a result, and the warnings on the way to it, as messages with their kinds."""

    result: Result
    warned: tuple[tuple[str, type[Warning]], ...]

    def delivered(self) -> Result:
        """The result; the warnings are given here once more."""
        for message, kind in self.warned:
            warnings.warn(message, kind, stacklevel=3)
        return self.result


def outcome(task: Callable[[Cell], Result], cell: Cell) -> Outcome[Result]:
    """Runs ``task`` in a worker."""
    with warnings.catch_warnings(record=True) as caught:
        try:
            result = alone(task, cell)
        except Exception as error:
            if (told := _travelling(error)) is error:
                raise
            raise told from error
    return Outcome(result, tuple((str(warning.message), warning.category) for warning in caught))


def _travelling(error: Exception) -> Exception:
    """The error, or where it cannot be pickled and read back, one of its built-in kind that says the same."""
    with contextlib.suppress(Exception):  # whatever its class raises then
        ForkingPickler.dumps(error)
        if str(copy.deepcopy(error)) == str(error):  # made anew, with all in it, as it will be on the other side
            return error
    kind = next((kind for kind in _KINDS if isinstance(error, kind)), RuntimeError)
    return kind(f"{type(error).__name__}: {error}")


def alone(task: Callable[[Cell], Result], cell: Cell) -> Result:
    """Runs ``task`` on one thread."""
    from icrl_agents.machine import one_thread

    with one_thread():
        return task(cell)
