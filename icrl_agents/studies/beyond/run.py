"""The study beyond MetaWorld from configuration to folder."""

from __future__ import annotations

import functools

from icrl_agents.execution import executor
from icrl_agents.machine import check_device
from icrl_agents.studies.beyond.config import BeyondConfig
from icrl_agents.studies.beyond.evaluation import Cell, Row, evaluate
from icrl_agents.studies.beyond.figures import losses_figure
from icrl_agents.studies.beyond.summary import LEAST, MOST, Summary
from icrl_agents.studies.cells import CELLS, KeptRows, compute_cells
from icrl_agents.studies.description import identity
from icrl_agents.studies.medians import coverage
from icrl_agents.studies.results import opened_folder, write_rows


def run(config: BeyondConfig) -> Summary:
    """Collects, evaluates, prints the tables, and writes ``config.out``; goes on with what is finished there.

    Raises:
        ValueError: If the output folder holds another run, or the device or executor is not there.
        OSError: If a folder cannot be written, or workers were lost again and again.
    """
    if config.executor != "ray":
        check_device(config.device)
    gpus = float(config.device != "cpu")
    chosen = executor(config.executor, workers=config.workers, ray_address=config.ray_address, gpus=gpus)
    with opened_folder(config.out, config):
        kept = KeptRows(config.out / CELLS, identity(config))
        rows = compute_cells(functools.partial(rows_of, config), cells_of(config), Row, chosen, kept)
        write_rows(config.out, rows)
        summary = Summary(rows)
        print(summary.tables())
        print(_caption(config))
        losses_figure(summary, config.out / "losses.png")
        return summary


def rows_of(config: BeyondConfig, cell: Cell) -> list[Row]:
    """Computes one cell."""
    return list(evaluate(config, cell))


def cells_of(config: BeyondConfig) -> dict[str, Cell]:
    """The cells by name, in the order of the rows."""
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    return {f"{process}, seed {seed}": Cell(process, seed) for process in config.processes for seed in seeds}


def _caption(config: BeyondConfig) -> str:
    spread = f"; [interval] of {coverage(config.seeds):.0%} confidence" if config.seeds > 1 else ""
    return (
        "\nHeld-out losses of weights that are the same in every process. Value errors against true values, relative\n"
        "to their mean square and, centred, to their variance; TD loss relative to that of v = 0; –: no variation.\n"
        f"Medians over {config.seeds} seed(s){spread}. In the truth: the share of\n"
        "the true values' variance that their own standard errors make up. Comparisons: ratios of median losses,\n"
        f"each of them taken between {LEAST:g} and {MOST:,.0f}.\n"
        f"In {config.out}: config.json, cells.jsonl, rows.csv, losses.png."
    )
