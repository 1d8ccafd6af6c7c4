"""The RKHS study from configuration to folder."""

from __future__ import annotations

import functools

from icrl_agents.execution import executor
from icrl_agents.machine import check_device
from icrl_agents.studies.cells import CELLS, KeptRows, compute_cells
from icrl_agents.studies.description import identity
from icrl_agents.studies.medians import coverage
from icrl_agents.studies.results import opened_folder, write_rows
from icrl_agents.studies.rkhs.config import RKHSConfig
from icrl_agents.studies.rkhs.evaluation import Cell, Row, evaluate
from icrl_agents.studies.rkhs.figures import errors_figure
from icrl_agents.studies.rkhs.recovery import curves_figure, maps_figure
from icrl_agents.studies.rkhs.summary import Summary


def run(config: RKHSConfig) -> Summary:
    """Runs the processes, evaluates, prints the tables, and writes ``config.out``; goes on with what is finished.

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
        summary = Summary(config, rows)
        print(summary.tables())
        errors_figure(summary, config.out / "errors.png")
        figures = ["errors.png"]
        for dim, draw in {1: curves_figure, 2: maps_figure}.items():
            if dim in config.dims:
                draw(config, config.out / f"recovered_{dim}d.png")
                figures.append(f"recovered_{dim}d.png")
        print(_caption(config, figures))
        return summary


def rows_of(config: RKHSConfig, cell: Cell) -> list[Row]:
    """Computes one cell."""
    return list(evaluate(config, cell))


def cells_of(config: RKHSConfig) -> dict[str, Cell]:
    """The cells by name, in the order of the rows."""
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    cells = [Cell(kernel, dim, seed) for kernel in config.kernels for dim in config.dims for seed in seeds]
    return {f"{kernel} value in {dim}-D, seed {seed}": Cell(kernel, dim, seed) for kernel, dim, seed in cells}


def _caption(config: RKHSConfig, figures: list[str]) -> str:
    spread = f"; [interval] of {coverage(config.seeds):.0%} confidence" if config.seeds > 1 else ""
    return (
        "\nMean squared value error in states of the stationary law, relative to the value's mean square, which is 1.\n"
        f"Medians over {config.seeds} seed(s), each with a value and a trajectory of its own{spread}.\n"
        f"In {config.out}: config.json, cells.jsonl, rows.csv, {', '.join(figures)}."
    )
