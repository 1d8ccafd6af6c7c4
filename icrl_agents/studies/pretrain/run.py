"""The pretraining study from configuration to folder."""

from __future__ import annotations

import contextlib
import sys

from tqdm import tqdm

from icrl_agents.machine import check_device
from icrl_agents.pretraining import PretrainResult, pretrain
from icrl_agents.pretraining.distributed import is_first
from icrl_agents.pretraining.events import check_tensorboard
from icrl_agents.studies.pretrain.config import PretrainStudyConfig
from icrl_agents.studies.pretrain.figures import attention_figure, generalisation_figure, training_figure
from icrl_agents.studies.pretrain.generalisation import GeneralisationRow, generalisation
from icrl_agents.studies.pretrain.summary import table
from icrl_agents.studies.results import opened_folder, write_rows
from icrl_agents.value_function import DivergenceError


def run(config: PretrainStudyConfig) -> list[PretrainResult]:
    """Trains a transformer per seed, tests it, prints the table, and writes the output folder.

    Raises:
        ValueError: If the output folder holds another run, a training diverges, or tensorboard or the device is not
            there.
    """
    if config.tensorboard:
        check_tensorboard()
    check_device(config.device)
    with opened_folder(config.folder, config) if is_first() else contextlib.nullcontext():
        results = _trained(config)
        if is_first():
            _report(config, results)
    return results


def _trained(config: PretrainStudyConfig) -> list[PretrainResult]:
    """Trains on each seed, and saves."""
    results: list[PretrainResult] = []
    for training in config.trainings():
        place = config.folder.absolute() / f"seed_{training.seed}"
        try:
            result = pretrain(training, folder=place, progress=True, tensorboard=config.tensorboard)
        except DivergenceError as error:
            raise ValueError(f"seed {training.seed}: {error}") from error
        if is_first():
            result.transformer.save_pretrained(place)
        results.append(result)
    return results


def _report(config: PretrainStudyConfig, results: list[PretrainResult]) -> None:
    """Tests, writes rows and figures, and prints the table."""
    folder = config.folder
    tests: list[GeneralisationRow] = []
    for result in tqdm(results, desc="generalisation", unit="seed", file=sys.stderr):
        tests += generalisation(result)
    write_rows(folder, [row for result in results for row in result.rows])
    write_rows(folder, tests, "generalisation.csv")
    training_figure(results, folder / "training.png")
    attention_figure(results[0], folder / "attention.png")
    generalisation_figure(tests, folder / "generalisation.png")
    print(table(results, tests))
    print(f"\nIn {folder}: config.json, rows.csv, generalisation.csv, training.png, attention.png, generalisation.png,")
    print("and in seed_K/ the pretrained transformer and the state of its training.")
