"""The transfer matrix: one small run."""

import csv
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from icrl_agents.command_line import main
from icrl_agents.context import Context
from icrl_agents.studies.matrix import data, evaluation, tables
from icrl_agents.studies.matrix.config import MatrixConfig
from icrl_agents.studies.matrix.data import Cell
from icrl_agents.studies.matrix.evaluation import CONSTRUCTED, folder_of
from icrl_agents.studies.matrix.run import cells_of, run
from icrl_agents.studies.matrix.summary import Summary
from icrl_agents.transformer import InContextTransformer
from icrl_envs.metaworld.mrp import MetaWorldMRPEnv

SMALL = {
    "domains": ("reach-v3",),
    "noise": ("high", "low"),
    "seeds": 2,
    "tasks": 4,
    "updates": 2,
    "batch_episodes": 2,
    "window": 20,
    "context_episodes": 2,
    "held_out_episodes": 2,
    "steps": 30,
    "tail": 10,
    "gamma": 0.7,
    "depth": 6,
    "min_depth": 2,
    "workers": 1,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[MatrixConfig, Summary]:
    folder = tmp_path_factory.mktemp("study")
    config = MatrixConfig(**SMALL, out=folder / "out", cache=folder / "cache")
    return config, run(config)


def test_a_run_writes_rows_weights_figures_and_transformers(finished):
    config, summary = finished
    names = ["cells.jsonl", "config.json", "depth.png", "matrix.png", "models", "rows.csv", "weights.csv"]
    assert sorted(path.name for path in config.out.iterdir()) == names
    found = {(r.source, r.model, r.depth) for r in summary.rows}
    depths = config.transfer().depths
    expected = {(s, m, depth) for s in ("reach-v3", CONSTRUCTED) for m in ("softmax", "linear") for depth in depths}
    assert found == expected | {(CONSTRUCTED, "LSTD", None)}
    assert len(summary.rows) == 2 * 2 * len(found)
    with (config.out / "weights.csv").open(newline="") as file:
        weights = list(csv.DictReader(file))
    scales = [float(row["value"]) for row in weights if (row["weight"], row["seed"]) == ("length_scale", "1")]
    kept = InContextTransformer.from_pretrained(folder_of(config, Cell("reach-v3", 1), "softmax")).state_dict()
    assert scales == kept["blocks.0.attention.kernel.length_scale"].tolist()
    values = [float(row["value"]) for row in weights if (row["weight"], row["seed"]) == ("value_weights", "1")]
    assert values == kept["blocks.0.value_weights"].tolist()
    assert values[0] == values[1] == -values[2]


@pytest.mark.parametrize("model", ["softmax", "linear"])
def test_frozen_weights_give_the_rows_by_the_equations(finished, model):
    config, summary = finished
    transformer = InContextTransformer.from_pretrained(folder_of(config, Cell("reach-v3", 0), model))
    trajectories = data.evaluation(config, "reach-v3", 0.1, 0)
    values = transformer.fit(Context.from_episodes(trajectories.context, 0.7))
    losses, errors = [], []
    for episode in trajectories.held_out:
        v = [float(values(x)) for x in np.asarray(episode.observations, dtype=float)]
        r = episode.rewards
        losses += [(r[t] + 0.7 * v[t + 1] - v[t]) ** 2 for t in range(30)]
        errors += [v[t] - sum(0.7 ** (k - t) * r[k] for k in range(t, 30)) for t in range(30 - config.tail + 1)]
    cell = ("reach-v3", 0, "low", model, 6)
    (row,) = [r for r in summary.rows if (r.source, r.seed, r.noise, r.model, r.depth) == cell]
    rewards = [reward for episode in trajectories.held_out for reward in episode.rewards]
    assert row.td_loss == pytest.approx(np.mean(losses))
    assert row.msve == pytest.approx(np.mean(np.square(errors)))
    assert row.centred_msve == pytest.approx(np.var(errors))
    assert row.zero_td_loss == pytest.approx(np.mean(np.square(rewards)))


def test_a_finished_run_is_not_computed_again(finished, capsys, monkeypatch):
    config, summary = finished
    monkeypatch.setattr(evaluation, "pretrained", None)
    assert tables.matrix(run(config), "TD loss") == tables.matrix(summary, "TD loss")
    printed = capsys.readouterr().out
    assert "softmax, pretrained, against" in printed
    assert "ransferred" not in printed  # from one domain to another


def test_a_transformer_that_is_damaged_or_missing_is_made_again_with_its_rows(finished, monkeypatch):
    config, summary = finished
    weights = folder_of(config, Cell("reach-v3", 1), "softmax") / "model.safetensors"
    others = folder_of(config, Cell("reach-v3", 0), "linear")
    whole, rows = weights.read_bytes(), (config.out / "rows.csv").read_bytes()
    weights.write_bytes(whole[:50])
    with pytest.warns(UserWarning, match=r"models: 1 cell\(s\) with a damaged or missing transformer; computing"):
        assert run(config).rows == summary.rows
    assert weights.read_bytes() == whole
    shutil.rmtree(others)
    with pytest.warns(UserWarning, match=r"models: 1 cell\(s\) with"):
        run(config)
    assert InContextTransformer.from_pretrained(others).loops == 6
    assert (config.out / "rows.csv").read_bytes() == rows
    monkeypatch.setattr(evaluation, "pretrained", None)
    assert run(config).rows == summary.rows


def test_no_goal_is_shared_and_one_that_is_stops_the_cell(finished, monkeypatch):
    config, _ = finished
    fresh = data.evaluation_seed(0)
    sets = []
    for split, seed in (("train", 0), ("train", fresh), ("test", fresh)):
        env = MetaWorldMRPEnv("reach-v3", split=split, task_seed=seed)
        assert env.goals is not None
        sets.append({tuple(goal) for goal in env.goals})
        env.close()
    assert len(set.union(*sets)) == sum(map(len, sets))
    data.check_goals(Cell("reach-v3", 0))
    observed = [set(), set()]
    episodes = data.source_episodes(config, Cell("reach-v3", 0)), data.evaluation(config, "reach-v3", 1.0, 0).held_out
    for goals, part in zip(observed, episodes, strict=True):
        goals |= {tuple(episode.observations[0, -3:]) for episode in part}
    assert not observed[0] & observed[1]
    monkeypatch.setattr(data, "evaluation_seed", lambda seed: seed + 1)
    data.check_goals(Cell("reach-v3", 0))
    monkeypatch.setattr(data, "evaluation_seed", lambda seed: seed)
    with pytest.raises(ValueError, match=r"50 goal\(s\) of pretraining and evaluation are equal at seed 0"):
        data.check_goals(Cell("reach-v3", 0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domains": ("all",)}, "expected names of domains"),
        ({"domains": ("reach",)}, "Did you mean"),
        ({"tasks": 3}, "tasks must be an integer ≥ 4"),
        ({"window": 31}, "window must be"),
        ({"min_depth": 7}, "min_depth must be"),
        ({"learning_rate": 0.0}, "learning_rate must be"),
        ({"learning_rate": 1e300}, r"learning_rate must be a finite number in \(0, 1\]"),
        ({"linear_learning_rate": math.inf}, "linear_learning_rate must be"),
        ({"kernel": "linear"}, "kernel must be one of"),
        ({"value_weights": "tied"}, "value_weights must be one of"),
        ({"executor": "ray"}, "executor must be one of"),
        ({"seeds": 501}, "seeds must be"),
        ({"first_seed": 501}, "first_seed must be"),
    ],
)
def test_wrong_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        MatrixConfig(**{**SMALL, **change})


def test_the_command_says_what_is_wrong_and_names_its_cells(capsys):
    assert main(["matrix", "--window", "300"]) == 2
    assert capsys.readouterr().err.startswith("icrl: window must be")
    assert next(iter(cells_of(MatrixConfig(out=Path("out"))))) == "pick-place-v3, seed 0"
