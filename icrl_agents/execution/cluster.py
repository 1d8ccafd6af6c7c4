"""Cells on a Ray cluster, or on a Ray started for them on this machine."""

from __future__ import annotations

import logging
import os
import socket
import urllib.parse
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from icrl_agents.execution.task import Cell, Result, outcome

ANSWER = 10.0
"""Time in s in which a cluster's address has to answer."""


@dataclass(frozen=True)
class Ray:
    """The executor of a cluster; needs ``pip install 'icrl[ray]'`` on every node.

    Args:
        address: Of a running cluster; None starts Ray on this machine and ends it afterwards.
        workers: Cores that a Ray started here may use; 0 for all.
        gpus: GPUs that a cell keeps to itself.
        retries: How often a cell is computed again because its worker or node was lost.
    """

    address: str | None = None
    workers: int = 0
    gpus: float = 0.0
    retries: int = 3

    def map(self, task: Callable[[Cell], Result], cells: Sequence[Cell]) -> Generator[tuple[Cell, Result], None, None]:
        """See ``Executor.map``."""
        import ray

        joined = ray.is_initialized()
        if not joined:
            self._join(ray)
        remote = ray.remote(outcome).options(num_cpus=1, num_gpus=self.gpus, max_retries=self.retries)
        pending: dict[Any, Cell] = {}
        try:
            self._check_gpus(ray.cluster_resources().get("GPU", 0.0), started=not joined and self.address is None)
            pending |= {remote.remote(task, cell): cell for cell in cells}
            while pending:
                (done, *_), _ = ray.wait(list(pending))
                result = _get(ray, done)
                yield pending.pop(done), result.delivered()
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)
            if not joined:
                ray.shutdown()

    def _join(self, ray: Any) -> None:  # noqa: ANN401 - the module, which need not be installed
        """Joins or starts a cluster, without telemetry.

        Raises:
            OSError: If none answers at the address.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.address is not None:
            ray.init(self.address, **quiet)
        else:
            ray.init("local", num_cpus=self.workers or None, include_dashboard=False, **quiet)

    def _check_gpus(self, there: float, *, started: bool) -> None:
        """Says that cells would wait for GPUs, for ever on a Ray that was started here; on a cluster, they may join.

        Raises:
            ValueError: If this Ray was started here and has too few.
        """
        if self.gpus <= there:
            return
        if started:
            raise ValueError(f"device: a cell takes {self.gpus:g} GPU(s), and Ray finds {there:g} on this machine.")
        warnings.warn(
            f"Each cell waits for {self.gpus:g} GPU(s), until a node with one joins the cluster.", stacklevel=3
        )


def check_address(address: str) -> None:
    """Raises ValueError if no cluster is at ``"HOST:PORT"`` or ``"ray://HOST:PORT"``, where Ray would try for minutes.

    Whether ``"auto"`` finds one, only Ray can tell.
    """
    if address == "auto":
        return _check_found()
    parts = urllib.parse.urlsplit(address if "//" in address else f"//{address}")
    try:
        if parts.hostname and parts.port:
            socket.create_connection((parts.hostname, parts.port), timeout=ANSWER).close()
    except (OSError, ValueError) as error:
        raise ValueError(
            f"ray_address: expected a running Ray cluster, nothing answers at {address!r} ({error}); "
            "start one by: ray start --head"
        ) from None


def _check_found() -> None:
    import ray

    if ray.is_initialized():
        return
    try:
        Ray("auto")._join(ray)
        ray.shutdown()
    except ConnectionError as error:
        raise ValueError(
            f"ray_address: 'auto' found no running Ray cluster on this machine ({error}); start one by: "
            "ray start --head"
        ) from None


def _get(ray: Any, reference: Any) -> Any:  # noqa: ANN401
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        said = str(error).strip().splitlines()[0]
        raise OSError(
            f"a cell was lost on the Ray cluster ({said}); run the command again: finished cells are kept."
        ) from error
