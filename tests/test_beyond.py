"""The study beyond MetaWorld: its processes, its frozen weights, one small run, and its summary on known rows."""

import csv
import math

import numpy as np
import pytest
import torch

from icrl_agents.collection import collect_episodes
from icrl_agents.command_line import main
from icrl_agents.episode import Episode
from icrl_agents.studies.beyond.config import PROCESSES, BeyondConfig
from icrl_agents.studies.beyond.evaluation import (
    EVALUATORS,
    KERNEL,
    LINEAR,
    PRODUCT,
    SOFTMAX,
    Cell,
    Row,
    evaluate,
    frozen,
)
from icrl_agents.studies.beyond.policies import energy
from icrl_agents.studies.beyond.processes import Recorded, make
from icrl_agents.studies.beyond.run import run
from icrl_agents.studies.beyond.scales import MATCHED, RAW, SCALES, STANDARDISED, scale_of, scaled
from icrl_agents.studies.beyond.summary import COMPARED, Summary
from icrl_agents.studies.beyond.truth import truth_of
from icrl_agents.studies.transfer.config import TransferConfig
from icrl_agents.studies.transfer.evaluation import evaluators

SMALL = {
    "processes": ("cartpole-lean", "boyan-random"),
    "gamma": 0.5,
    "seeds": 1,
    "context_steps": 40,
    "held_out_steps": 30,
    "episode_steps": 15,
    "states": 3,
    "continuations": 2,
    "num_states": 4,
    "workers": 1,
}
SIMULATED = [name for name in PROCESSES if not name.startswith(("boyan", "loop"))]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    config = BeyondConfig(**SMALL, out=tmp_path_factory.mktemp("study") / "out")
    return config, run(config)


def test_a_run_writes_rows_of_every_evaluator_on_every_scale(finished):
    config, _ = finished
    names = ["cells.jsonl", "config.json", "losses.png", "rows.csv"]
    assert sorted(path.name for path in config.out.iterdir()) == names
    with (config.out / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [(process, scale, name) for process in config.processes for scale in SCALES for name in EVALUATORS]
    assert [(row["process"], row["scale"], row["evaluator"]) for row in rows] == expected
    assert all(math.isfinite(float(row["centred_msve"])) for row in rows)


def test_a_finished_run_is_not_computed_again(finished, monkeypatch, capsys):
    config, summary = finished
    monkeypatch.setattr("icrl_agents.studies.beyond.run.evaluate", None)
    assert run(config).tables() == summary.tables()
    assert "softmax, raw / linear, raw" in capsys.readouterr().out


@pytest.mark.parametrize("name", SIMULATED)
def test_a_state_that_is_given_back_has_the_same_future_and_others_by_seed(name):
    env = make(BeyondConfig(), name, 0).unwrapped

    def future():
        return [(*observation, reward) for observation, reward, *_ in (env.step(0) for _ in range(8))]

    env.reset(seed=1)
    for _ in range(4):
        env.step(0)
    snapshot = env.get_state()
    assert future() == (env.set_state(snapshot), future())[1]
    others = {}
    for seed in (5, 6, 7, 8, 9):
        assert np.array_equal(env.set_state(snapshot, seed=seed), snapshot.observation)
        others[seed] = future()
    env.set_state(snapshot, seed=5)
    assert future() == others[5]
    assert any(other != others[5] for other in others.values())


@pytest.mark.parametrize("name", PROCESSES)
def test_every_process_gives_episodes_with_a_snapshot_of_every_state(name):
    env = Recorded(make(BeyondConfig(), name, 3))
    episodes = collect_episodes(env, num_steps=30, seed=0, max_episode_steps=12)
    assert sum(map(len, episodes)) == 30 == len(env.snapshots)
    again = collect_episodes(make(BeyondConfig(), name, 3), num_steps=30, seed=0, max_episode_steps=12)
    for one, other in zip(episodes, again, strict=True):
        assert np.array_equal(one.observations, other.observations)
    if name in SIMULATED:
        states = np.concatenate([episode.observations[:-1] for episode in episodes])
        assert np.array_equal(states, [snapshot.observation for snapshot in env.snapshots])


def test_the_energy_policy_drives_the_pendulum_to_the_energy_of_standing_upright():
    hanging, fast = np.array([-1.0, 0.0, 0.5]), np.array([1.0, 0.0, 7.0])
    assert energy(hanging) == 2.0  # too little energy, and along the velocity
    assert energy(fast) == -2.0
    assert energy(-fast) == 2.0 * math.copysign(1, -7.0 * (5 - (49 / 6 - 5)))


def test_the_truth_of_a_chain_is_exact():
    config = BeyondConfig(**SMALL)
    env = make(config, "boyan-random", 2)
    truth = truth_of(config, env, [], 0)
    P, r = env.process.transition_matrix, env.process.rewards
    v, mu = np.zeros(4), np.full(4, 0.25)
    for _ in range(400):
        v, mu = r + 0.5 * P @ v, 0.5 * mu + 0.5 * mu @ P
    np.testing.assert_allclose(truth.values, v)
    np.testing.assert_allclose(truth.weights, mu, atol=1e-9)
    assert truth.squared_error == 0.0


def test_the_truth_of_a_simulator_is_the_mean_return_from_its_state():
    config = BeyondConfig(**{**SMALL, "continuations": 400})
    env = Recorded(make(config, "cartpole-random", 0))
    collect_episodes(env, num_steps=30, seed=0)
    truth = truth_of(config, env.unwrapped, env.snapshots, 0)
    assert truth.observations.shape == (3, 4)
    for seen, value in zip(truth.observations, truth.values, strict=True):
        (snapshot,) = [each for each in env.snapshots if np.array_equal(each.observation, seen)]
        returns = []
        for seed in range(1000, 1400):
            env.unwrapped.set_state(snapshot, seed=seed)
            total, weight, terminated = 0.0, 1.0, False
            while weight > 1e-3 and not terminated:
                _, reward, terminated, *_ = env.unwrapped.step(0)
                total, weight = total + weight * reward, 0.5 * weight
            returns.append(total)
        spread = np.std(returns, ddof=1) / 20.0
        assert value == pytest.approx(np.mean(returns), abs=6 * spread + 2e-3)


def test_scales_have_the_spread_they_say():
    rng = np.random.default_rng(0)
    context = [Episode(rng.normal(3.0, (1.0, 20.0), (40, 2)), np.zeros(39)) for _ in range(2)]
    x = np.concatenate([episode.observations for episode in context])
    assert np.array_equal(scaled(scale_of(RAW, context), x), x)
    z = scaled(scale_of(STANDARDISED, context), x)
    np.testing.assert_allclose([z.mean(0), z.std(0)], [[0, 0], [1, 1]], atol=1e-12)
    near = scaled(scale_of(MATCHED, context), x)
    np.testing.assert_allclose(near / z, near[0, 0] / z[0, 0])
    states = np.delete(near, (40 - 1, 80 - 1), axis=0)
    distances = [math.dist(a, b) for i, a in enumerate(states) for b in states[:i]]
    assert np.median(distances) == pytest.approx(0.3, rel=0.02)


def test_the_weights_are_those_of_the_transfer_study_and_the_same_in_every_process():
    shared = {"length_scale": 0.1, "kernel_length_scale": 0.3}
    laplace = evaluators(TransferConfig(kernel="laplace", depth=40, **shared), 10)
    product = evaluators(TransferConfig(kernel="product_laplace", depth=80, **shared), 10)
    theirs = {SOFTMAX: laplace["softmax"], KERNEL: laplace["kernel"], PRODUCT: product["softmax"]}
    for name, other in theirs.items():
        for dim in (2, 4, 10):
            own, weights = frozen(dim)[name], other.state_dict()
            assert own.state_dict().keys() == weights.keys()
            assert all(torch.equal(own.state_dict()[key], weights[key]) for key in weights)
            assert own.num_layers == other.num_layers


def test_losses_are_those_of_the_equations():
    config = BeyondConfig(**SMALL)
    cell = Cell("boyan-random", 1)
    row = next(r for r in evaluate(config, cell) if (r.scale, r.evaluator) == (RAW, SOFTMAX))
    env = make(config, *cell)
    steps = {"max_episode_steps": 15}
    context = collect_episodes(env, num_steps=40, seed=2, **steps)
    held_out = collect_episodes(env, num_steps=30, seed=3, **steps)
    features = [tuple(phi) for phi in env.process.features]
    number = {phi: i for i, phi in enumerate(features)}
    seen = [(number[tuple(e.observations[t])], e.rewards[t], number[tuple(e.observations[t + 1])])
            for e in context for t in range(len(e))]  # fmt: skip
    v = [0.0] * 4
    for _ in range(40):
        errors = [reward + 0.5 * v[after] - v[before] for before, reward, after in seen]
        weights = [[math.exp(-math.dist(phi, features[k]) / 0.1) for k, _, _ in seen] for phi in features]
        v = [v[i] + sum(w * e for w, e in zip(row, errors, strict=True)) / sum(row) for i, row in enumerate(weights)]
    exact, mu = env.process.values(), env.process.stationary_distribution()
    offset = sum(mu[i] * (v[i] - exact[i]) for i in range(4))
    assert row.msve == pytest.approx(sum(mu[i] * (v[i] - exact[i]) ** 2 for i in range(4)))
    assert row.centred_msve == pytest.approx(sum(mu[i] * (v[i] - exact[i] - offset) ** 2 for i in range(4)))
    losses = [(e.rewards[t] + 0.5 * v[number[tuple(e.observations[t + 1])]] - v[number[tuple(e.observations[t])]]) ** 2
              for e in held_out for t in range(len(e))]  # fmt: skip
    assert row.td_loss == pytest.approx(np.mean(losses))


def rows(process, losses, variance=2.0):
    """One row per seed of losses[evaluator, scale], 0 for all others."""
    return [
        Row(
            process=process, seed=seed, scale=scale, evaluator=name, td_loss=loss, msve=loss, centred_msve=loss,
            td_loss_of_zero=1.0, power=4.0, variance=variance, truth_error=0.1,
        )
        for scale in SCALES
        for name in EVALUATORS
        for seed, loss in enumerate(losses.get((name, scale), [2.0] * 3))
    ]  # fmt: skip


def test_losses_are_relative_and_compared_where_something_varies():
    one = rows("one", {(SOFTMAX, RAW): [0.1, 0.4, 0.2], (LINEAR, RAW): [1.0, 2.0, 1.6]})
    two = rows("two", {(SOFTMAX, RAW): [1.0, math.inf, math.inf], (LINEAR, RAW): [0.0, 0.0, 0.0]})
    summary = Summary(iter([*one, *two, *rows("constant", {}, variance=1e-6)]))
    assert summary.loss("centred value error", "one", RAW, SOFTMAX).value == pytest.approx(0.1)
    assert summary.loss("value error", "one", RAW, LINEAR).value == pytest.approx(0.4)
    assert math.isnan(summary.loss("centred value error", "constant", RAW, SOFTMAX).value)
    assert summary.truth_error("one") == pytest.approx(0.05)
    found = summary.compare("centred value error", (SOFTMAX, RAW), (LINEAR, RAW))
    np.testing.assert_allclose(found.ratios, [0.1 / 0.8, 1e3 / 1e-3])
    assert found.low < found.mean < found.high
    assert "better in 1 of 2" in str(found)
    assert all(f"{name}, {scale}" in summary.tables() for pair in COMPARED for name, scale in pair)
    assert str(Summary(rows("constant", {}, variance=0.0)).compare("centred value error", *COMPARED[0])) == "–"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"processes": ("cartpole",)}, "processes must be one of"),
        ({"processes": ()}, "processes: expected at least one"),
        ({"states": 31}, r"states must be an integer in \[2, 30\]"),
        ({"missing": 1.0}, "missing must be"),
        ({"gamma": 1.0}, "gamma must be"),
        ({"continuations": 1}, "continuations must be"),
        ({"workers": -1}, "workers must be"),
    ],
)
def test_wrong_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        BeyondConfig(**{**SMALL, **change})


def test_the_command_says_what_is_wrong(capsys):
    assert main(["beyond", "--states", "0"]) == 2
    assert capsys.readouterr().err.startswith("icrl: states must be")
