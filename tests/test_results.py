"""The folder of a run: the command it records is the run's own, and another run's folder is left alone."""

import dataclasses
import importlib.util
import json
import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from icrl_agents.command_line import STUDIES, parse
from icrl_agents.studies import description, results
from icrl_agents.studies.adapt.config import AdaptConfig
from icrl_agents.studies.collect.config import CollectConfig
from icrl_agents.studies.control.config import ControlConfig
from icrl_agents.studies.evaluate.config import EvaluateConfig
from icrl_agents.studies.pretrain.config import PretrainStudyConfig
from icrl_agents.studies.reproduce.config import ReproduceConfig
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
    TransferConfig(executor="serial", held_out_split="train"),
    ControlConfig(),
    AdaptConfig(domains=("reach-v3",), caution=1.0, out=Path("out")),
    EvaluateConfig(env_id="CartPole-v1", env_args=("a=1", "b=2"), seeds=2),
    CollectConfig(env_id="CartPole-v1", num_steps=10, out=Path("file.npz")),
    ReproduceConfig(from_=Path("results/transfer"), tolerance=1e-9, trust=True),
]
if importlib.util.find_spec("ray"):
    CONFIGS.append(TransferConfig(executor="ray", ray_address="10.0.0.1:6379", held_out_split="train"))
CONFIGS += [kind() for kind, _ in STUDIES.values() if kind not in {type(config) for config in CONFIGS}]


@dataclasses.dataclass(frozen=True)
class Line:
    number: float
    word: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timed:
    x: int
    seconds: float


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_the_recorded_command_is_parsed_to_the_same_configuration(config):
    program, *words = description.command(config)
    assert program == "icrl"
    assert parse(words) == config


def test_a_folder_keeps_one_configuration_and_one_set_of_versions(tmp_path, monkeypatch):
    config = TransferConfig(out=tmp_path / "out")
    results.open_folder(config.out, config, tmp_path / "other")
    assert (tmp_path / "other").is_dir()
    described = json.loads((config.out / "config.json").read_text())
    assert described == description.describe(config)
    before = (config.out / "config.json").read_bytes()
    results.open_folder(config.out, dataclasses.replace(config, workers=1, executor="serial"))
    assert (config.out / "config.json").read_bytes() == before
    with pytest.raises(ValueError, match=r"another configuration \(other depth, gamma\); choose another folder"):
        results.open_folder(config.out, dataclasses.replace(config, depth=3, gamma=0.8))
    monkeypatch.setattr(description, "version", lambda name: "0.0.0")
    with pytest.raises(
        ValueError,
        match=r"other versions of libraries \(other gymnasium, icrl, metaworld, mujoco, numpy, scipy, torch\)",
    ):
        results.open_folder(config.out, config)
    for damaged in ("{}", "[" * 100_000, "", '{"settings": 1, "versions": {}}'):
        (config.out / "config.json").write_text(damaged)
        with pytest.raises(ValueError, match="is not a configuration of icrl"):
            results.open_folder(config.out, config)


def test_a_folder_whose_making_was_killed_is_gone_on_with(tmp_path):
    config = TransferConfig(out=tmp_path / "out")
    config.out.mkdir()
    (config.out / ".config.json.x1y2.icrl-partial").touch()
    results.open_folder(config.out, config)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".notes.partial").touch()
    with pytest.raises(ValueError, match="is not an empty folder"):
        results.open_folder(tmp_path / "other", config)


def test_changed_code_does_not_go_on_with_the_rows_of_other_code(tmp_path, monkeypatch):
    config = TransferConfig(out=tmp_path / "out")
    results.open_folder(config.out, config)
    identity = description.identity(config)
    assert description.identity(dataclasses.replace(config, workers=3, out=tmp_path)) == identity
    assert description.identity(dataclasses.replace(config, gamma=0.8)) != identity
    monkeypatch.setattr(description, "source_digest", lambda: "0123")
    assert description.identity(config) != identity
    with pytest.raises(ValueError, match=r"other versions of libraries \(other source\)"):
        results.open_folder(config.out, config)


def test_rows_are_not_overwritten_silently(tmp_path):
    results.write_rows(tmp_path, [Timed(x=1, seconds=0.1)])
    results.write_rows(tmp_path, [Timed(x=1, seconds=0.2)])
    assert [p.name for p in tmp_path.iterdir()] == ["rows.csv"]
    with pytest.warns(UserWarning, match=r"held other rows, which are kept as rows\.before\.csv"):
        results.write_rows(tmp_path, [Timed(x=2, seconds=0.2)])
    assert (tmp_path / "rows.before.csv").read_text() == "x,seconds\n1,0.2\n"
    for x, kept in ((3, "rows.2.before.csv"), (4, "rows.3.before.csv")):
        with pytest.warns(UserWarning, match=f"held other rows, which are kept as {kept}"):
            results.write_rows(tmp_path, [Timed(x=x, seconds=0.2)])
        assert (tmp_path / kept).read_text() == f"x,seconds\n{x - 1},0.2\n"


def test_rows_keep_every_digit(tmp_path):
    results.write_rows(tmp_path, [Line(1 / 3, None), Line(float("inf"), "two, three")])
    assert (tmp_path / "rows.csv").read_text().splitlines() == [
        "number,word",
        "0.3333333333333333,",
        'inf,"two, three"',
    ]


def test_a_folder_is_left_as_it_was_where_a_run_fails_before_any_result(tmp_path):
    config = VerifyConfig(out=tmp_path / "new" / "out")

    def fail(*kept):
        with results.opened_folder(config.out, config):
            (config.out / "seed_0").mkdir()
            for name in kept:
                (config.out / "seed_0" / name).write_text("kept")
            raise ValueError("of the options")

    with pytest.raises(ValueError, match="of the options"):
        fail()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="of the options"):
        fail("state")
    assert (config.out / "config.json").exists()
    assert (config.out / "seed_0" / "state").read_text() == "kept"


def test_an_empty_folder_that_was_there_stays_where_a_run_fails_before_any_result(tmp_path):
    config = VerifyConfig(out=tmp_path / "out")
    config.out.mkdir(mode=0o710)
    before = config.out.stat()
    with pytest.raises(ValueError, match="of the options"), results.opened_folder(config.out, config):  # noqa: PT012
        (config.out / "seed_0").mkdir()
        raise ValueError("of the options")
    assert (config.out.stat().st_ino, config.out.stat().st_mode) == (before.st_ino, before.st_mode)
    assert list(config.out.iterdir()) == []


def test_of_two_runs_that_begin_at_once_the_second_is_refused(tmp_path, monkeypatch):
    config = TransferConfig(out=tmp_path / "out")

    def meanwhile(folder):
        monkeypatch.undo()
        results.open_folder(folder, dataclasses.replace(config, gamma=0.8))

    monkeypatch.setattr(results, "check_writable", meanwhile)
    with pytest.raises(ValueError, match=r"holds a run of another configuration \(other gamma\)"):
        results.open_folder(config.out, config)
    assert json.loads((config.out / "config.json").read_text())["settings"]["gamma"] == 0.8
    assert [path.name for path in config.out.iterdir()] == ["config.json"]


def test_a_folder_is_one_runs_until_that_is_done(tmp_path):
    config = TransferConfig(out=tmp_path / "out")
    for _ in range(2):
        with results.opened_folder(config.out, config):
            (config.out / "cells.jsonl").touch()
            with (
                pytest.raises(ValueError, match=r"another run is writing into .*out; wait for it, or choose another"),
                results.opened_folder(config.out, config),
            ):
                pass
    assert sorted(path.name for path in config.out.iterdir()) == ["cells.jsonl", "config.json"]


def test_what_a_run_rests_on_has_a_version(tmp_path, monkeypatch):
    monkeypatch.setattr(description, "version", lambda name: f"{name} 1")
    assert "stable-baselines3" not in description.versions(TransferConfig())
    assert description.versions(ControlConfig())["stable-baselines3"] == "stable-baselines3 1"
    model = tmp_path / "model.zip"
    model.write_text("first")
    config = EvaluateConfig(env_id="CartPole-v1", policy=str(model))
    before = description.versions(config)
    assert before["stable-baselines3"] == "stable-baselines3 1"
    model.write_text("second")
    after = description.versions(config)
    assert [name for name in before if before[name] != after[name]] == ["policy"]


def test_a_figure_of_nothing_but_divergence_is_written(tmp_path):
    figure = Figure(layout="constrained")
    for axes in figure.subplots(1, 2, sharey=True):
        axes.plot([1, 10], [math.inf, math.nan])
        axes.set(xscale="log", yscale="log")
    results.write_figure(figure, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
