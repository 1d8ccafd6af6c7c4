"""The kernel-temperature study: its losses by plain loops, its optima and matrices on losses that are known."""

import csv
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from icrl_agents import Context, kernels
from icrl_agents.command_line import main
from icrl_agents.diagnostics import td_loss
from icrl_agents.divergence import DivergenceError
from icrl_agents.evaluators import KernelTD, WeightedSoftmaxTD
from icrl_agents.studies.temperature.config import LENGTH_SCALES, TemperatureConfig
from icrl_agents.studies.temperature.evaluation import RIDGE, _Measures, evaluate
from icrl_agents.studies.temperature.projection import RIDGES, projection
from icrl_agents.studies.temperature.run import run
from icrl_agents.studies.temperature.summary import TRUE_ERROR
from icrl_agents.studies.transfer.run import cells_of
from icrl_agents.studies.transfer.trajectories import gathered
from icrl_agents.studies.transfer.truth import held_out_truth

SMALL = {
    "domains": ("reach-v3", "plate-slide-v3"),
    "noise": ("high",),
    "seeds": 2,
    "context_episodes": 2,
    "held_out_episodes": 2,
    "steps": 30,
    "tail": 10,
    "gamma": 0.7,
    "kernels": ("laplace", "exponential"),
    "length_scales": (0.03, 0.1, 0.3, 1.0),
    "depth": 8,
    "continuations": 3,
    "truth_states": 2,
    "workers": 1,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    config = TemperatureConfig(**SMALL, out=folder / "out", cache=folder / "cache")
    return config, run(config)


def test_a_run_writes_every_row_and_four_figures(finished, capsys, monkeypatch):
    config, summary = finished
    figures = ["offset.png", "similarity.png", "td_loss.png", "value_error.png"]
    names = ["cells.jsonl", "config.json", *figures, "rows.csv"]
    assert sorted(path.name for path in config.out.iterdir()) == sorted(names)
    with (config.out / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 2 * 4 * (2 * 3 + 1)
    assert {row["depth"] for row in rows if row["method"] == RIDGE} == {""}
    assert {row["depth"] for row in rows if row["method"] != RIDGE} == {"1", "2", "8"}
    monkeypatch.setattr(WeightedSoftmaxTD, "fit", None)  # a finished run is not computed again
    assert run(config).seeds == summary.seeds == [0, 1]
    printed = capsys.readouterr().out
    for title in ("Best length scale by TD loss", "against ground truth", "softmax TD: TD loss", "The constant offset"):
        assert title in printed


@pytest.mark.parametrize("features", ["raw", "standardised"])
def test_losses_are_those_of_the_equations(finished, features):
    cache = Path(str(finished[0].cache))
    config = TemperatureConfig(**{**SMALL, "features": features}, cache=cache)
    noise, request = cells_of(config.transfer())["reach-v3, high noise, seed 0"]
    trajectories = gathered(request, cache)
    numbers = {"states_per_episode": 2, "continuations": 3}
    truth = held_out_truth(request, cache, gamma=0.7, tail=10, **numbers)
    rows = list(evaluate(config, request, noise, trajectories, truth))
    row = next(r for r in rows if (r.method, r.kernel, r.length_scale, r.depth) == ("kernel", "laplace", 0.3, 8))
    states = np.concatenate([e.observations for e in trajectories.context])
    spread = np.where(states.std(0) > 1e-9, states.std(0), 1.0) * math.sqrt(10)
    unit = spread if features == "standardised" else np.ones(10)
    episodes = [(e.observations / unit, e.rewards) for e in trajectories.context]
    context = Context(
        *(np.concatenate(parts) for parts in zip(*((x[:-1], r, 0.7 + 0 * r, x[1:]) for x, r in episodes), strict=True))
    )
    values = KernelTD(kernels.Laplace(0.3), 8).fit(context)
    within = [float(d) for d in values.td_errors(context)]
    constant = sum(within) / len(within) / 0.3
    losses, corrected, errors = [], [], []
    for episode in trajectories.held_out:
        v, r = values(episode.observations / unit).tolist(), episode.rewards
        losses += [(r[t] + 0.7 * v[t + 1] - v[t]) ** 2 for t in range(30)]
        corrected += [(r[t] + 0.7 * v[t + 1] - v[t] - 0.3 * constant) ** 2 for t in range(30)]
        errors += [v[t] - sum(0.7 ** (k - t) * r[k] for k in range(t, 30)) for t in range(21)]
    gaps = values(truth.observations / unit).numpy() - truth.values
    noise_in = np.square(truth.standard_errors).mean()
    assert row.correction == pytest.approx(constant)
    assert (row.td_loss, row.corrected_td_loss) == pytest.approx((np.mean(losses), np.mean(corrected)))
    assert (row.offset, row.msve) == pytest.approx((np.mean(errors), np.mean(np.square(errors))))
    assert (row.centred_msve, row.corrected_msve) == pytest.approx(
        (np.var(errors), np.mean(np.square(np.add(errors, constant))))
    )
    assert row.true_msve == pytest.approx(np.square(gaps).mean() - noise_in)
    assert row.true_centred_msve == pytest.approx(gaps.var() - 0.75 * noise_in)
    assert row.true_variance == pytest.approx(truth.values.var() - 0.75 * noise_in)


def test_ground_truth_is_of_the_held_out_trajectories_and_goals_are_disjoint(finished):
    config, cache = finished[0], Path(str(finished[0].cache))
    for noise, request in cells_of(config.transfer()).values():
        trajectories = gathered(request, cache)
        numbers = {"states_per_episode": 2, "continuations": 3}
        truth = held_out_truth(request, cache, gamma=0.7, tail=10, **numbers)
        for i, row in enumerate(truth.observations):
            episode = trajectories.held_out[i // 2].observations
            assert (episode[:21] == row).all(1).any(), noise
        goals = [{tuple(e.observations[0, 7:]) for e in part} for part in (trajectories.context, trajectories.held_out)]
        assert goals[0].isdisjoint(goals[1])


def test_what_overflows_is_infinite(finished):
    cache = Path(str(finished[0].cache))
    config = TemperatureConfig(**{**SMALL, "length_scales": (0.01, 0.1, 1.0)}, cache=cache)
    noise, request = next(iter(cells_of(config.transfer()).values()))
    rows = list(evaluate(config, request, noise, gathered(request, cache), None))
    lost = [row for row in rows if math.isinf(row.td_loss)]
    assert {(row.method, row.kernel, row.length_scale) for row in lost} >= {("kernel", "exponential", 0.01)}
    assert all(math.isinf(row.centred_msve) and row.initial_td_loss < math.inf for row in lost)


def test_projection_by_plain_loops():
    rng = np.random.default_rng(0)
    x, query = torch.tensor(rng.standard_normal((12, 2))), torch.tensor(rng.standard_normal((3, 2)))
    y, groups = torch.sin(x[:, 0]) + 0.1 * torch.tensor(rng.standard_normal(12)), torch.arange(12) // 4
    kappa = kernels.RBF(1.0)
    errors = {}
    for ridge in RIDGES:
        total = 0.0
        for g in range(3):
            rest, out = groups != g, groups == g
            weights = torch.linalg.solve(kappa(x[rest], x[rest]) + ridge * torch.eye(8), y[rest] - y.mean())
            total += float((kappa(x[out], x[rest]) @ weights + y.mean() - y[out]).square().sum())
        errors[ridge] = total
    best = min(errors, key=lambda ridge: errors[ridge])
    weights = torch.linalg.solve(kappa(x, x) + best * torch.eye(12), y - y.mean())
    expected = kappa(query, x) @ weights + y.mean()
    torch.testing.assert_close(projection(kappa(x, x), y, groups, kappa(query, x)), expected)


def test_value_errors_are_against_ground_truth_where_there_is_some(finished):
    assert finished[1].value_error is TRUE_ERROR


def test_the_bank_is_evenly_spaced():
    steps = np.diff(np.log(LENGTH_SCALES))
    assert steps.min() > 0.45
    assert steps.max() < 0.6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernels": ("rbf", "rbf")}, "kernels: expected at least one, each once"),
        ({"methods": ()}, "methods: expected at least one"),
        ({"kernels": ("cosine",)}, "kernels must be one of"),
        ({"length_scales": (1e-200, 1e-100, 1e-3)}, r"length_scales must be .* got 1e-200"),
        ({"length_scales": (0.1, 0.2)}, "length_scales: expected three or more"),
        ({"length_scales": (0.1, 0.3, 0.2)}, "length_scales: expected three or more, ascending"),
        ({"continuations": 1}, "continuations: expected 0, or 2 and more"),
        ({"truth_states": 22}, "truth_states: expected at most 21"),
        ({"depth": 0}, "depth must be"),
        ({"context_episodes": 1}, "context_episodes must be an integer ≥ 2"),
        (
            {"context_episodes": 2, "steps": 10, "tail": 10, "truth_states": 1},
            "context_episodes must be an integer ≥ 3",
        ),
        ({"features": "scaled"}, "features must be one of"),
        ({"gamma": 1.0}, "gamma must be"),
    ],
)
def test_wrong_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TemperatureConfig(**{**SMALL, **change})


def test_the_command_says_what_is_wrong(capsys):
    assert main(["temperature", "--depth", "0"]) == 2
    assert capsys.readouterr().err.startswith("icrl: depth must be")


def test_depths_before_a_divergence_keep_their_losses():
    rng = np.random.default_rng(1)
    x = 2.0 * rng.normal(size=(61, 3))
    context = Context(x[:-1], rng.normal(size=60), np.full(60, 0.9), x[1:])
    measures = _Measures(TemperatureConfig(depth=400, tail=1, gamma=0.05), context, context, None, np.ones(3))
    kernel, (first, *_, last) = kernels.DotProduct(torch.eye(3)), measures.depths
    with pytest.raises(DivergenceError):
        WeightedSoftmaxTD(kernel, last).fit(context)
    losses = {depth: each["td_loss"] for depth, each in measures.sweeps("softmax", kernel)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shallow = WeightedSoftmaxTD(kernel, first).fit(context)
    assert losses[first] == pytest.approx(float(td_loss(shallow, context, [first])))
    assert losses[last] == math.inf
