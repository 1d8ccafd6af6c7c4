"""The control study from configuration to folder."""

from __future__ import annotations

import functools

from icrl_agents.execution import executor
from icrl_agents.extras import import_extra
from icrl_agents.machine import check_device
from icrl_agents.studies.cells import CELLS, KeptRows, compute_cells
from icrl_agents.studies.control.config import EARLY, EPISODES, ControlConfig
from icrl_agents.studies.description import LEARNER, identity
from icrl_agents.studies.results import opened_folder, write_rows

_CAPTION = f"""
Returns of {EPISODES} episodes with deterministic actions: interquartile mean over seeds [95 % bootstrap interval].
early: mean over the first {EARLY:,} steps of each run, or all it has (area under the curve); last: at its end;
solved: seeds whose policy reached the solved return at an evaluation, and the median of the steps after which; s/10k:
processor seconds of training per 10,000 steps. all: early, 0 at the worst and 1 at the best return of each
environment."""


def run(config: ControlConfig) -> None:
    """Trains, prints the table, and writes ``config.folder``.

    Raises:
        MissingExtraError: If Stable-Baselines3 is not installed.
        ValueError: If the output folder holds another run, or the device is not there.
    """
    import_extra("stable_baselines3", "sb3", "icrl control")
    from icrl_agents.studies.control.figures import curves_figure
    from icrl_agents.studies.control.pretrained import pretrained_critic
    from icrl_agents.studies.control.summary import Summary
    from icrl_agents.studies.control.training import Row, train

    if config.executor != "ray":
        check_device(config.device)
    folder = config.folder
    gpus = float(config.device != "cpu")
    where = executor(config.executor, workers=config.workers, ray_address=config.ray_address, gpus=gpus)
    with opened_folder(folder, config):
        cells = {cell.name: cell for cell in config.cells()}
        needed = any(cell.critic == "pretrained" for cell in cells.values())
        pretrained = pretrained_critic(folder / "pretrained") if needed else None
        work = functools.partial(train, device=config.device, pretrained=pretrained)
        rows = compute_cells(work, cells, Row, where, KeptRows(folder / CELLS, identity(config)), (LEARNER,))
        write_rows(folder, rows)
        summary = Summary(rows)
        curves_figure(summary, folder / "curves.png")
        print(summary.table())
        print(_CAPTION)
        print(f"\nIn {folder}: config.json, rows.csv, curves.png, and {CELLS}, from which an interrupted run goes on.")
