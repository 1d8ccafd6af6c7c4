"""The adaptation study: one small run, and its summary on rows whose ratios are known."""

import csv
import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from icrl_agents.adaptive import AdaptiveTD
from icrl_agents.command_line import main
from icrl_agents.constructions import linear_td
from icrl_agents.context import Context
from icrl_agents.diagnostics import td_loss
from icrl_agents.episode import Episode
from icrl_agents.evaluators import KernelTD, WeightedSoftmaxTD
from icrl_agents.kernels import Laplace
from icrl_agents.studies.adapt.config import AdaptConfig
from icrl_agents.studies.adapt.evaluation import ADAPTIVE, FIXED, NAIVE, Row, evaluate, label
from icrl_agents.studies.adapt.run import rows_of, run
from icrl_agents.studies.adapt.summary import FLOOR, LEAVE_ONE_OUT, MIXTURE, Summary, _comparison, _ratios
from icrl_agents.studies.transfer.evaluation import _scores, _Target
from icrl_agents.studies.transfer.run import cells_of
from icrl_agents.studies.transfer.trajectories import Trajectories, gathered
from icrl_agents.studies.transfer.truth import held_out_truth

SMALL = {
    "domains": ("reach-v3",),
    "noise": ("high", "low"),
    "seeds": 1,
    "context_episodes": 3,
    "held_out_episodes": 2,
    "steps": 30,
    "tail": 10,
    "gamma": 0.7,
    "depth": 8,
    "caution": 0.5,
    "workers": 1,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[AdaptConfig, Summary]:
    folder = tmp_path_factory.mktemp("study")
    config = AdaptConfig(**SMALL, out=folder / "out", cache=folder / "cache")
    return config, run(config)


def test_a_run_writes_rows_of_every_method_and_figures(finished):
    config, _ = finished
    names = ["cells.jsonl", "config.json", "heat_map.png", "ratios.png", "rows.csv"]
    assert sorted(path.name for path in config.out.iterdir()) == names
    with (config.out / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    kernels = ["ProductLaplace 0.1", "ProductLaplace 0.05", "ProductLaplace 0.2", "relevance 0.1", "relevance 0.3"]
    fixed = [(FIXED, kernel, depth) for kernel in kernels for depth in ("8", "2")]
    methods = [(row["method"], row["kernel"], row["depth"]) for row in rows]
    for cell in (methods[:12], methods[12:]):
        assert cell[:10] == fixed
        assert cell[10][0] == NAIVE
        assert (FIXED, *cell[10][1:]) in fixed
        assert cell[11] == (ADAPTIVE, "mixture", "")
    assert sum(float(row["weight"]) for row in rows[:10]) == pytest.approx(1.0)
    assert json.loads((config.out / "config.json").read_text())["study"] == "adapt"


def test_losses_are_those_of_the_equations(finished):
    config, _ = finished
    name, cell = next(iter(cells_of(config.transfer()).items()))
    assert name == "reach-v3, high noise, seed 0"
    found = rows_of(config, cell)
    trajectories: Trajectories = gathered(cell[1], Path(str(config.cache)))
    values = AdaptiveTD(*_bank(config)).fit(Context.from_episodes(trajectories.context, 0.7))
    losses, errors = [], []
    for episode in trajectories.held_out:
        v = [float(values(x)) for x in np.asarray(episode.observations, dtype=float)]
        r = episode.rewards
        losses += [(r[t] + 0.7 * v[t + 1] - v[t]) ** 2 for t in range(30)]
        errors += [v[t] - sum(0.7 ** (k - t) * r[k] for k in range(t, 30)) for t in range(30 - config.tail + 1)]
    assert found[-1].td_loss == pytest.approx(np.mean(losses))
    assert found[-1].msve == pytest.approx(np.mean(np.square(errors)))
    assert found[-1].centred_msve == pytest.approx(np.var(errors))
    assert found[-1].weight == values.choice.step
    least = int(values.choice.td_losses.mean(0).argmin())
    assert (found[-2].kernel, found[-2].depth) == (found[least].kernel, found[least].depth)


def _bank(config):
    from icrl_agents.adaptive import default_bank

    return default_bank(8), (2, 8), config.caution, config.return_weight


def test_errors_against_ground_truth_are_those_of_means_of_continuations(finished, tmp_path):
    config = dataclasses.replace(finished[0], truth_states=2, continuations=3, noise=("low",), out=tmp_path / "out")
    summary = run(config)
    assert summary.measures == ["TD loss", "value error", "true error"]
    (cell,) = cells_of(config.transfer()).values()
    numbers = {"gamma": 0.7, "tail": 10, "states_per_episode": 2, "continuations": 3}
    truth = held_out_truth(cell[1], Path(str(config.cache)), **numbers)
    trajectories = gathered(cell[1], Path(str(config.cache)))
    values = AdaptiveTD(*_bank(config)).fit(Context.from_episodes(trajectories.context, 0.7))
    errors = [float(values(x)) - np.mean(g) for x, g in zip(truth.observations, truth.returns, strict=True)]
    assert len(errors) == 4
    assert summary.rows[-1].true_centred_msve == pytest.approx(np.var(errors))
    assert [row.td_loss for row in summary.rows] == [row.td_loss for row in finished[1].rows[12:]]


def test_a_finished_run_is_not_computed_again(finished, capsys, monkeypatch):
    config, summary = finished
    monkeypatch.setattr(AdaptiveTD, "fit", None)
    assert run(config).table() == summary.table()
    assert ", the best fixed in hindsight  " in capsys.readouterr().out


def rows(losses):
    """Rows of losses[method][cell][seed]; the value error is ten times the TD loss."""
    return [
        Row(
            domain=domain, noise="low", sigma=0.1, seed=seed, method=method[0], kernel=method[1], depth=method[2],
            weight=0.0, td_loss=loss, msve=math.nan, centred_msve=10 * loss, true_centred_msve=math.nan,
        )
        for method, cells in losses.items()
        for domain, by_seed in cells.items()
        for seed, loss in enumerate(by_seed)
    ]  # fmt: skip


ONE, TWO = (FIXED, "one", 4), (FIXED, "two", 4)
KNOWN = {
    ONE: {"a": [1.0, 3.0], "b": [8.0, 8.0], "c": [1.0, 1.0]},
    TWO: {"a": [4.0, 4.0], "b": [2.0, 2.0], "c": [1.0, 1.0]},
    MIXTURE: {"a": [2.0, 2.0], "b": [1.0, 1.0], "c": [1.3, 1.3]},
    LEAVE_ONE_OUT: {"a": [4.0, 4.0], "b": [4.0, 4.0], "c": [1.0, 1.0]},
}


def test_ratios_are_of_means_over_seeds_against_the_best_of_all_cells():
    summary = Summary(rows(KNOWN))
    assert summary.best_fixed("TD loss") == TWO
    found = summary.compare("TD loss", MIXTURE, TWO)
    expected = [(2 + FLOOR) / (4 + FLOOR), (1 + FLOOR) / (2 + FLOOR), (1.3 + FLOOR) / (1 + FLOOR)]
    np.testing.assert_allclose(found.ratios, expected)
    assert found.mean == pytest.approx(math.prod(expected) ** (1 / 3))
    assert found.low < found.mean < found.high
    assert str(found).split()[-2:] == ["1.30", "1"]
    least = [(2 + FLOOR) / (4 + FLOOR), 1.0, 1.0]
    np.testing.assert_allclose(summary.oracle("TD loss").ratios, least)


def test_a_source_domain_fixes_the_kernel_for_the_others():
    found = Summary(rows(KNOWN)).from_sources("value error")
    np.testing.assert_allclose(found["a"].ratios, [(10 + FLOOR) / (80 + FLOOR), (13 + FLOOR) / (10 + FLOOR)])
    np.testing.assert_allclose(found["b"].ratios, [(20 + FLOOR) / (40 + FLOOR), (13 + FLOOR) / (10 + FLOOR)])
    assert list(found) == ["a", "b", "c"]


def test_the_interval_covers_what_the_domains_share():
    same = {method: {d: [float(method == ONE) + 1.0] for d in "abcd"} for method in (ONE, MIXTURE)}
    found = Summary(rows(same)).compare("TD loss", MIXTURE, ONE)
    assert found.low == pytest.approx(found.mean)
    assert found.high == pytest.approx(found.mean)


def test_other_evaluators_have_a_name_too():
    assert label(AdaptiveTD()) == "AdaptiveTD"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domains": ("pick-place",)}, "Did you mean 'pick-place-v3'"),
        ({"gamma": 1.0}, "gamma must be"),
        ({"depth": 0}, "depth must be"),
        ({"continuations": -1}, "continuations must be"),
        ({"continuations": 2, "truth_states": 30}, "truth_states: expected at most 21, got 30"),
        ({"caution": -1.0}, "caution must be"),
        ({"return_weight": math.inf}, "return_weight must be"),
        ({"workers": -1}, "workers must be"),
    ],
)
def test_wrong_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        AdaptConfig(**{**SMALL, **change})


def test_the_command_says_what_is_wrong(capsys):
    assert main(["adapt", "--caution", "-1"]) == 2
    assert capsys.readouterr().err.startswith("icrl: caution must be")


def test_of_one_domain_alone_there_is_no_interval():
    ratios = np.array([0.5, 2.0, 1.0])
    alone = _comparison(ratios, [("reach-v3", "low"), ("reach-v3", "mid"), ("reach-v3", "high")])
    assert str(alone).split() == ["1.000", "2.00", "1"]
    both = _comparison(ratios, [("reach-v3", "low"), ("reach-v3", "mid"), ("door-open-v3", "high")])
    assert "[1.000, 1.000]" in str(both)


@pytest.mark.parametrize("default", [0, 1])
def test_what_diverges_has_infinite_losses_and_is_averaged_with_no_seed_left_out(default):
    bank = [WeightedSoftmaxTD(Laplace(0.5), 400), KernelTD(Laplace(0.5), 400, step_size=3.0)]  # which diverges
    evaluator = AdaptiveTD(bank[::-1] if default else bank, depths=(1, 400))
    config = AdaptConfig(domains=("reach-v3",), noise=("low",), seeds=1, steps=20, tail=10, gamma=0.5)
    (_, request), rows = next(iter(cells_of(config.transfer()).values())), []
    for seed, size in enumerate((1.0, 0.0)):  # without a reward nothing grows
        rng = np.random.default_rng(seed)
        episodes = [Episode(rng.normal(size=(21, 2)), size * rng.normal(size=20)) for _ in range(4)]
        rows += evaluate(
            config, evaluator, dataclasses.replace(request, seed=seed), "low", Trajectories(episodes[:3], episodes[3:])
        )
    losses = {(row.seed, row.method, row.depth, row.kernel): row.td_loss for row in rows}
    assert len(losses) == len(rows) == 2 * 6
    assert losses[0, FIXED, 400, "KernelTD"] == math.inf
    assert 0.0 < losses[0, FIXED, 1, "KernelTD"] < math.inf
    assert losses[1, FIXED, 400, "KernelTD"] == 0.0
    assert (losses[0, ADAPTIVE, None, "none" if default else "mixture"] == math.inf) == bool(default)
    summary = Summary(rows)
    assert summary.losses((FIXED, "KernelTD", 400), "TD loss").tolist() == [math.inf]


def test_losses_that_are_equal_have_the_ratio_1_and_infinite_ones_too():
    losses, others = np.array([math.inf, 2.0, math.inf, 1.0]), np.array([math.inf, 2.0, 1.0, math.inf])
    assert _ratios(losses, others).tolist() == [1.0, 1.0, math.inf, 0.0]


def test_a_transformer_that_diverges_in_depth_has_its_losses_before_that():
    rng = np.random.default_rng(0)
    x, rewards = rng.normal(size=(21, 2)), rng.normal(size=20)
    context = Context(x[:-1], rewards, np.full(20, 0.5), x[1:])
    target = _Target(context, context.returns()[0], torch.ones(20, dtype=torch.float64), None)
    losses = _scores(linear_td(2, 400, step_size=5.0), context, target, [0, 1, 400])["td_loss"]
    assert losses[0] == pytest.approx(np.mean(rewards**2))
    assert losses[1] == pytest.approx(float(td_loss(linear_td(2, 1, step_size=5.0).fit(context), context, [1])))
    assert losses[2] == math.inf


def test_infinite_ratios_have_infinite_intervals_and_no_mean_is_a_dash():
    cells = [(domain, "low") for domain in "abcdefgh"]
    infinite, nothing = (_comparison(np.array([0.5] * 7 + [last]), cells) for last in (math.inf, 0.0))
    assert 0.0 < infinite.low < 1.0 < infinite.high == infinite.mean == math.inf
    assert nothing.low == nothing.mean == 0.0 < nothing.high < 1.0
    assert str(_comparison(np.array([0.0, math.inf, 1.0]), cells[:3])).split() == ["–", "inf", "1"]
    losses = {method: {d: [1.0] for d in "abcd"} for method in (ONE, TWO, MIXTURE, LEAVE_ONE_OUT)}
    losses[TWO]["a"], losses[MIXTURE]["b"] = [math.inf], [math.inf]
    assert "nan" not in Summary(rows(losses)).table()
