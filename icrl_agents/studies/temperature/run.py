"""The kernel-temperature study from configuration to folder."""

from __future__ import annotations

import functools

from icrl_agents.execution import executor
from icrl_agents.machine import check_device
from icrl_agents.studies.cells import CELLS, KeptRows, compute_cells
from icrl_agents.studies.description import identity
from icrl_agents.studies.results import opened_folder, write_rows
from icrl_agents.studies.temperature.config import TemperatureConfig
from icrl_agents.studies.temperature.evaluation import Row, evaluate
from icrl_agents.studies.temperature.figures import curves_figure, offset_figure, similarity_figure
from icrl_agents.studies.temperature.report import report
from icrl_agents.studies.temperature.summary import TD_LOSS, Summary
from icrl_agents.studies.transfer.run import cells_of
from icrl_agents.studies.transfer.trajectories import Request, default_cache, gathered
from icrl_agents.studies.transfer.truth import truth_of

FIGURES = ("td_loss.png", "value_error.png", "similarity.png", "offset.png")


def run(config: TemperatureConfig) -> Summary:
    """Collects, evaluates, prints the tables, and writes ``config.out``; goes on with what is finished there.

    Raises:
        ValueError: If the output folder holds another run, or the device or executor is not there.
        OSError: If a folder cannot be written, or workers were lost again and again.
    """
    if config.executor != "ray":  # where the cells are computed, a device may be that is not here
        check_device(config.device)
    gpus = float(config.device != "cpu")
    chosen = executor(config.executor, workers=config.workers, ray_address=config.ray_address, gpus=gpus)
    with opened_folder(config.out, config, config.cache or default_cache()):
        kept = KeptRows(config.out / CELLS, identity(config))
        rows = compute_cells(functools.partial(rows_of, config), cells_of(config.transfer()), Row, chosen, kept)
        write_rows(config.out, rows)
        summary = Summary(rows)
        print(report(summary))
        print(f"\nIn {config.out}: config.json, cells.jsonl, rows.csv, {', '.join(FIGURES)}.")
        curves_figure(summary, TD_LOSS, config.out / "td_loss.png")
        curves_figure(summary, summary.value_error, config.out / "value_error.png")
        similarity_figure(summary, config.out / "similarity.png")
        offset_figure(summary, config.out / "offset.png")
        return summary


def rows_of(config: TemperatureConfig, cell: tuple[str, Request]) -> list[Row]:
    """Computes one cell: a noise level's name, and its trajectories as a request."""
    noise, request = cell
    trajectories = gathered(request, config.cache or default_cache())
    return list(evaluate(config, request, noise, trajectories, truth_of(config.transfer(), request)))
