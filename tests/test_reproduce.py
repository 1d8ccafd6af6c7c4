"""``icrl reproduce``: a finished run is computed once more, somewhere else, and every number compared."""

import csv
import json

import pytest

from icrl_agents.command_line import STUDIES, main
from icrl_agents.studies.description import describe
from icrl_agents.studies.evaluate.config import EvaluateConfig
from icrl_agents.studies.pretrain.config import PretrainStudyConfig
from icrl_agents.studies.reproduce.comparison import compare, table
from icrl_agents.studies.reproduce.run import WITHOUT_ROWS, rebuilt
from icrl_agents.studies.transfer.config import TransferConfig
from icrl_agents.studies.verify.config import VerifyConfig

TRANSFER = ["transfer", "--domains", "reach-v3", "--noise", "low", "--seeds", "1", "--steps", "20", "--tail", "10"]
TRANSFER += ["--gamma", "0.7", "--depth", "2", "--context-episodes", "1", "--held-out-episodes", "1"]
TRANSFER += ["--executor", "serial"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    assert main([*TRANSFER, "--out", str(folder / "out"), "--cache", str(folder / "cache")]) == 0
    return folder / "out"


def copied(folder, to):
    to.mkdir()
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


def test_a_run_is_reproduced_without_touching_its_folder(finished, tmp_path, capsys, monkeypatch):
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    assert main(["reproduce", "--from", str(finished), "--out", str(tmp_path / "again")]) == 0
    printed = capsys.readouterr().out
    assert "reproduced, all rows are equal" in printed
    assert sum(line.split()[-1] == "same" for line in printed.splitlines() if line.startswith("rows.csv")) == 14
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before
    assert (tmp_path / "again" / "out" / "rows.csv").read_bytes() == before["rows.csv"]
    assert len(list((tmp_path / "again" / "cache").iterdir())) == 1  # collected anew
    monkeypatch.chdir(finished.parent)
    told = ["reproduce", "--from", finished.name, "--out", str(tmp_path / "again"), "--tolerance", "1e-9"]
    assert main(told) == 0
    assert "1 of them finished before" in capsys.readouterr().err


def test_no_folder_is_named_that_is_gone_afterwards(finished, capsys):
    assert main(["reproduce", "--from", str(finished)]) == 0
    captured = capsys.readouterr()
    assert "icrl-" not in captured.out + captured.err
    assert captured.out.startswith("\nfile ")


def test_rows_that_were_put_aside_are_not_compared(finished, tmp_path, capsys):
    folder = copied(finished, tmp_path / "folder")
    (folder / "rows.before.csv").write_text("domain,td_loss\nreach-v3,0.5\n")
    assert main(["reproduce", "--from", str(folder)]) == 0
    assert "before" not in capsys.readouterr().out


def test_a_file_of_rows_that_the_folder_lacks_is_a_difference(tmp_path, capsys):
    few = ["pretrain", "boyan", "--seeds", "1", "--steps", "2", "--num-states", "4", "--num-features", "4"]
    few += ["--context-length", "8", "--num-layers", "2"]
    assert main([*few, "--out", str(tmp_path / "run")]) == 0
    (tmp_path / "run" / "generalisation.csv").unlink()
    assert main(["reproduce", "--from", str(tmp_path / "run")]) == 1
    printed = capsys.readouterr().out
    assert all(line.endswith("same") for line in printed.splitlines() if line.startswith("rows.csv"))
    assert "generalisation.csv  error" in printed
    assert "column(s) differ" in printed


def test_nothing_is_written_into_the_folder_that_is_only_read(finished, capsys):
    for out in (finished / "again", finished):
        assert main(["reproduce", "--from", str(finished), "--out", str(out)]) == 2
        assert "which is only read; choose another folder with --out" in capsys.readouterr().err
    assert not (finished / "again").exists()


def test_one_changed_digit_is_found(finished, tmp_path, capsys):
    folder = copied(finished, tmp_path / "changed")
    rows = list(csv.reader((folder / "rows.csv").read_text().splitlines()))
    column = rows[0].index("td_loss")
    rows[2][column] = repr(float(rows[2][column]) * (1 + 1e-9))
    with (folder / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    versions = json.loads((folder / "config.json").read_text())
    versions["versions"]["numpy"] = "1.0"
    (folder / "config.json").write_text(json.dumps(versions))
    assert main(["reproduce", "--from", str(folder)]) == 1
    printed = capsys.readouterr().out
    assert "1 column(s) differ." in printed
    assert "numpy: 1.0 then, " in printed
    compared = compare(folder / "rows.csv", finished / "rows.csv")
    assert [each.column for each in compared if each.differing] == ["td_loss"]
    assert max(each.largest for each in compared) == pytest.approx(1e-9, rel=1e-3)
    assert "within tolerance" in table(compared, 1e-8)
    assert "DIFFERS" in table(compared, 1e-10)


def test_a_run_of_several_processes_says_so(finished, tmp_path, capsys, monkeypatch):
    config, others = PretrainStudyConfig(preset="boyan"), VerifyConfig()
    assert "processes" not in describe(config)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert (describe(config)["processes"], "processes" in describe(others)) == (2, False)
    monkeypatch.undo()
    folder = copied(finished, tmp_path / "folder")
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**described, "processes": 2}))
    assert main(["reproduce", "--from", str(folder)]) == 0
    assert "processes: 2 then, 1 now, which rounds sums otherwise; --tolerance allows" in capsys.readouterr().out


def test_what_is_no_finished_run_is_refused_in_one_line(finished, tmp_path, capsys):
    folder = copied(finished, tmp_path / "folder")
    described = json.loads((folder / "config.json").read_text())
    cases = {
        "expected a run of one of transfer": {**described, "study": "transfre"},
        "icrl: from: seeds must be": {**described, "settings": {**described["settings"], "seeds": 0}},
        "has no setting surprise": {**described, "settings": {**described["settings"], "surprise": 1}},
        "gamma must be": {**described, "settings": {**described["settings"], "gamma": "0.9"}},
        "is not a configuration of icrl; choose another folder with --from": {"settings": []},
    }
    for message, content in cases.items():
        (folder / "config.json").write_text(json.dumps(content))
        assert main(["reproduce", "--from", str(folder), "--out", str(tmp_path / "new")]) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "new").exists()
    (folder / "rows.csv").unlink()
    for place in (folder, tmp_path / "absent"):
        assert main(["reproduce", "--from", str(place)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


CONFIGS = [
    TransferConfig(domains=("reach-v3",), noise=("0.3",), goal_visible=False, depth=3),
    PretrainStudyConfig(preset="linear", seeds=2, tied=False),
    VerifyConfig(chains=16, topics=("neu", "rkhs")),
    EvaluateConfig(env_id="CartPole-v1", env_args=("a=1", "b=2")),
]
CONFIGS += [kind() for name, (kind, _) in STUDIES.items() if name not in {*WITHOUT_ROWS, "evaluate"}]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_every_study_is_rebuilt_from_its_folder_and_writes_into_the_new_one_only(config, tmp_path):
    described = json.loads(json.dumps(describe(config)))
    elsewhere = {"out": "/etc/out", "cache": "../../cache", "workers": 7, "executor": "ray", "ray_address": "far:1"}
    described["settings"] |= {name: value for name, value in elsewhere.items() if name in described["settings"]}
    again, study = rebuilt(described, tmp_path, STUDIES)
    assert study is STUDIES[described["study"]][1]
    assert again.out == tmp_path / "out"
    settings, expected = describe(again)["settings"], describe(config)["settings"]
    for name, value in expected.items():
        assert settings[name] == value or name in ("out", "cache")
    assert settings.get("cache", str(tmp_path / "cache")) == str(tmp_path / "cache")


@pytest.mark.parametrize("change", [{"policy": "model.zip"}, {"env_id": "module:Id-v0"}], ids=str)
def test_a_folder_runs_no_code_of_others_unless_it_is_trusted(change, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.zip").touch()
    described = describe(EvaluateConfig(**{"env_id": "CartPole-v1", **change}))
    with pytest.raises(ValueError, match=r"runs code; if you trust the folder, add --trust"):
        rebuilt(described, tmp_path, STUDIES)
    again, _ = rebuilt(described, tmp_path, STUDIES, trust=True)
    assert describe(again)["settings"] == {**described["settings"], "out": str(tmp_path / "out")}


def test_nothing_but_a_study_with_rows_is_run(tmp_path):
    described = {"study": "collect", "settings": {"env_id": "CartPole-v1", "num_steps": 1, "minari": "a/b-v0"}}
    with pytest.raises(ValueError, match=r"expected a run of one of transfer, .* got 'collect'"):
        rebuilt(described, tmp_path, STUDIES, trust=True)


def test_the_sign_of_zero_is_no_difference(tmp_path):
    for name, content in {"a": "x\n0.0\n1\n", "b": "x\n-0.0\n1.0\n"}.items():
        (tmp_path / name).write_text(content)
    (x,) = compare(tmp_path / "a", tmp_path / "b")
    assert (x.differing, x.largest) == (2, 0.0)


def test_times_are_not_compared_and_missing_rows_and_columns_are(tmp_path):
    for name, content in {"a": "x,seconds\n1,2\n3,4\n", "b": "x,seconds\n1,9\n", "c": "y\n1\n3\n", "d": ""}.items():
        (tmp_path / name).write_text(content)
    (x,) = compare(tmp_path / "a", tmp_path / "b")
    assert (x.column, x.rows, x.differing, x.largest) == ("x", 2, 1, float("inf"))
    assert [(c.column, c.differing) for c in compare(tmp_path / "a", tmp_path / "c")] == [("x", 2), ("y", 2)]
    assert [c.differing for c in compare(tmp_path / "a", tmp_path / "absent")] == [2]
    assert [c.differing for c in compare(tmp_path / "absent", tmp_path / "a")] == [2]
    with pytest.raises(ValueError, match=r"d is no file of rows"):
        compare(tmp_path / "d", tmp_path / "a")
