"""The summary of the transfer matrix, on rows that are known."""

import dataclasses
import math

import pytest
from scipy import stats

from icrl_agents.studies.matrix import tables
from icrl_agents.studies.matrix.evaluation import CONSTRUCTED, Row
from icrl_agents.studies.matrix.summary import SMALLEST, Summary, ratio_of_means


def test_ratios_have_the_interval_of_the_jackknife():
    tops, bottoms = [1.0, 2.0, 4.0], [10.0, 9.0, 14.0]
    found = ratio_of_means(tops, bottoms)
    logs = [math.log((7 - a) / (33 - b)) for a, b in zip(tops, bottoms, strict=True)]
    error = math.sqrt(2 / 3 * sum((x - sum(logs) / 3) ** 2 for x in logs))
    half = stats.t.ppf(0.975, 2) * error
    assert found.mean == pytest.approx(7 / 33)
    assert (found.low, found.high) == (pytest.approx(7 / 33 * math.exp(-half)), pytest.approx(7 / 33 * math.exp(half)))
    assert math.isnan(ratio_of_means([1.0, 1.0], [SMALLEST / 2, SMALLEST]).mean)
    assert str(ratio_of_means([1.0, 1.0], [0.0, 0.0])) == "–"
    assert math.isnan(ratio_of_means([1.0, 1.0], [2.0, 0.0]).low)  # one seed decides
    assert str(ratio_of_means([1.0], [4.0])) == "0.25"
    assert ratio_of_means([math.inf, 1.0], [1.0, 1.0]).mean == math.inf
    assert math.isnan(ratio_of_means([math.inf, 1.0], [math.inf, 1.0]).mean)  # without a warning


def rows(losses, *, zero=1.0):
    """Rows of losses[source][model] = losses by depth, 0.5 per layer; the centred value error is the TD loss."""
    return [
        Row(
            source=source, seed=seed, target=target, noise="low", model=model, depth=None if model == "LSTD" else depth,
            td_loss=loss * zero, msve=loss, centred_msve=loss, zero_td_loss=zero, return_power=1.0, return_variance=1.0,
        )
        for (source, target), models in losses.items()
        for model, by_depth in models.items()
        for depth, loss in enumerate(by_depth)
        for seed in (0, 1)
    ]  # fmt: skip


LINEAR = {"linear": [1.0, 0.9, 0.8], "LSTD": [0.3]}
KNOWN = {
    ("a", "a"): {"softmax": [1.0, 0.5, 0.2], "linear": [1.0, 0.9, 0.8]},
    ("a", "b"): {"softmax": [1.0, 0.9, 0.9], "linear": [1.0, 0.7, 0.6]},
    ("b", "a"): {"softmax": [1.0, 0.3, 0.5], "linear": [1.0, 0.9, 0.8]},
    ("b", "b"): {"softmax": [1.0, 0.6, 0.5], "linear": [1.0, 0.9, 0.8]},
    (CONSTRUCTED, "a"): {"softmax": [1.0, 0.5, 0.3], **LINEAR},
    (CONSTRUCTED, "b"): {"softmax": [1.0, 0.5, 0.35], **LINEAR},
}


def test_cells_that_fail_are_listed_with_their_causes():
    summary = Summary(rows(KNOWN))
    found = {cell: cause for cell, _, cause in summary.failures()}
    assert found == {
        ("a", "b", "low"): "length scales: weights of constructed reach 0.35",
        ("b", "a", "low"): "too deep: 0.3 at L = 1",
        ("b", "b", "low"): "length scales: weights of constructed reach 0.35",
    }
    assert "too deep: 0.3 at L = 1" in tables.failures(summary)
    noisy = {key: {**models, "softmax": [1.0, 0.9, 0.9]} for key, models in KNOWN.items()}
    assert Summary(rows(noisy)).cause("a", "b", "low") == "noise: of all weights those of a do best, 0.9"
    assert Summary(rows(KNOWN, zero=0.0)).cause("a", "a", "low") == "no reward to predict"
    easy = {key: {**models, "softmax": [1.0, 0.2, 0.1]} for key, models in KNOWN.items()}
    assert tables.failures(Summary(rows(easy))).endswith("below 40% of that at depth 0 in all 4 cells.")


def test_linear_against_non_linear():
    summary = Summary(rows(KNOWN))
    assert summary.wins("linear, pretrained") == (3, 3, 4)
    assert summary.wins("linear, constructed") == (3, 3, 4)
    assert summary.wins("LSTD") == (1, 1, 4)
    assert summary.wins_over_best() == (1, 4)
    assert summary.transferred("TD loss", "b", "low", "linear").mean == pytest.approx(0.6)
    assert "| linear, pretrained " in tables.wins(summary)


@pytest.mark.parametrize("loss", [5e-4, 0.0, math.inf])
def test_a_linear_model_that_is_exact_wins_and_one_that_diverges_loses(loss):
    summary = Summary(rows({key: {**models, "LSTD": [loss]} for key, models in KNOWN.items()}))
    won = 4 if loss == math.inf else 0
    assert summary.wins("LSTD") == (won, 0, 4)
    assert summary.wins_over_best() == (min(won, 3), 4)
    constant = [dataclasses.replace(row, return_variance=SMALLEST / 2) for row in summary.rows]
    assert Summary(constant).wins("LSTD") == (0, 0, 0)
    assert Summary(constant).wins_over_best() == (0, 0)


def test_one_domain_has_no_transferred_weights():
    summary = Summary(row for row in rows(KNOWN) if row.source != "b" and row.target == "a")
    table = tables.comparison(summary, "TD loss")
    assert "softmax, own domain | linear, own domain" in table
    assert "transferred" not in table
    assert "softmax, transferred | linear, transferred" in tables.comparison(Summary(rows(KNOWN)), "TD loss")
