"""What the studies draw and say where there are many noise levels, few seeds or domains, or another order."""

import itertools
import os
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from icrl_agents.command_line import main
from icrl_agents.studies.adapt import figures as adapt_figures
from icrl_agents.studies.adapt.evaluation import ADAPTIVE, FIXED, NAIVE
from icrl_agents.studies.adapt.evaluation import Row as AdaptRow
from icrl_agents.studies.adapt.summary import Summary as AdaptSummary
from icrl_agents.studies.beyond.config import BeyondConfig
from icrl_agents.studies.line_styles import in_columns, line_styles
from icrl_agents.studies.matrix import figures as matrix_figures
from icrl_agents.studies.matrix.evaluation import CONSTRUCTED
from icrl_agents.studies.matrix.evaluation import Row as MatrixRow
from icrl_agents.studies.matrix.summary import Summary as MatrixSummary
from icrl_agents.studies.rkhs import figures as rkhs_figures
from icrl_agents.studies.rkhs.config import RKHSConfig
from icrl_agents.studies.rkhs.run import cells_of, rows_of
from icrl_agents.studies.rkhs.summary import Summary as RKHSSummary


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are drawn meanwhile, by name."""
    found = {}
    for module in (adapt_figures, matrix_figures, rkhs_figures):
        monkeypatch.setattr(module, "write_figure", lambda figure, path: found.__setitem__(path, figure))
    return found


def adapt_summary(*domains):
    losses = {(FIXED, "Laplace 0.1", 20): 1.0, (NAIVE, "Laplace 0.1", 20): 1.0, (ADAPTIVE, "mixture", None): 0.5}
    measures = ("td_loss", "msve", "centred_msve", "true_centred_msve")
    return AdaptSummary(
        AdaptRow(
            domain=domain, noise="low", sigma=0.1, seed=0, method=method, kernel=kernel, depth=depth, weight=0.0,
            **dict.fromkeys(measures, loss * (1 + i)),
        )
        for i, domain in enumerate(domains)
        for (method, kernel, depth), loss in losses.items()
    )  # fmt: skip


def test_where_there_is_no_interval_the_legend_has_none_and_no_source_counts_as_not_beaten(drawn):
    adapt_figures.ratios_figure(adapt_summary("reach-v3"), "one")
    texts = [text.get_text() for text in drawn["one"].axes[0].get_legend().get_texts()]
    assert texts[0] == "TD loss / that of Laplace 0.1, L=20: 0.500"
    adapt_figures.ratios_figure(adapt_summary("reach-v3", "push-v3"), "two")
    texts = [text.get_text() for text in drawn["two"].axes[0].get_legend().get_texts()]
    assert texts[0].endswith("L=20: 0.500 [0.500, 0.500]")
    assert "fixed on one source domain  " in adapt_summary("reach-v3", "push-v3").table()
    assert "one source domain (3 of 3 beaten)" in adapt_summary("reach-v3", "push-v3", "door-open-v3").table()


def test_every_noise_level_has_a_curve_of_its_own_style(drawn):
    noise = ("high", "mid", "low", "0.3", "0.05", "0.02", "0.01")
    models = {"softmax": (0, 1), "linear": (0, 1), "LSTD": (None,)}
    rows = [
        MatrixRow(
            source=source, seed=0, target="a", noise=level, model=model, depth=depth, td_loss=1.0 / (i + 2),
            msve=1.0, centred_msve=1.0, zero_td_loss=1.0, return_power=1.0, return_variance=1.0,
        )
        for source in ("a", CONSTRUCTED)
        for (i, level), (model, depths) in itertools.product(enumerate(noise), models.items())
        for depth in depths
    ]  # fmt: skip
    matrix_figures.depth_figure(MatrixSummary(rows), "depth")
    axis = drawn["depth"].axes[0]
    heights = [line.get_ydata()[-1] for line in axis.get_lines() if line.get_marker() == "o"]
    assert heights == [1.0 / (i + 2) for i in range(7) for _ in ("softmax", "linear")]
    labelled = [line for line in drawn["depth"].legends[0].get_lines() if line.get_color() == "black"]
    assert len({line._unscaled_dash_pattern[1] and tuple(line._unscaled_dash_pattern[1]) for line in labelled}) == 7
    assert [text.get_text() for text in drawn["depth"].legends[0].get_texts()][2:-1] == [f"{n} noise" for n in noise]
    assert drawn["depth"].get_suptitle() == "weights from the domain's own high-noise tasks"  # one seed has no interval


def test_errors_are_drawn_in_the_order_of_the_lengths_and_one_seed_has_no_interval(drawn):
    few = {"depth": 2, "depths": (1,), "ratios": (1.0,), "mismatch_length": 8, "test_states": 5, "seeds": 1}
    config = RKHSConfig(kernels=("rbf",), dims=(1,), lengths=(20, 5, 10), first_seed=3, **few)
    rows = [row for cell in cells_of(config).values() for row in rows_of(config, cell)]
    summary = RKHSSummary(config, rows)
    rkhs_figures.errors_figure(summary, "errors")
    line = next(line for line in drawn["errors"].axes[0].get_lines() if line.get_marker() == "o")
    assert list(line.get_xdata()) == [5, 10, 20]
    expected = [summary.by_length("rbf", 1, "softmax", n).value for n in (5, 10, 20)]
    np.testing.assert_array_equal(line.get_ydata(), expected)
    assert drawn["errors"].get_suptitle() == "seed 3; 1 is v = 0; beyond 1e-05 and 30 drawn there"


@pytest.mark.parametrize(
    ("processes", "settings", "message"),
    [
        (("boyan-one-hot",), {"continuations": 20}, "continuations: expected none, since these .* no measured values"),
        (("boyan-one-hot", "loop-random"), {"states": 5}, "states: expected none"),
        (("loop-random",), {"missing": 0.01}, "missing: expected none"),
        (("cartpole-lean",), {"num_states": 20}, "num_states: expected none, since these processes have no chains"),
    ],
)
def test_what_has_no_effect_on_the_chosen_processes_is_refused(processes, settings, message):
    with pytest.raises(ValueError, match=message):
        BeyondConfig(processes=processes, **settings)
    BeyondConfig(**settings)
    BeyondConfig(processes=("boyan-one-hot",), held_out_steps=30)  # fewer than the states that are not measured


@pytest.mark.parametrize("count", [0, 1, 4, 5, 40])
def test_as_many_line_styles_as_curves_and_no_two_alike(count):
    assert len(line_styles(count)) == len(set(line_styles(count))) == count


@pytest.mark.parametrize("levels", [1, 3, 5])
def test_a_legend_has_a_column_for_each_kind(levels):
    models, noise = ([Line2D([], [], label=f"{kind} {i}") for i in range(n)] for kind, n in (("m", 3), ("n", levels)))
    legend = Figure().legend(handles=in_columns(models, noise), ncols=2)
    columns = [[text.get_text() for text in legend.get_texts()[i :: max(3, levels)]] for i in range(max(3, levels))]
    assert [m for m, _ in columns] == [f"m {i}" if i < 3 else " " for i in range(len(columns))]
    assert [n for _, n in columns] == [f"n {i}" if i < levels else " " for i in range(len(columns))]


def test_figures_do_not_depend_on_the_users_settings(tmp_path, monkeypatch):
    study = ["evaluate", "icrl/BoyanChain-v0", "--seeds", "1", "--context-episodes", "2", "--held-out-episodes", "2"]
    study += ["--max-episode-steps", "40", "--gamma", "0.8", "--out"]
    assert main([*study, str(tmp_path / "plain")]) == 0
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", True)  # which asks for LaTeX, that need not be there
    monkeypatch.setitem(matplotlib.rcParams, "axes.facecolor", "black")
    assert main([*study, str(tmp_path / "styled")]) == 0
    assert matplotlib.rcParams["text.usetex"]
    plain, styled = (
        [path.read_bytes() for path in sorted((tmp_path / name).glob("*.png"))] for name in ("plain", "styled")
    )
    assert plain == styled != []


def test_a_backend_of_a_notebook_that_is_not_installed_here_is_not_asked_for(tmp_path):
    study = ["collect", "CartPole-v1", "--num-episodes", "1", "--out", str(tmp_path / "log.npz")]
    backend = {"MPLBACKEND": "module://a_notebook_of_another_environment.backend"}
    command = [sys.executable, "-m", "icrl_agents", *study]
    run = subprocess.run(command, env=os.environ | backend, capture_output=True, text=True, check=False)
    assert (run.returncode, "backend" in run.stderr) == (0, False), run.stderr
    assert (tmp_path / "log.npz").exists()
