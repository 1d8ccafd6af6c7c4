"""The improvement study from configuration to folder."""

from __future__ import annotations

import functools

from icrl_agents.execution import executor
from icrl_agents.machine import check_device
from icrl_agents.studies.cells import CELLS, KeptRows, compute_cells
from icrl_agents.studies.description import identity
from icrl_agents.studies.improve.config import ImproveConfig
from icrl_agents.studies.improve.figures import rewards_figure
from icrl_agents.studies.improve.summary import Summary
from icrl_agents.studies.improve.training import Cell, Row, rows_of
from icrl_agents.studies.results import opened_folder, write_figure, write_rows


def run(config: ImproveConfig) -> Summary:
    """Improves, prints the table, and writes ``config.out``; goes on with what is finished there.

    Raises:
        ValueError: If the output folder holds another run, or the device or executor is not there.
        OSError: If the folder cannot be written, or workers were lost again and again.
    """
    if config.executor != "ray":
        check_device(config.device)
    gpus = float(config.device != "cpu")
    where = executor(config.executor, workers=config.workers, ray_address=config.ray_address, gpus=gpus)
    with opened_folder(config.out, config):
        cells = {
            f"{domain}, seed {seed}": Cell(domain, seed)
            for domain in config.domains
            for seed in range(config.first_seed, config.first_seed + config.seeds)
        }
        kept = KeptRows(config.out / CELLS, identity(config))
        rows = compute_cells(functools.partial(rows_of, config), cells, Row, where, kept)
        write_rows(config.out, rows)
        summary = Summary(rows)
        write_figure(rewards_figure(summary), config.out / "rewards.png")
        print(summary.table())
        print(
            f"\nMeans over {config.seeds} seed(s) ± standard errors; gains: geometric means. Gain in reward, and better"
        )
        print("in how many seeds: against before, on the same goals and with the same noise, or none.")
        print(f"In {config.out}: config.json, rows.csv, rewards.png,")
        print(f"and {CELLS}, from which an interrupted run goes on.")
        return summary
