"""``icrl verify`` on few chains: what it measures, writes and says, and that it fails what is broken."""

import csv
import json
import math
import subprocess
import sys
import time
from dataclasses import fields

import numpy as np
import pytest
import torch

from icrl_agents.command_line import main
from icrl_agents.episode import Episode
from icrl_agents.kernels import Exponential
from icrl_agents.layers import memory
from icrl_agents.studies.verify import invariances
from icrl_agents.studies.verify import run as verify
from icrl_agents.studies.verify.config import TOPICS, VerifyConfig
from icrl_agents.studies.verify.decay import SETTINGS, Decay, drawn
from icrl_agents.studies.verify.floor import DEPTHS, LENGTHS, measured_floor, simulate
from icrl_agents.studies.verify.plain import Transitions, certainty_equivalent, linear_td, softmax_td
from icrl_agents.studies.verify.rows import EXACT, Row, largest, table
from icrl_agents.studies.verify.samples import samples
from tests import oracles

FEW = 16


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    config = VerifyConfig(out=tmp_path_factory.mktemp("verify") / "out", chains=FEW)
    return config, verify.run(config)


def rows_in(config):
    with (config.out / "rows.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_claim_holds_and_the_folder_says_so(finished):
    config, code = finished
    rows = rows_in(config)
    assert {row["topic"] for row in rows} == set(TOPICS) == set(verify.CHECKS)
    assert [row["claim"] for row in rows if row["passed"] != "True"] == []
    assert code == 0
    assert list(rows[0]) == [field.name for field in fields(Row)]
    assert len(rows) >= 48
    assert json.loads((config.out / "config.json").read_text())["settings"]["chains"] == FEW
    for name in ("convergence.png", "floor.png", "neu.png"):
        assert (config.out / name).stat().st_size > 20_000


def test_equalities_are_held_to_1e_10_and_rates_to_2_percent(finished):
    rows = {row["claim"]: row for row in rows_in(finished[0])}
    for topic in ("constructions", "attention", "fixed-points", "invariances"):
        assert {float(row["at_most"]) for row in rows.values() if row["topic"] == topic} == {EXACT}
    rates = [row for claim, row in rows.items() if claim.startswith(("rate", "spectral radius > 1"))]
    assert [float(row["at_most"]) for row in rates] == [0.02] * 3
    slope = next(row for claim, row in rows.items() if "slope" in claim)
    assert (float(slope["at_least"]), float(slope["at_most"])) == (-0.6, -0.4)


@pytest.mark.slow
def test_the_full_verification_ends_within_a_minute(tmp_path, capsys):
    started = time.process_time()  # of the processor, which others may share
    assert main(["verify", "--out", str(tmp_path / "out")]) == 0
    assert time.process_time() - started < 60
    assert "claims hold" in capsys.readouterr().out


def test_a_broken_layer_fails_and_the_exit_code_is_1(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(memory, "route", lambda context, row: 0.99 * torch.roll(row, -1, -1))
    assert main(["verify", "--topics", "constructions", "--out", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr().out
    assert "FAILS" in printed
    assert "4 of 8 claims hold" in printed  # those on linear attention, which routes nothing


def test_a_check_that_breaks_off_is_a_row_that_fails(tmp_path, monkeypatch, capsys):
    def check(config):
        yield Row(claim="first", source="", on="nothing", measured=0.0, at_most=0.0)
        raise ValueError("second\nline")

    monkeypatch.setitem(verify.CHECKS, "rkhs", check)
    config = VerifyConfig(out=tmp_path / "out", topics=("rkhs",))
    assert verify.run(config) == 1
    assert [(row["claim"], row["on"], row["passed"]) for row in rows_in(config)] == [
        ("first", "nothing", "True"),
        ("the check ran to its end", "ValueError: second line", "False"),
    ]
    assert "1 of 2 claims hold" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("measured", "low", "high", "passed"),
    [
        (1.0, None, 1.0, True),
        (1.1, None, 1.0, False),
        (-0.5, -0.6, -0.4, True),
        (-0.3, -0.6, -0.4, False),
        (2.0, 1.0, None, True),
        (math.inf, None, 1.0, False),
        (math.nan, None, 1.0, False),
        (math.nan, None, None, False),
    ],
)
def test_a_row_holds_within_its_bounds_and_nan_never_does(measured, low, high, passed):
    row = Row(claim="c", source="", on="o", measured=measured, at_least=low, at_most=high)
    assert row.passed is passed
    assert ("holds" if passed else "FAILS") in table([row])


def test_a_layer_that_gives_nan_somewhere_fails_and_figures_that_are_not_there_are_not_named(
    tmp_path, monkeypatch, capsys
):
    found, calls = invariances.largest_error, []

    def broken(*arrays):
        calls.append(arrays)
        return math.nan if len(calls) == 7 else found(*arrays)

    monkeypatch.setattr(invariances, "largest_error", broken)
    assert main(["verify", "--topics", "invariances", "--out", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr().out
    assert "3 of 4 claims hold" in printed
    assert printed.endswith("config.json, rows.csv.\n")
    assert math.isnan(largest([0.0, math.nan, 1.0]))


def test_the_table_wraps_and_keeps_each_topic_together():
    rows = [Row(claim="word " * 30, source="1234.56789", on="o", measured=1e-14, at_most=EXACT, topic=t) for t in "ab"]
    lines = table(rows).splitlines()
    assert max(map(len, lines)) <= 125
    assert [line.split()[1] for line in lines if line.startswith("──")] == ["a", "b"]


def test_the_floor_falls_as_the_root_of_the_length_in_chains_counted_by_hand():
    trajectories = simulate(VerifyConfig(chains=FEW), LENGTHS[-1])
    n = 50
    for i in (0, 3):
        counts = [[0] * 5 for _ in range(5)]
        for now, then in zip(trajectories.states[:n, i], trajectories.states[1 : n + 1, i], strict=True):
            counts[now][then] += 1
        assert trajectories.counts(n)[i].tolist() == counts
    floor = measured_floor(trajectories)
    assert floor.limit.shape == (len(LENGTHS), FEW)
    assert LENGTHS[-1] / LENGTHS[0] > 100
    slope, error = floor.slope()
    assert abs(slope + 0.5) < 0.1
    assert 0 < error < 0.08
    # √n times the error neither grows nor falls, and depth L cannot be better than γ^L away from its own limit.
    scaled = np.median(floor.limit * np.sqrt(LENGTHS)[:, None], axis=-1)
    assert scaled.max() / scaled.min() < 2.5
    assert np.median(np.abs(floor.by_depth[:, -1] - floor.limit)) < 10 * 0.9 ** DEPTHS[-1]


def test_the_floor_of_one_context_is_the_error_of_lstd_by_hand():
    trajectories = simulate(VerifyConfig(chains=4), LENGTHS[-1])
    floor, k = measured_floor(trajectories), 4
    for i, process in enumerate(trajectories.processes):
        context = trajectories.context(i, LENGTHS[k])
        parts = (context.states, context.rewards, context.discounts, context.next_states)
        rows = [(*row, None) for row in zip(*(part.tolist() for part in parts), strict=True)]
        found = oracles.tabular_lstd(rows, np.eye(5).tolist())
        error = oracles.msve(found, process.values().tolist(), process.stationary_distribution().tolist()) ** 0.5
        assert floor.limit[k, i] == pytest.approx(error, rel=1e-9)


def test_measured_rates_of_few_chains_are_their_radii_and_within_the_bound():
    config = VerifyConfig(chains=4)
    for gamma in (0.5, 0.9):
        chains = drawn(config.first_seed, config.chains, gamma)
        decays = [Decay.of(chains, Exponential(1.0 / c), alpha) for c, alpha in SETTINGS]
        for decay in decays:
            assert float((decay.rate / decay.radius - 1).abs().max()) < 0.02
            assert bool((decay.rate <= decay.bound + EXACT)[decay.bound < 1].all())
        assert bool((decays[-1].bound < 1).any())


def test_the_plain_algorithms_are_those_of_the_slow_oracles():
    sample = samples(0, "cpu")[1]
    t = sample.transitions
    rows = [
        (x, reward, gamma, None if gamma == 0 else x_next, linked)
        for x, reward, gamma, x_next, linked in zip(*(part.tolist() for part in t), strict=True)
    ]
    queries = sample.queries.tolist()
    expected = oracles.softmax_td(rows, oracles.exponential(0.8), 15, [x for x, *_ in rows] + queries)
    found = softmax_td(t, lambda x, y: x @ y.T / 0.8, sample.queries, 15)
    np.testing.assert_allclose(found.T, expected, atol=1e-11)
    expected = oracles.linear_td(rows, 15, [x for x, *_ in rows] + queries, lambda_=0.7)
    np.testing.assert_allclose(linear_td(t, sample.queries, 15, 0.7).T, expected, atol=1e-11)


def test_the_plain_certainty_equivalent_value_is_that_of_the_slow_oracle():
    states = np.eye(3)
    visits = [0, 1, 2, 1, 0, 0, 2, 1, 2, 2, 0]
    t = Transitions.of([Episode(states[visits], np.arange(10.0), terminated=True)], 0.9)
    rows = zip(*(part.tolist() for part in t), strict=True)
    rows = [(x, reward, gamma, None if gamma == 0 else x_next, linked) for x, reward, gamma, x_next, linked in rows]
    expected = oracles.tabular_lstd(rows, states.tolist())
    np.testing.assert_allclose(certainty_equivalent(t, states), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chains": 3}, "chains must be"),
        ({"first_seed": -1}, "first_seed must be"),
        ({"topics": ()}, "topics: expected at least one"),
        ({"topics": ("neus",)}, "topics"),
        ({"topics": ("neu", "invariances"), "chains": 8}, "chains: neu, invariances would not change with it"),
        ({"topics": ("neu",), "device": "cuda"}, "device: neu would not change with it"),
    ],
)
def test_wrong_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        VerifyConfig(**change)


def test_help_explains_and_does_not_import_torch():
    code = (
        "import sys\n"
        "from icrl_agents.command_line import main\n"
        "try: main(['verify', '--help'])\n"
        "except SystemExit as done: assert done.code == 0\n"
        "assert not {'torch', 'mujoco', 'metaworld', 'matplotlib', 'scipy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert "--topics" in done.stdout
    assert done.stderr == ""


def test_mistakes_on_the_command_line_are_one_line_and_leave_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for arguments in (["--topics", "rhks"], ["--chains", "many"], ["--device", "abacus"], ["--sead", "1"]):
        assert main(["verify", *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("topic", "seed"), [("constructions", 5000), ("neu", 12345), ("rkhs", 2**31)])
def test_claims_hold_at_other_seeds_too(topic, seed, tmp_path, capsys):
    """Seeds at which some of the sweeps to compare with diverge, or a short context shows little."""
    assert main(["verify", "--topics", topic, "--first-seed", str(seed), "--out", str(tmp_path / "out")]) == 0
