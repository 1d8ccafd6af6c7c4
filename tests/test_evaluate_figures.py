"""The figures of ``icrl evaluate`` can be read, whatever the numbers."""

import dataclasses
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from icrl_agents.studies.evaluate.evaluation import Result, Row
from icrl_agents.studies.evaluate.figures import COLOURS, calibration_figure, episode_figure, sample_size_figure

COUNT = 60


def results(values, sizes):
    """All evaluators with the same values and sizes, against returns from N(−20, 1)."""
    returns = np.random.default_rng(0).normal(-20.0, 1.0, COUNT)
    blank: dict[str, Any] = {field.name: 1.0 for field in dataclasses.fields(Row)}
    return [
        Result(
            Row(**(blank | {"evaluator": name, "seed": 0})),
            values,
            returns,
            np.ones(COUNT, dtype=bool),
            None if name == "LSTD" else sizes,
            [COUNT],
        )
        for name in COLOURS
    ]


def test_a_prediction_that_is_constant_but_for_rounding_has_a_scale_that_can_be_read():
    constant = -20.0 + 1e-12 * np.random.default_rng(1).normal(size=COUNT)
    panels = calibration_figure(results(constant, np.ones(COUNT))).axes
    for panel in panels:
        low, high = panel.get_xlim()
        assert high - low > 0.1
        assert low < -20.0 < high


@pytest.mark.parametrize("largest", [1.1, 9.0, 90.0, 3e4])
def test_labels_of_sample_sizes_keep_apart(largest):
    sizes = np.geomspace(1.0, largest, COUNT)
    figure = sample_size_figure(results(np.full(COUNT, -20.0), sizes))
    figure.canvas.draw()
    for axis in figure.axes:
        low, high = axis.get_xlim()
        labels = [label for label in axis.get_xticklabels() if low <= label.get_position()[0] <= high]
        extents = [label.get_window_extent() for label in labels]
        assert len(extents) >= 2
        assert all(one.x1 < other.x0 for one, other in pairwise(extents))


def test_lines_that_coincide_are_all_seen():
    """Each is narrower than those beneath it."""
    figure = episode_figure(results(np.full(COUNT, -20.0), np.ones(COUNT)))
    widths = [line.get_linewidth() for line in figure.axes[0].lines if line.get_color() in COLOURS.values()]
    assert len(widths) == len(COLOURS)
    assert all(one > other > 0 for one, other in pairwise(widths))
