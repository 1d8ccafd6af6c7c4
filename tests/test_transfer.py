"""The transfer study on one small cell: what it collects, keeps, measures and writes."""

import csv
import dataclasses
import json
import math
import warnings
from typing import cast

import numpy as np
import pytest
import torch

from icrl_agents.adaptive import AdaptiveTD, default_bank
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import LSTD, KernelLSTD
from icrl_agents.studies.cells import CELLS, KeptRows
from icrl_agents.studies.description import identity
from icrl_agents.studies.transfer import trajectories
from icrl_agents.studies.transfer.config import TransferConfig
from icrl_agents.studies.transfer.evaluation import ADAPTIVE, REFERENCES, TRANSFORMERS, Row, evaluate, evaluators
from icrl_agents.studies.transfer.failures import failures, failures_table
from icrl_agents.studies.transfer.run import cells_of, rows_of, run
from icrl_agents.studies.transfer.summary import Summary, mean_estimate, ratio_estimate
from icrl_agents.studies.transfer.trajectories import Request, Trajectories, gathered
from icrl_agents.studies.transfer.truth import held_out_truth
from icrl_agents.transformer import InContextTransformer

SMALL = {
    "domains": ("reach-v3",),
    "noise": ("low",),
    "seeds": 1,
    "context_episodes": 2,
    "held_out_episodes": 2,
    "steps": 30,
    "tail": 10,
    "gamma": 0.7,
    "workers": 1,
}
REQUEST = Request(
    domain="reach-v3",
    noise=0.1,
    seed=0,
    context_episodes=2,
    held_out_episodes=2,
    context_split="train",
    held_out_split="test",
    steps=30,
    observation="core",
    goal_visible=True,
    reward_version="v2",
)


@pytest.fixture(scope="module")
def collected() -> Trajectories:
    return REQUEST.collect()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    config = TransferConfig(**SMALL, out=folder / "out", cache=folder / "cache")
    return config, run(config)


def test_context_and_held_out_trajectories_have_different_goals(collected):
    assert [len(e) for e in collected.context + collected.held_out] == [30] * 4
    goals = [{tuple(e.observations[0, 7:10]) for e in episodes} for episodes in (collected.context, collected.held_out)]
    assert goals[0]
    assert goals[1]
    assert goals[0].isdisjoint(goals[1])


def test_hidden_goals_are_zero_in_every_row():
    hidden = Request(**{**vars(REQUEST), "goal_visible": False}).collect()
    for episode in hidden.context + hidden.held_out:
        assert np.all(episode.observations[:, 7:10] == 0)


def test_collection_is_reproducible_and_survives_the_cache_bit_for_bit(collected, tmp_path):
    again = REQUEST.collect()
    again.save(tmp_path / "kept.npz", REQUEST)
    kept = Trajectories.load(tmp_path / "kept.npz", REQUEST)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.npz"]
    for episodes, expected in ((kept.context, collected.context), (kept.held_out, collected.held_out)):
        for episode, other in zip(episodes, expected, strict=True):
            np.testing.assert_array_equal(episode.observations, other.observations)
            np.testing.assert_array_equal(episode.rewards, other.rewards)
            assert not episode.terminated


@pytest.mark.parametrize(
    "change",
    [
        {"domain": "push-v3"},
        {"noise": 0.2},
        {"seed": 1},
        {"context_episodes": 3},
        {"held_out_episodes": 3},
        {"context_split": "test"},
        {"held_out_split": "train"},
        {"steps": 31},
        {"observation": "full"},
        {"goal_visible": False},
        {"reward_version": "v1"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_cache_is_keyed_by_everything_that_defines_a_request(change):
    assert Request(**{**vars(REQUEST), **change}).key() != REQUEST.key()
    assert Request(**vars(REQUEST)).key() == REQUEST.key()


def test_a_library_of_another_version_does_not_reuse_the_cache(monkeypatch):
    before = REQUEST.key()
    monkeypatch.setattr(trajectories, "version", lambda name: "0.0.0")
    assert REQUEST.key() != before


def test_an_environment_whose_source_has_changed_does_not_reuse_the_cache(monkeypatch):
    before, folder = REQUEST.key(), REQUEST.env("train").__class__.__module__.rpartition(".")[0]
    assert folder.replace(".", "/") == trajectories.ENVIRONMENT
    assert trajectories.source_digest(trajectories.ENVIRONMENT) != trajectories.source_digest()
    monkeypatch.setattr(trajectories, "source_digest", lambda folder: f"another {folder}")
    assert REQUEST.key() != before


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 not an archive", "half"], ids=["empty", "garbage", "half"])
def test_a_damaged_cache_file_is_collected_again_with_a_warning(collected, tmp_path, monkeypatch, damage):
    path = tmp_path / REQUEST.key()
    collected.save(path, REQUEST)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage == "half" else damage)
    with pytest.warns(UserWarning, match=r"damaged .*; collecting it again"):
        found = gathered(REQUEST, tmp_path)
    np.testing.assert_array_equal(found.context[0].rewards, collected.context[0].rewards)
    monkeypatch.setattr(Request, "collect", None)
    with warnings.catch_warnings(action="error"):
        kept = gathered(REQUEST, tmp_path)
    np.testing.assert_array_equal(kept.context[0].rewards, collected.context[0].rewards)


def test_the_trajectories_of_another_request_are_not_taken_for_these(collected, tmp_path):
    collected.save(tmp_path / REQUEST.key(), Request(**{**vars(REQUEST), "seed": 1}))
    with pytest.warns(UserWarning, match="another request"):
        found = gathered(REQUEST, tmp_path)
    np.testing.assert_array_equal(found.context[0].rewards, collected.context[0].rewards)


def test_nothing_pickled_is_loaded_from_the_cache(tmp_path, monkeypatch):
    class Trap:
        def __reduce__(self):
            return print, ("unpickled",)

    path, trap = tmp_path / REQUEST.key(), np.array([Trap()], dtype=object)
    named = {"context_observations": trap, "context_rewards": trap}
    np.savez(path, identity=np.array(REQUEST.identity()), **named)  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr("builtins.print", None)
    with pytest.warns(UserWarning, match=r"damaged .*allow_pickle=False"):
        gathered(REQUEST, tmp_path)


def test_an_evaluator_without_a_solution_leaves_the_others_standing(collected):
    config = TransferConfig(**SMALL, depth=2, ridge=0.0)
    zero = Trajectories([Episode(0 * e.observations, e.rewards) for e in collected.context], collected.held_out)
    named = {"kernel LSTD": KernelLSTD(lambda x, y: x.new_zeros(len(x), len(y)), 0.0), "LSTD": LSTD(0.0)}
    with pytest.warns(UserWarning, match="KernelLSTD: left out of a cell: "):
        rows = list(evaluate(config, named, REQUEST, "low", zero))
    assert [(row.evaluator, math.isfinite(row.td_loss)) for row in rows] == [("kernel LSTD", False), ("LSTD", True)]


FILES = ["cells.jsonl", "config.json", "heat_map.png", "rows.csv", "td_loss.png"]


def test_a_run_writes_its_folder_and_a_second_one_computes_nothing(finished, capsys, monkeypatch):
    config, summary = finished
    assert sorted(p.name for p in config.out.iterdir()) == FILES
    first = {path.name: path.read_bytes() for path in config.out.iterdir()}
    monkeypatch.setattr(Request, "collect", None)
    run(config)
    assert {path.name: path.read_bytes() for path in config.out.iterdir()} == first
    printed = capsys.readouterr()
    assert summary.table() in printed.out
    assert "1 of them finished before" in printed.err
    (config.out / "rows.csv").write_text("mine\n1\n")
    with pytest.warns(UserWarning, match=r"rows\.csv: held other rows, which are kept as rows\.before\.csv"):
        run(config)
    assert (config.out / "rows.before.csv").read_text() == "mine\n1\n"
    assert (config.out / "rows.csv").read_bytes() == first["rows.csv"]
    (config.out / "rows.before.csv").unlink()


def test_trajectories_come_from_the_cache_in_a_new_folder(finished, tmp_path, monkeypatch):
    config, _ = finished
    monkeypatch.setattr(Request, "collect", None)
    run(dataclasses.replace(config, out=tmp_path / "out"))
    assert (tmp_path / "out" / "rows.csv").read_bytes() == (config.out / "rows.csv").read_bytes()


def test_rows_do_not_depend_on_executor_workers_or_interruptions(tmp_path, monkeypatch):
    config = TransferConfig(**{**SMALL, "noise": ("low", "0.3"), "workers": 2}, out=tmp_path / "processes", depth=2)
    config = dataclasses.replace(config, cache=tmp_path / "cache")
    run(config)
    serial = dataclasses.replace(
        config, out=tmp_path / "serial", cache=tmp_path / "another", executor="serial", workers=0
    )
    finished = KeptRows(tmp_path / "serial" / CELLS, identity(serial))
    run(serial)
    assert (tmp_path / "serial" / "rows.csv").read_bytes() == (tmp_path / "processes" / "rows.csv").read_bytes()
    lines = finished.path.read_bytes().splitlines(keepends=True)
    finished.path.write_bytes(lines[1])  # as if only the second cell had been finished
    (tmp_path / "serial" / "rows.csv").unlink()
    computed = []
    monkeypatch.setattr(
        "icrl_agents.studies.transfer.run.rows_of", lambda c, cell: computed.append(cell) or rows_of(c, cell)
    )
    run(serial)
    assert computed == [next(iter(cells_of(serial).values()))]
    assert (tmp_path / "serial" / "rows.csv").read_bytes() == (tmp_path / "processes" / "rows.csv").read_bytes()


def test_rows_say_what_was_measured_and_the_configuration_how_to_repeat_it(finished):
    config, _ = finished
    with (config.out / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["evaluator"], r["depth"]) for r in rows] == [
        *((name, str(depth)) for name in TRANSFORMERS for depth in config.depths),
        *((name, "") for name in (ADAPTIVE, *REFERENCES)),
    ]
    described = json.loads((config.out / "config.json").read_text())
    assert described["settings"]["gamma"] == 0.7
    assert described["settings"]["goal_visible"] is True
    assert described["settings"]["reward_version"] == "v2"
    assert [described["settings"][f"{part}_split"] for part in ("context", "held_out")] == ["train", "test"]
    assert {"icrl", "gymnasium", "metaworld", "mujoco", "numpy", "torch", "python", "source"} <= set(
        described["versions"]
    )


def test_losses_and_errors_are_those_of_the_equations(collected):
    config = TransferConfig(**SMALL, depth=3)
    named = evaluators(config, dim=10)
    rows = list(evaluate(config, {"softmax": named["softmax"]}, REQUEST, "low", collected))
    assert [row.depth for row in rows] == [0, 1, 2, 3]

    def kappa(x, y):
        return math.exp(-sum(abs(a - b) for a, b in zip(x, y, strict=True)) / config.length_scale)

    keys, targets = [], []
    for episode in collected.context:
        for t in range(len(episode)):
            keys.append(episode.observations[t].tolist())
            targets.append((episode.rewards[t], episode.observations[t + 1].tolist()))
    w = [0.0] * len(keys)
    counted = [(e.rewards, t) for e in collected.context for t in range(30 - config.tail + 1)]
    seen = [sum(0.7 ** (k - t) * rewards[k] for k in range(t, 30)) for rewards, t in counted]

    def value(x):
        weights = [kappa(x, key) for key in keys]
        return sum(a * b for a, b in zip(weights, w, strict=True)) / sum(weights)

    for row in rows:
        losses, errors, truths = [], [], []
        for episode in collected.held_out:
            v = [value(o.tolist()) for o in episode.observations]
            losses += [(episode.rewards[t] + 0.7 * v[t + 1] - v[t]) ** 2 for t in range(30)]
            for t in range(30 - config.tail + 1):
                truths.append(sum(0.7 ** (k - t) * episode.rewards[k] for k in range(t, 30)))
                errors.append(v[t] - truths[-1])
        assert row.td_loss == pytest.approx(np.mean(losses), rel=1e-10)
        assert row.msve == pytest.approx(np.mean(np.square(errors)), rel=1e-9)
        assert row.centred_msve == pytest.approx(np.var(errors), rel=1e-9)
        assert row.return_power == pytest.approx(np.mean(np.square(truths)), rel=1e-10)
        assert row.return_variance == pytest.approx(np.var(truths), rel=1e-9)
        assert row.context_return_variance == pytest.approx(np.var(seen), rel=1e-9)
        delta = [r + 0.7 * value(x_next) - value(x) for x, (r, x_next) in zip(keys, targets, strict=True)]
        w = [a + d for a, d in zip(w, delta, strict=True)]


def test_one_fixed_set_of_weights_serves_every_cell(collected):
    config = TransferConfig(**SMALL, depth=2)
    named = evaluators(config, dim=10)
    models = {name: cast(InContextTransformer, named[name]) for name in TRANSFORMERS}
    before = {name: {k: t.clone() for k, t in model.state_dict().items()} for name, model in models.items()}
    list(evaluate(config, named, REQUEST, "low", collected))
    scaled = [Episode(e.observations, 7 * np.asarray(e.rewards)) for e in collected.context]
    list(evaluate(config, named, REQUEST, "low", Trajectories(scaled, collected.held_out)))
    for name, state in before.items():
        assert state
        for key, tensor in models[name].state_dict().items():
            assert torch.equal(tensor, state[key])


def test_an_output_folder_of_another_configuration_is_refused_before_any_work(finished, monkeypatch):
    config, _ = finished
    monkeypatch.setattr(Request, "collect", None)
    before = {path.name: path.read_bytes() for path in config.out.iterdir()}
    other = TransferConfig(**{**SMALL, "steps": 31}, out=config.out, cache=config.cache)
    with pytest.raises(ValueError, match=r"another configuration \(other steps\); choose another folder with --out"):
        run(other)
    assert {path.name: path.read_bytes() for path in config.out.iterdir()} == before
    with pytest.raises(ValueError, match="not an empty folder"):
        run(TransferConfig(**SMALL, out=config.cache, cache=config.cache))


def test_estimates():
    estimate = mean_estimate([1.0, 2.0, 3.0])
    assert estimate.mean == 2.0
    assert estimate.standard_error == pytest.approx(1 / math.sqrt(3))
    assert str(estimate) == "2±0.58"
    assert str(mean_estimate([0.25])) == "0.25"
    assert str(mean_estimate([0.1 + 0.2, 0.3, 0.3])) == "0.3±0"
    ratio = ratio_estimate([1.0, 2.0, 4.0], [2.0, 2.0, 2.0])
    assert ratio.mean == pytest.approx(7 / 6)
    # With equal denominators the jackknife is the standard error of the mean of the ratios.
    assert ratio.standard_error == pytest.approx(np.std([0.5, 1.0, 2.0], ddof=1) / math.sqrt(3))
    assert str(ratio_estimate([1e-9, 1e-9], [1e-8, 1e-8])) == "–"
    assert math.isinf(ratio_estimate([math.inf, 1.0], [1.0, 1.0]).mean)


def test_adaptive_rows_are_those_of_the_mixture(collected):
    walks = Trajectories([*collected.context, *collected.held_out], collected.held_out)
    config = TransferConfig(**SMALL, depth=8)
    (row,) = evaluate(config, {ADAPTIVE: evaluators(config, dim=10)[ADAPTIVE]}, REQUEST, "low", walks)
    values = AdaptiveTD(default_bank(8), (2, 8)).fit(Context.from_episodes(walks.context, 0.7))
    held_out = Context.from_episodes(walks.held_out, 0.7)
    assert row.depth is None
    assert row.td_loss == pytest.approx(float(values.td_errors(held_out).square().mean()))
    assert math.isfinite(row.centred_msve)


def test_true_errors_are_those_against_means_of_continuations(finished, tmp_path, capsys):
    config = dataclasses.replace(finished[0], depth=2, truth_states=2, continuations=3, out=tmp_path / "out")
    summary = run(config)
    (cell,) = cells_of(config).values()
    numbers = {"gamma": 0.7, "tail": 10, "states_per_episode": 2, "continuations": 3}
    truth = held_out_truth(cell[1], tmp_path / "again", **numbers)
    values = evaluators(config, dim=10)["softmax"].fit(
        Context.from_episodes(gathered(cell[1], tmp_path / "again").context, 0.7)
    )

    def centred(guess):  # what the noise of the means puts into the variance of the errors is taken away
        errors = [v - np.mean(g) for v, g in zip(guess, truth.returns, strict=True)]
        noise = [np.var(g, ddof=1) / 3 for g in truth.returns]
        return np.var(errors) - (1 - 1 / 4) * np.mean(noise)

    variance = centred([0.0] * 4)
    for depth, row in enumerate(summary.rows[:3]):
        assert (row.evaluator, row.depth) == ("softmax", depth)
        error = centred([float(values.at_depth(depth)(x)) for x in truth.observations])
        assert row.true_centred_msve == pytest.approx(error)
        assert row.true_variance == pytest.approx(variance)
        assert summary.true_error("reach-v3", "low", "softmax", depth).mean == pytest.approx(error / variance)
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split()[-1] == "true"
    assert "True: centred, against means of 3 continuations from each of 2 states" in printed
    for row, before in zip(summary.rows[:3], finished[1].rows[:3], strict=True):
        assert row.td_loss == pytest.approx(before.td_loss)
        assert math.isnan(before.true_variance)


def test_failures_are_what_is_left_above_the_limits_and_nothing_where_nothing_varies():
    nan, cells = math.nan, {"fine": (0.1, 0.1, 1.0), "lossy": (0.5, 0.1, 1.0), "wrong": (0.1, 0.6, 4.0)}
    cells |= {"still": (0.1, 0.6, 0.0), "unsolved": (nan, nan, 1.0)}
    rows = [
        Row(
            domain=domain, noise="low", sigma=0.1, seed=0, evaluator=name, depth=depth,
            td_loss=1.0 if depth == 0 and (name == "linear" or domain != "unsolved") else share,
            msve=0.0, centred_msve=error * variance,
            return_power=1.0, return_variance=variance, context_return_variance=9.0,
        )
        for domain, (share, error, variance) in cells.items()
        for name, depth in (("softmax", 0), ("softmax", 2), ("linear", 0), (ADAPTIVE, None))
    ]  # fmt: skip
    summary = Summary(rows)
    assert failures(summary) == [("lossy", "low"), ("wrong", "low"), ("unsolved", "low")]
    assert summary.relative_td_loss("unsolved", "low", "linear", 0).mean == 1.0
    title, header, rule, *lines = failures_table(summary).splitlines()
    assert title.startswith("Failures, 3 of 5 cells: more than 0.4 of the TD loss")
    assert [header.split()[0], set(rule.strip())] == ["domain", {"─"}]
    assert [line.split() for line in lines] == [
        ["lossy", "low", "0.50", "0.50", "0.10", "0.10", "3.00", "1.00"],
        ["wrong", "low", "0.10", "0.10", "0.60", "0.60", "3.00", "2.00"],
        ["unsolved", "low", "–", "–", "–", "–", "3.00", "1.00"],
    ]
    assert len(failures_table(Summary([row for row in rows if row.domain == "fine"])).splitlines()) == 1
    true = Summary(dataclasses.replace(row, true_centred_msve=0.2, true_variance=4.0) for row in rows)
    *_, lossy, wrong, _ = failures_table(true).splitlines()
    assert [lossy.split()[4:8], wrong.split()[4:8]] == [
        ["0.10", "0.10", "0.05", "0.05"],
        ["0.60", "0.60", "0.05", "0.05"],
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domains": ("pick-place",)}, "Did you mean 'pick-place-v3'"),
        ({"noise": ("medum",)}, "Did you mean 'medium'"),
        ({"noise": ("-1",)}, "noise must be"),
        ({"noise": ("low", "0.1")}, "repetition"),
        ({"domains": ()}, "at least one"),
        ({"gamma": 1.0}, "gamma must be"),
        ({"gamma": 0.9}, r"tail: after 10 rewards, 35% of a return .* take tail ≥ 29 and more steps"),
        ({"kernel": "gauss"}, "kernel must be"),
        ({"form": "dual"}, "form must be one of 'dual_head', 'temporal_shift'"),
        ({"observation": "pixels"}, "observation must be"),
        ({"reward_version": "v3"}, "reward_version must be"),
        ({"steps": 501}, "steps must be"),
        ({"steps": 5}, "tail: expected at most steps = 5, got 10"),
        ({"tail": 0}, "tail must be"),
        ({"seeds": 0}, "seeds must be"),
        ({"depth": -1}, "depth must be"),
        ({"length_scale": 0.0}, "length_scale must be"),
        ({"kernel_length_scale": math.nan}, "kernel_length_scale must be"),
        ({"ridge": -1.0}, "ridge must be"),
        ({"continuations": -1}, "continuations must be"),
        ({"continuations": 1}, "continuations: expected 0, or 2 and more"),
        ({"truth_states": 4}, "truth_states: expected none without continuations, got 4"),
        ({"continuations": 2, "truth_states": 30}, "truth_states: expected at most 21, got 30"),
        ({"workers": -1}, "workers must be"),
        ({"executor": "cluster"}, "executor must be one of"),
        ({"ray_address": "auto", "workers": 0}, "ray_address: expected executor 'ray'"),
        ({"held_out_split": "all"}, "held_out_split must be one of 'train', 'test'"),
    ],
)
def test_wrong_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TransferConfig(**{**SMALL, **change})


def test_all_names_every_domain():
    assert len(TransferConfig(domains=("all",)).resolved_domains) == 50
