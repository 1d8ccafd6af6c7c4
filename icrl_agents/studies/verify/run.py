"""The verification from configuration to folder and exit code."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

from tqdm import tqdm

from icrl_agents.divergence import DivergenceWarning
from icrl_agents.machine import check_device, one_thread
from icrl_agents.studies.results import CONFIG, ROWS, opened_folder, write_rows
from icrl_agents.studies.verify.attention import check_attention
from icrl_agents.studies.verify.config import VerifyConfig
from icrl_agents.studies.verify.constructions import check_constructions
from icrl_agents.studies.verify.convergence import check_convergence
from icrl_agents.studies.verify.finite_contexts import check_finite_contexts
from icrl_agents.studies.verify.fixed_points import check_fixed_points
from icrl_agents.studies.verify.invariances import check_invariances
from icrl_agents.studies.verify.neu import check_neu
from icrl_agents.studies.verify.rkhs import check_rkhs
from icrl_agents.studies.verify.rows import Row, table

CHECKS: dict[str, Callable[[VerifyConfig], Iterator[Row]]] = {
    "constructions": check_constructions,
    "attention": check_attention,
    "convergence": check_convergence,
    "floor": check_finite_contexts,
    "fixed-points": check_fixed_points,
    "invariances": check_invariances,
    "rkhs": check_rkhs,
    "neu": check_neu,
}
"""Topic: the function that yields its rows. It may write figures into ``config.out``."""


def run(config: VerifyConfig) -> int:
    """Checks every claim, prints the table and writes ``config.out``; returns 0 if all of them hold, otherwise 1.

    Raises:
        ValueError: If the output folder holds another run, or the device is not there.
    """
    check_device(config.device)
    with opened_folder(config.out, config):
        rows = _checked(config)
        write_rows(config.out, rows)
    failed = sum(not row.passed for row in rows)
    print(table(rows))
    files = ", ".join([CONFIG, ROWS, *sorted(path.name for path in config.out.glob("*.png"))])
    print(f"\n{len(rows) - failed} of {len(rows)} claims hold. In {config.out}: {files}.")
    return 1 if failed else 0


def _checked(config: VerifyConfig) -> list[Row]:
    """The rows of all topics."""
    rows: list[Row] = []
    bar = tqdm(total=len(config.topics), desc="verifying", unit="topic", file=sys.stderr)
    with one_thread(), warnings.catch_warnings(), bar as progress:
        warnings.simplefilter("ignore", DivergenceWarning)  # equalities hold whether or not the iterations converge
        for topic in config.topics:
            progress.set_postfix_str(topic)
            for row in _rows(topic, config):
                rows.append(row)
                progress.set_postfix_str(f"{topic}: {row.claim}")
            progress.update()
    return rows


def _rows(topic: str, config: VerifyConfig) -> Iterator[Row]:
    """The rows of a topic with the time each took; a check that breaks off is a row that fails."""
    started = time.perf_counter()
    try:
        for row in CHECKS[topic](config):
            yield replace(row, topic=topic, seconds=round(time.perf_counter() - started, 3))
            started = time.perf_counter()
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        yield Row(claim="the check ran to its end", source="", on=said, measured=float("nan"), at_most=0.0, topic=topic)
