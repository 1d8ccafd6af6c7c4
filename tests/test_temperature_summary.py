"""Optima, similarity of domains and offsets on rows whose losses are known."""

import dataclasses
import math

import numpy as np
import pytest

from icrl_agents.studies.temperature import figures
from icrl_agents.studies.temperature.evaluation import RIDGE, Row
from icrl_agents.studies.temperature.figures import curves_figure, offset_figure, similarity_figure
from icrl_agents.studies.temperature.offset import offset
from icrl_agents.studies.temperature.report import report
from icrl_agents.studies.temperature.similarity import interval, similarity
from icrl_agents.studies.temperature.summary import FLOOR, RETURN_ERROR, TD_LOSS, Summary, minimum

LOSSES = ("td_loss", "corrected_td_loss", "msve", "corrected_msve", "centred_msve", "offset", "correction")
SCALES = (0.1, 0.2, 0.4, 0.8)


def rows(optima, seeds=3, method="softmax", noise=0.0):
    """Rows whose log loss is (log ℓ − log ℓ*)² + log 0.01, ℓ* by domain, with jitter of the optimum by seed."""
    rng = np.random.default_rng(0)
    made = []
    for domain, best in optima.items():
        for seed in range(seeds):
            shift = noise * rng.standard_normal()
            for scale in SCALES:
                loss = 4.0 * (0.01 * math.exp((math.log(scale / best) - shift) ** 2))
                named = dict.fromkeys(("td_loss", "corrected_td_loss", "centred_msve"), loss)
                sizes = dict.fromkeys(("initial_td_loss", "return_power", "return_variance"), 4.0)
                made.append(
                    Row(
                        domain=domain, noise="low", sigma=0.1, seed=seed, method=method, kernel="rbf", depth=8,
                        length_scale=scale, correction=-1.0, offset=1.0, msve=loss + 1.0, corrected_msve=loss,
                        **named, **sizes,
                    )
                )  # fmt: skip
    return made


def test_the_optimum_is_where_the_parabola_is_least():
    summary = Summary(rows({"a": 0.25, "b": 0.1, "c": 3.0}))
    found = summary.optimum([("a", "low")], "softmax", "rbf", TD_LOSS)
    assert found.length_scale == pytest.approx(0.25, rel=0.01)
    assert (found.low, found.high) == pytest.approx((found.length_scale, found.length_scale))
    assert found.flat == (0.2, 0.2)
    assert str(found).startswith("0.25 [")
    assert str(summary.optimum([("b", "low")], "softmax", "rbf", TD_LOSS)).startswith("≤0.1")
    assert str(summary.optimum([("c", "low")], "softmax", "rbf", TD_LOSS)).startswith("≥0.8")
    assert math.isnan(Summary(rows({"a": 0.25}, seeds=1)).optimum([("a", "low")], "softmax", "rbf", TD_LOSS).low)


def test_the_interval_widens_with_the_scatter_of_the_seeds_and_covers_the_truth():
    found = Summary(rows({"a": 0.25}, seeds=8, noise=0.3)).optimum([("a", "low")], "softmax", "rbf", TD_LOSS)
    assert found.low < 0.25 < found.high
    assert 1.2 < found.high / found.low < 3.0


def test_minimum_of_parabolas_and_of_curves_without_one():
    x = np.array([1.0, 2.0, 8.0, 16.0])
    curves = np.stack([np.square(np.log(x / best)) for best in (2.5, 6.0)])
    np.testing.assert_allclose(minimum(x, curves), [2.5, 6.0])
    odd = np.array([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0], [np.inf, 1.0, np.inf, np.inf], [2.0, 2.0, 2.0, 2.0]])
    np.testing.assert_allclose(minimum(x, odd), [1.0, 16.0, 2.0, 1.0])


def test_similarity_judges_a_choice_on_a_seed_that_did_not_make_it():
    found = similarity(Summary(rows({"a": 0.2, "b": 0.2, "c": 0.8})), "softmax", RETURN_ERROR, ["rbf"])
    assert found.chosen == [("rbf", 0.2), ("rbf", 0.2), ("rbf", 0.8)]
    there = (4 * 0.01 * math.exp(math.log(4) ** 2) + FLOOR) / (4 * 0.01 + FLOOR)
    np.testing.assert_allclose(found.ratios, [[1, 1, there], [1, 1, there], [there, there, 1]])
    np.testing.assert_allclose(found.low, found.ratios)
    single = similarity(Summary(rows({"a": 0.2, "b": 0.8}, seeds=1)), "softmax", TD_LOSS, ["rbf"])
    assert np.isnan(single.low).all()


def test_intervals_are_student_s():
    samples = np.array([1.0, 2.0, 4.0])
    mean, half = interval(samples)
    assert mean == pytest.approx(7 / 3)
    assert half == pytest.approx(4.302653 * samples.std(ddof=1) / math.sqrt(3), rel=1e-5)


def test_the_offset_is_summed_up():
    found = offset(Summary(rows({"a": 0.2, "b": 0.2})), "softmax", "rbf", 8)
    assert found.length_scale == 0.2
    assert found.sizes == pytest.approx((0.5, 0.0), abs=1e-4)
    assert found.errors == pytest.approx((0.26, 0.01, 0.01), rel=0.01)
    assert found.ratio[0] == pytest.approx((0.04 + FLOOR) / (1.04 + FLOOR))
    assert (found.losses[0], found.worse) == (1.0, 0.0)


def test_without_ground_truth_value_errors_are_against_returns():
    assert Summary(rows({"a": 0.2})).value_error is RETURN_ERROR


def test_what_is_infinite_is_told_as_nothing():
    made = rows({"a": 0.2, "b": 0.4}) + rows({"a": 0.2, "b": 0.4}, method="ridge")
    lost = [
        Row(**{**vars(row), "depth": None if row.method == "ridge" else 8, **dict.fromkeys(LOSSES, math.inf)})
        if row.domain == "b"
        else Row(**{**vars(row), "depth": None if row.method == "ridge" else 8})
        for row in made
    ]
    text = report(Summary(lost))
    assert "nan" not in text
    assert "inf" not in text
    assert Summary(lost).optimum([("b", "low")], "softmax", "rbf", TD_LOSS).least == math.inf


def test_a_choice_that_diverges_elsewhere_costs_infinity_there():
    made = [
        dataclasses.replace(row, td_loss=math.inf) if (row.domain, row.length_scale) == ("b", 0.2) else row
        for row in rows({"a": 0.2, "b": 0.4}) + rows({"a": 0.2, "b": 0.4}, method=RIDGE)
    ]
    made = [dataclasses.replace(row, depth=None) if row.method == RIDGE else row for row in made]
    line = next(line for line in report(Summary(made)).splitlines() if line.startswith("a ") and "∞" in line)
    assert line.split() == ["a", "rbf", "0.2", "1", "∞"]


def test_the_curves_show_every_optimum_and_tell_all_noise_levels_apart(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "write_figure", lambda figure, path: shown.append(figure))
    levels = [f"{0.1 * (i + 1):.1f}" for i in range(6)]
    made = [
        dataclasses.replace(row, noise=level, td_loss=row.td_loss / 100) for row in rows({"a": 0.2}) for level in levels
    ]
    figures.curves_figure(Summary(made), TD_LOSS, tmp_path / "curves.png")
    axis = shown[0].axes[0]
    assert axis.get_ylim()[0] < min(float(np.min(line.get_ydata())) for line in axis.lines)
    assert len({handle.get_color() for handle in shown[0].legends[0].legend_handles[:6]}) == 6


def test_a_bank_that_overflows_throughout_is_told_and_drawn_as_nothing(tmp_path):
    made = rows({"a": 0.2, "b": 0.4}) + rows({"a": 0.2, "b": 0.4}, method=RIDGE)
    changed = dict.fromkeys(LOSSES, math.inf)
    summary = Summary([dataclasses.replace(row, depth=None if row.method == RIDGE else 8, **changed) for row in made])
    assert math.isnan(offset(summary, "softmax", "rbf", 8).worse)
    assert [name for name, _ in similarity(summary, "softmax", TD_LOSS, ["rbf"]).chosen] == ["–", "–"]
    offset_figure(summary, tmp_path / "offset.png")
    similarity_figure(summary, tmp_path / "similarity.png")
    curves_figure(summary, TD_LOSS, tmp_path / "curves.png")
    assert len(list(tmp_path.iterdir())) == 3
