"""Cells in processes of this machine, which end with the process that started them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from icrl_agents import locks
from icrl_agents.execution.task import Cell, Outcome, Result, outcome


@dataclass(frozen=True)
class Processes:
    """The executor of one machine.

    Args:
        workers: Largest number of processes.
        retries: How often in a row processes may be lost without a cell being finished in between.
    """

    workers: int
    retries: int = 2

    def map(self, task: Callable[[Cell], Result], cells: Sequence[Cell]) -> Generator[tuple[Cell, Result], None, None]:
        """See ``Executor.map``."""
        left, losses = dict(enumerate(cells)), 0
        while left:
            before = len(left)
            with _pool(min(self.workers, len(left))) as pool:
                for index, done in _finished(_submitted(pool, task, left)):
                    yield left.pop(index), done.delivered()
            losses = losses + 1 if len(left) == before else 0
            if left and losses > self.retries:
                raise OSError(
                    "a working process was killed again and again, perhaps for lack of memory; run the command again, "
                    "with fewer --workers: finished cells are kept."
                )


def _submitted(
    pool: ProcessPoolExecutor, task: Callable[[Cell], Result], cells: dict[int, Cell]
) -> dict[Future[Outcome[Result]], int]:
    futures: dict[Future[Outcome[Result]], int] = {}
    with contextlib.suppress(BrokenProcessPool), _no_interrupts_in_children():
        for index, cell in cells.items():
            futures[pool.submit(outcome, task, cell)] = index
    return futures


def _finished(futures: dict[Future[Outcome[Result]], int]) -> Iterator[tuple[int, Outcome[Result]]]:
    """Yields what finishes; a lost process ends the pool, and with it all futures that have not."""
    for future in as_completed(futures):
        with contextlib.suppress(BrokenProcessPool):
            yield futures[future], future.result()


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Gives a pool whose processes end at once when it is left, or when this process ends, however that ends."""
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(theirs, locks.kept()))
    try:
        yield pool
    finally:
        ours.close()
        pool.shutdown(wait=True, cancel_futures=True)
        theirs.close()


def _begin(connection: Connection, kept: dict[Path, locks.Kept]) -> None:
    """Makes a worker know its parent's folders, and end when the other end of ``connection`` is closed."""

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            connection.recv_bytes()
        os._exit(1)

    locks.also_kept(kept)
    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _no_interrupts_in_children() -> Iterator[None]:
    """Leaves Ctrl-C, which a terminal sends to all of its processes, to this one: children inherit the mask."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
