"""The folder of a run: the command it records is the run's own, and another run's folder is left alone."""

import dataclasses
import json
from pathlib import Path

import pytest

from icrl_agents.command_line import STUDIES, parse
from icrl_agents.studies import results
from icrl_agents.studies.pretrain.config import PretrainStudyConfig
from icrl_agents.studies.transfer.config import TransferConfig
from icrl_agents.studies.verify.config import VerifyConfig

CONFIGS = [
    TransferConfig(),
    TransferConfig(
        domains=("reach-v3", "push-v3"), noise=("0.3",), goal_visible=False, out=Path("some where"), depth=3
    ),
    TransferConfig(cache=Path("cache"), gamma=0.5, kernel="rbf", tail=20),
    PretrainStudyConfig(preset="linear", seeds=2),
    PretrainStudyConfig(tied=False, learning_rate=0.5, out=Path("out")),
    VerifyConfig(chains=16),
]


@dataclasses.dataclass(frozen=True)
class Line:
    number: float
    word: str | None


def test_every_study_is_covered():
    assert {type(config) for config in CONFIGS} == {kind for kind, _ in STUDIES.values()}


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_the_recorded_command_is_parsed_to_the_same_configuration(config):
    program, *words = results.command(config)
    assert program == "icrl"
    assert parse(words) == config


def test_a_folder_keeps_one_configuration_and_one_set_of_versions(tmp_path, monkeypatch):
    config = TransferConfig(out=tmp_path / "out")
    results.open_folder(config.out, config, tmp_path / "other")
    assert (tmp_path / "other").is_dir()
    described = json.loads((config.out / "config.json").read_text())
    assert described == results.describe(config)
    results.open_folder(config.out, dataclasses.replace(config, workers=2))
    with pytest.raises(ValueError, match=r"another configuration \(other depth, gamma\); choose another folder"):
        results.open_folder(config.out, dataclasses.replace(config, depth=3, gamma=0.8))
    monkeypatch.setattr(results, "version", lambda name: "0.0.0")
    with pytest.raises(ValueError, match="holds a run of other versions of libraries"):
        results.open_folder(config.out, config)
    (config.out / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="is not a configuration of icrl"):
        results.open_folder(config.out, config)


def test_rows_keep_every_digit(tmp_path):
    results.write_rows(tmp_path, [Line(1 / 3, None), Line(float("inf"), "two, three")])
    assert (tmp_path / "rows.csv").read_text().splitlines() == [
        "number,word",
        "0.3333333333333333,",
        'inf,"two, three"',
    ]
