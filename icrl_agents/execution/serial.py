"""Cells in this process, one after another."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from icrl_agents.execution.task import Cell, Result, alone


class Serial:
    """The executor that needs nothing."""

    def map(self, task: Callable[[Cell], Result], cells: Sequence[Cell]) -> Generator[tuple[Cell, Result], None, None]:
        """See ``Executor.map``."""
        for cell in cells:
            yield cell, alone(task, cell)
