"""The control study: what it runs, measures, keeps and says."""

import csv
import json
import sys

import numpy as np
import pytest
import torch

from icrl_agents.command_line import main
from icrl_agents.studies.control.config import CRITICS, ENVIRONMENTS, PRESETS, ControlConfig

pytest.importorskip("stable_baselines3")

from stable_baselines3 import PPO

from icrl_agents.integrations.sb3 import InContextPPO
from icrl_agents.studies.control.config import Cell
from icrl_agents.studies.control.figures import curves_figure
from icrl_agents.studies.control.pretrained import (
    CONTEXT,
    QUERIES,
    TASKS,
    pretrain_critic,
    pretrained_critic,
    random_contexts,
)
from icrl_agents.studies.control.summary import Summary
from icrl_agents.studies.control.training import Row, make_model

SMALL = "control full --environments Pendulum-v1 --critics softmax learned --steps 1024 --seeds 1 --executor serial"


def row(critic, seed, step, mean_return, environment="CartPole-v1"):
    return Row(
        environment=environment,
        critic=critic,
        seed=seed,
        total_steps=4_000,
        step=step,
        mean_return=mean_return,
        seconds=step / 1_000,
    )


def test_a_small_run_writes_everything_and_goes_on_where_it_was(tmp_path, capsys):
    out = tmp_path / "out"
    command = [*SMALL.split(), "--out", str(out)]
    assert main(command) == 0
    table = capsys.readouterr().out
    assert "softmax TD" in table
    assert "learned, same settings" in table
    with (out / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [r["step"] for r in rows] == ["0", "1024"] * 2
    assert rows[0]["mean_return"] == rows[2]["mean_return"]  # the same actor before the first update
    assert rows[1]["mean_return"] != rows[3]["mean_return"]
    assert json.loads((out / "config.json").read_text())["settings"]["seeds"] == 1
    cells = (out / "cells.jsonl").read_text().splitlines()
    (out / "cells.jsonl").write_text(cells[0] + "\n")
    (out / "curves.png").unlink()
    (out / "rows.csv").unlink()
    assert main(command) == 0
    with (out / "rows.csv").open() as file:
        again = list(csv.DictReader(file))
    assert again[:2] == rows[:2]  # with the times of the first run: kept, not computed again
    assert again[2]["seconds"] != rows[2]["seconds"] or again[3]["seconds"] != rows[3]["seconds"]
    assert [r["mean_return"] for r in again] == [r["mean_return"] for r in rows]
    assert (out / "curves.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--critics", "neural"], "neural"),
        (["--environments", "Pong-v5"], "Pong-v5"),
        (["--environments", "Acrobot-v1"], "no such run with Acrobot-v1"),
        (["--seeds", "0"], "seeds must be an integer"),
        (["--steps", "-1"], "steps must be an integer"),
        (["--workers", "-1"], "workers must be an integer"),
    ],
)
def test_mistakes_are_one_line(options, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["control", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_without_the_library_one_line_says_how_to_install_it(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    assert main(["control", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "icrl control needs stable_baselines3" in error
    assert "pip install 'icrl[sb3]'" in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_presets_have_ten_seeds_and_every_critic():
    for name in ("standard", "full"):
        cells = ControlConfig(preset=name).cells()
        assert len({cell.name for cell in cells}) == len(cells)
        assert {cell.seed for cell in cells} == set(range(10))
        assert {cell.critic for cell in cells} == set(CRITICS)
    assert {cell.environment for cell in ControlConfig(preset="full").cells()} == set(ENVIRONMENTS)
    assert len(ControlConfig().cells()) == PRESETS["quick"].seeds * 2


@pytest.mark.parametrize("critic", CRITICS)
def test_only_the_critic_differs(critic):
    model = make_model(Cell("Pendulum-v1", critic, 7, 1_000), pretrained=pretrain_critic(steps=0))
    assert isinstance(model, InContextPPO) == (critic not in ("learned", "default"))
    assert model.n_envs == (1 if critic == "default" else 4)
    assert model.gamma == (0.99 if critic == "default" else 0.9)
    reference = PPO("MlpPolicy", "Pendulum-v1", seed=7, device="cpu")
    first, expected = (each.policy.state_dict()["mlp_extractor.policy_net.0.weight"] for each in (model, reference))
    assert torch.equal(first, expected)


def test_the_pretrained_critic_needs_its_transformer():
    with pytest.raises(ValueError, match="expected a transformer"):
        make_model(Cell("Pendulum-v1", "pretrained", 7, 1_000))


def test_pretraining_knows_no_dimension_and_starts_the_same_each_time():
    first, again = (pretrain_critic(seed=3, steps=2).state_dict() for _ in range(2))
    untrained = pretrain_critic(seed=3, steps=0).state_dict()
    assert sum(weight.numel() for weight in first.values()) == 4
    for name, weight in first.items():
        assert bool((weight == again[name]).all())
        assert bool((weight != untrained[name]).any())


def test_contexts_to_pretrain_on_are_followed_by_states_with_their_returns():
    contexts, returns = random_contexts(np.random.default_rng(0))
    assert contexts.points.shape == (TASKS, CONTEXT + QUERIES, 4)
    np.testing.assert_allclose(contexts.points[:, :CONTEXT].mean(1), 0.0, atol=1e-5)
    np.testing.assert_allclose(contexts.points[:, :CONTEXT].std(1, correction=0), 1.0, atol=1e-5)
    assert returns.shape == (TASKS, QUERIES)
    assert float(returns.min()) >= 1.0  # a fall ends an episode after the reward of its step
    assert float(returns.max()) <= 100.0
    following = 1.0 + 0.99 * returns[:, 1:]
    ends = returns[:, :-1] == 1.0
    np.testing.assert_allclose(returns[:, :-1][~ends], following[~ends], rtol=1e-5)


def test_a_pretrained_critic_whose_saving_was_killed_is_trained_again(tmp_path):
    (tmp_path / "pretrained").mkdir()
    pretrained_critic(tmp_path / "pretrained", steps=0)
    (tmp_path / "pretrained" / "config.json").unlink()
    pretrained_critic(tmp_path / "pretrained", steps=0)


def test_the_pretrained_critic_is_kept(tmp_path):
    trained = pretrained_critic(tmp_path / "pretrained", steps=1)
    again = pretrained_critic(tmp_path / "pretrained", steps=0)
    for name, weight in trained.state_dict().items():
        assert bool((weight == again.state_dict()[name]).all())


@pytest.mark.slow
def test_processes_share_the_pretrained_critic(tmp_path, capsys):
    command = "control full --environments Pendulum-v1 --critics pretrained adaptive --steps 1024 --seeds 1 --workers 1"
    assert main([*command.split(), "--out", str(tmp_path / "out")]) == 0
    assert "pretrained transformer" in capsys.readouterr().out
    weights = pretrained_critic(tmp_path / "out" / "pretrained").state_dict()
    assert any(0.05 < float(weight) < 1.0 for weight in weights.values() if weight.numel() == 1)


def test_after_is_the_median_of_the_seeds_first_passages():
    firsts = [2_000, 3_000, 4_500, 8_000]
    rows = [row("softmax", s, t, 500.0 * (t >= first)) for s, first in enumerate(firsts) for t in (0, *firsts)]
    assert Summary(rows).table().splitlines()[1].split()[-3:-1] == ["4/4", "3,750"]


def test_an_interval_is_one_over_several_seeds():
    rows = [row(critic, 0, step, 100.0) for critic in ("softmax", "default") for step in (0, 4_800)]
    rows += [row(critic, 0, step, -500.0, "Acrobot-v1") for critic in ("softmax", "default") for step in (0, 4_800)]
    assert "[" not in Summary(rows).table()
    rows += [row("softmax", 1, step, 300.0) for step in (0, 4_800)]
    lines = Summary(rows).table().splitlines()
    assert "200 [100, 300]" in lines[1]
    assert [line.count("[") for line in lines[1:]] == [2, 0, 0, 0, 1, 0]


def test_areas_first_passages_and_scores(tmp_path):
    rows = [row("softmax", seed, step, 20.0 + step / 10 + seed) for seed in (0, 1) for step in (0, 2_000, 4_800)]
    rows += [row("default", seed, step, 20.0) for seed in (0, 1) for step in (0, 4_800)]
    rows += [row(c, 0, step, -500.0, "Acrobot-v1") for c in ("softmax", "default") for step in (0, 4_800)]
    summary = Summary(rows)
    curves = summary.curves["CartPole-v1", "softmax"]
    np.testing.assert_allclose(curves.early(), [260.0, 261.0])
    np.testing.assert_array_equal(curves.first(220.0), [2_000, 2_000])
    np.testing.assert_array_equal(curves.first(500.5), [np.inf, 4_800])
    assert summary.critics("CartPole-v1") == ["softmax", "default"]
    np.testing.assert_allclose(summary.early_score("default").centre, 0.0, atol=1e-12)
    table = summary.table().splitlines()
    assert table[1].split()[-3:] == ["2/2", "4,800", "10.0"]
    assert sum(line.startswith("all, scored 0 to 1") for line in table) == 2
    curves_figure(summary, tmp_path / "curves.png", early=True)
    assert (tmp_path / "curves.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"critics": ("softmax", "lstd", "learned")}, "critics: the preset 'quick' has no such run with lstd, learned"),
        ({"critics": ()}, r"critics: expected at least one, each once, got \(\)"),
        ({"environments": ("CartPole-v1",) * 2}, "environments: expected at least one, each once"),
        ({"environments": ("CartPole-v1", "Acrobot-v1")}, "environments: the preset 'quick' .* with Acrobot-v1"),
        ({"preset": "standard", "critics": ("kernel",), "environments": ("Pendulum-v1",)}, "no such run with"),
        (
            {"preset": "full", "critics": ("learned",), "environments": ("Acrobot-v1",)},
            "no such run with Acrobot-v1; take 'default', which is the same there",
        ),
    ],
)
def test_what_a_preset_does_not_have_is_refused_and_not_left_out(options, message):
    with pytest.raises(ValueError, match=message):
        ControlConfig(**options)
