"""The transfer matrix from configuration to folder."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from icrl_agents.execution import executor
from icrl_agents.machine import check_device
from icrl_agents.studies.cells import CELLS, KeptRows, compute_cells
from icrl_agents.studies.description import identity
from icrl_agents.studies.matrix import tables
from icrl_agents.studies.matrix.config import MatrixConfig
from icrl_agents.studies.matrix.data import Cell
from icrl_agents.studies.matrix.evaluation import CONSTRUCTED, LINEAR, MODELS, SOFTMAX, Row, folder_of, rows_of
from icrl_agents.studies.matrix.figures import depth_figure, matrix_figure
from icrl_agents.studies.matrix.summary import Summary
from icrl_agents.studies.results import opened_folder, write_rows
from icrl_agents.studies.transfer.trajectories import default_cache
from icrl_agents.transformer import InContextTransformer


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What pretraining made of the softmax transformer's weights: a length scale, or a value weight.

    Args:
        source: Domain.
        seed: Of the cell.
        weight: ``"length_scale"`` or ``"value_weights"``.
        index: Dimension of the observation, or 0, 1, 2 for R, u, v.
        value: The number.
    """

    source: str
    seed: int
    weight: str
    index: int
    value: float


def run(config: MatrixConfig) -> Summary:
    """Pretrains, evaluates, prints the tables, and writes ``config.out``; goes on with what is finished there.

    Raises:
        ValueError: If the output folder holds another run, training diverges, two goals that must differ are equal, or
            the device is not there.
        OSError: If a folder cannot be written, or workers were lost again and again.
    """
    check_device(config.device)
    chosen = executor(config.executor, workers=config.workers)
    with opened_folder(config.out, config, config.cache or default_cache()):
        kept = KeptRows(config.out / CELLS, identity(config))
        cells = cells_of(config)
        if gone := kept.forget([name for name, cell in cells.items() if not is_saved(config, cell)]):
            said = f"{len(gone)} cell(s) with a damaged or missing transformer; computing those cells again."
            warnings.warn(f"{config.out / MODELS}: {said}", stacklevel=2)
        rows = compute_cells(functools.partial(rows_of, config), cells, Row, chosen, kept)
        summary = Summary(rows)
        write_rows(config.out, rows)
        write_rows(config.out, weights(config, cells.values()), "weights.csv")
        print(_report(config, summary))
        matrix_figure(summary, config.out / "matrix.png")
        depth_figure(summary, config.out / "depth.png")
        return summary


def cells_of(config: MatrixConfig) -> dict[str, Cell]:
    """The cells by name, in the order of the rows."""
    return {
        f"{source}, seed {seed}": Cell(source, seed)
        for source in (*config.domains, CONSTRUCTED)
        for seed in range(config.first_seed, config.first_seed + config.seeds)
    }


def is_saved(config: MatrixConfig, cell: Cell) -> bool:
    """Whether the transformers of a cell can be read; nothing is saved of constructed ones."""
    try:
        for model in () if cell.source == CONSTRUCTED else (SOFTMAX, LINEAR):
            InContextTransformer.from_pretrained(folder_of(config, cell, model))
    except (OSError, ValueError):
        return False
    return True


def weights(config: MatrixConfig, cells: Iterable[Cell]) -> list[Weights]:
    """The trained numbers, read back from the saved transformers."""
    found: list[Weights] = []
    for cell in cells:
        if cell.source == CONSTRUCTED:
            continue
        tensors = InContextTransformer.from_pretrained(folder_of(config, cell, SOFTMAX)).state_dict()
        for name in sorted(tensors):
            values = torch.atleast_1d(tensors[name]).tolist()
            last = name.rpartition(".")[2]
            found += [
                Weights(source=cell.source, seed=cell.seed, weight=last, index=i, value=v) for i, v in enumerate(values)
            ]
    return found


def _report(config: MatrixConfig, summary: Summary) -> str:
    transferred = "Transferred: weights from all other domains.\n" if len(summary.domains) > 1 else ""
    parts = [
        tables.matrix(summary, "TD loss"),
        tables.matrix(summary, "centred value error"),
        *(tables.comparison(summary, measure) for measure in ("TD loss", "value error", "centred value error")),
        tables.wins(summary),
        tables.failures(summary),
        f"At L = {config.depth}, on held-out trajectories whose goals were not seen. TD loss: over that of v = 0.\n"
        "Value errors: against Monte-Carlo returns, over their mean square and, centred, over their variance.\n"
        f"Ratios of means over {config.seeds} seed(s) [95 % intervals: jackknife, Student's t].\n"
        f"{transferred}"
        f"In {config.out}: config.json, cells.jsonl, rows.csv, weights.csv, matrix.png, depth.png, models/.",
    ]
    return "\n\n".join(parts)
