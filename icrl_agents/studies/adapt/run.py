"""The adaptation study from configuration to folder."""

from __future__ import annotations

import functools

from icrl_agents.execution import executor
from icrl_agents.machine import check_device
from icrl_agents.studies.adapt.config import AdaptConfig
from icrl_agents.studies.adapt.evaluation import Row, adaptive, evaluate
from icrl_agents.studies.adapt.figures import heat_map_figure, ratios_figure
from icrl_agents.studies.adapt.summary import FLOOR, Summary
from icrl_agents.studies.cells import CELLS, KeptRows, compute_cells
from icrl_agents.studies.description import identity
from icrl_agents.studies.results import opened_folder, write_rows
from icrl_agents.studies.transfer.run import cells_of
from icrl_agents.studies.transfer.trajectories import Request, default_cache, gathered
from icrl_agents.studies.transfer.truth import truth_of


def run(config: AdaptConfig) -> Summary:
    """Collects, evaluates, prints the table, and writes ``config.out``; goes on with what is finished there.

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
        print(summary.table())
        print(
            f"\nRatios of held-out losses, averaged over {config.seeds} seed(s) and raised by {FLOOR:g} first;\n"
            "below 1 the first one is better. Interval: 95 %, bootstrap over domains. Value error: centred,\n"
            "against Monte-Carlo returns; true error: against means of several from the same states.\n"
            f"In {config.out}: config.json, cells.jsonl, rows.csv, ratios.png, heat_map.png."
        )
        ratios_figure(summary, config.out / "ratios.png")
        heat_map_figure(summary, config.out / "heat_map.png")
        return summary


def rows_of(config: AdaptConfig, cell: tuple[str, Request]) -> list[Row]:
    """Computes one cell: a noise level's name, and its trajectories as a request."""
    noise, request = cell
    trajectories = gathered(request, config.cache or default_cache())
    return list(evaluate(config, adaptive(config), request, noise, trajectories, truth_of(config.transfer(), request)))
