"""The RKHS study: one small run, its errors from plain loops, and its summary on rows whose medians are known."""

import csv
import math

import numpy as np
import pytest

from icrl_agents.command_line import main
from icrl_agents.studies.medians import coverage, median
from icrl_agents.studies.rkhs.config import RKHSConfig
from icrl_agents.studies.rkhs.evaluation import CLOSED, KERNEL, LINEAR, SOFTMAX, Cell, Row, evaluate, process_of
from icrl_agents.studies.rkhs.recovery import recovered
from icrl_agents.studies.rkhs.run import cells_of, rows_of, run
from icrl_agents.studies.rkhs.summary import Summary
from icrl_envs.adapter import ProcessEnv

SMALL = {
    "seeds": 1,
    "lengths": (10, 20),
    "depth": 4,
    "depths": (2,),
    "ratios": (0.5, 1.0),
    "mismatch_length": 10,
    "test_states": 6,
    "workers": 1,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    config = RKHSConfig(**SMALL, out=tmp_path_factory.mktemp("study") / "out")
    return config, run(config)


def test_a_run_writes_rows_and_figures(finished):
    config, _ = finished
    figures = ["errors.png", "recovered_1d.png", "recovered_2d.png"]
    assert sorted(path.name for path in config.out.iterdir()) == ["cells.jsonl", "config.json", *figures, "rows.csv"]
    with (config.out / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    # Each length: two depths of two transformers and two closed forms; each other scale: one depth and a closed form.
    assert len(rows) == 4 * (2 * (2 * 2 + 2) + 3 * 3)
    assert len({tuple(value for name, value in row.items() if "error" not in name) for row in rows}) == len(rows)
    assert {row["depth"] for row in rows if row["evaluator"] in (CLOSED, LINEAR)} == {""}


def test_a_finished_run_is_not_computed_again(finished, monkeypatch):
    config, summary = finished
    monkeypatch.setattr("icrl_agents.studies.rkhs.run.evaluate", None)
    assert run(config).tables() == summary.tables()


def kernel_value(name, scale, x, y):
    product, square = (
        sum(a * b for a, b in zip(x, y, strict=True)),
        sum((a - b) ** 2 for a, b in zip(x, y, strict=True)),
    )
    return math.exp(-square / (2 * scale**2)) if name == "rbf" else math.exp(product / scale)


def swept(states, rewards, queries, kernel, depth, normalise):
    """Values of ``queries`` after ``depth`` sweeps over the transitions of one trajectory, in plain loops."""
    n, everywhere = len(rewards), [*states, *queries]
    rows = [[kernel(x, states[k]) for k in range(n)] for x in everywhere]
    step = 1.0 if normalise else 1.0 / max(sum(rows[i][k] for i in range(n)) for k in range(n))
    if normalise:
        rows = [[weight / sum(row) for weight in row] for row in rows]
    v = [0.0] * len(everywhere)
    for _ in range(depth):
        errors = [rewards[k] + 0.9 * v[k + 1] - v[k] for k in range(n)]
        v = [
            value + step * sum(w * e for w, e in zip(row, errors, strict=True))
            for value, row in zip(v, rows, strict=True)
        ]
    return v[len(states) :]


@pytest.mark.parametrize("kernel", ["rbf", "exponential"])
@pytest.mark.parametrize("evaluator", [SOFTMAX, KERNEL])
def test_errors_are_those_of_the_equations(kernel, evaluator):
    config, cell = RKHSConfig(**SMALL), Cell(kernel, 2, 3)
    process = process_of(config, cell)
    env = ProcessEnv(process)
    states, rewards = [env.reset(seed=3)[0]], []
    for _ in range(10):
        state, reward, *_ = env.step(np.int64(0))
        states, rewards = [*states, state], [*rewards, reward]
    tests = np.random.default_rng([3, 1]).normal(0.0, process.stationary_scale, (6, 2))
    queries, scale = [*tests, *states[:10]], {"rbf": 0.25, "exponential": 1.0}[kernel]
    values = swept(states, rewards, queries, lambda x, y: kernel_value(kernel, scale, x, y), 4, evaluator == SOFTMAX)
    z, c, own = process.centers, process.coefficients, config.scale(kernel)
    exact = [sum(c[i] * kernel_value(kernel, own, x, z[i]) for i in range(10)) for x in queries]
    wrong = np.array(values) - exact
    rows = [
        row for row in evaluate(config, cell)
        if (row.evaluator, row.kernel, row.ratio, row.length, row.depth) == (evaluator, kernel, 0.5, 10, 4)
    ]  # fmt: skip
    assert len(rows) == 1
    assert rows[0].error == pytest.approx(np.square(wrong[:6]).mean())
    assert rows[0].centred_error == pytest.approx(wrong[:6].var())
    assert rows[0].seen_error == pytest.approx(np.square(wrong[6:]).mean())
    if evaluator == SOFTMAX:
        shown = recovered(config, cell, 10, tests)
        assert set(shown) == {SOFTMAX, KERNEL}
        assert all(np.isfinite(values).all() for values in shown.values())


def test_what_has_no_solution_has_infinite_errors():
    config = RKHSConfig(**{**SMALL, "ratios": (1.0, 1000.0), "ridge": 0.0})
    found = rows_of(config, next(iter(cells_of(config).values())))
    wide = [row for row in found if row.evaluator == CLOSED and row.ratio == 1000.0 and row.kernel == "exponential"]
    assert [row.error for row in wide] == [math.inf]
    assert Summary(RKHSConfig(**{**SMALL, "kernels": ("rbf",)}), wide).rows == wide


def test_longer_contexts_and_the_right_kernel_recover_the_value():
    config = RKHSConfig(lengths=(30, 400), ratios=(1.0,), mismatch_length=30, depths=(100,), kernels=("rbf",))
    rows = [row for seed in range(3) for row in evaluate(config, Cell("rbf", 1, seed))]
    summary = Summary(config, rows)
    errors = [summary.by_length("rbf", 1, SOFTMAX, n).value for n in config.lengths]
    assert errors[1] < 0.3 * errors[0]
    assert errors[1] < 0.15


def rows(error, **changes):
    base = {
        "process_kernel": "rbf", "dim": 1, "evaluator": SOFTMAX, "kernel": "rbf", "ratio": 1.0, "depth": 4,
        "centred_error": 0.0, "seen_error": 0.0,
    }  # fmt: skip
    return [
        Row(**{**base, **changes}, seed=seed, length=n, error=error(seed, n)) for seed in range(3) for n in (10, 20)
    ]


def test_the_rate_is_the_slope_of_the_logarithms():
    config = RKHSConfig(**{**SMALL, "seeds": 3})
    summary = Summary(config, rows(lambda seed, n: (seed + 1) / n**2))
    assert summary.rate("rbf", 1, SOFTMAX).value == pytest.approx(-2.0)
    assert summary.by_length("rbf", 1, SOFTMAX, 10).value == pytest.approx(0.02)
    assert math.isnan(Summary(config, rows(lambda seed, n: math.inf)).rate("rbf", 1, SOFTMAX).value)


def test_the_median_has_an_interval_of_the_coverage_it_says():
    for count in (5, 6, 10, 17):
        rng = np.random.default_rng(count)
        found = [median(rng.standard_exponential(count).tolist()) for _ in range(4000)]
        share = np.mean([each.low <= math.log(2) <= each.high for each in found])
        assert coverage(count) == pytest.approx(share, abs=0.012)
        assert coverage(count) >= 0.95 or count < 6
    assert str(median([0.5])) == "0.5"
    assert str(median([1.0, math.inf, math.inf, math.inf])) == "inf [1, inf]"
    assert str(median([1.0, math.nan])) == "–"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernels": ("laplace",)}, "kernels must be one of"),
        ({"dims": ()}, "dims: expected at least one"),
        ({"lengths": (10, 10)}, "lengths: expected at least one, each once"),
        ({"lengths": (1,)}, "lengths must be an integer ≥ 2"),
        ({"ratios": (0.0,)}, "ratios must be"),
        ({"gamma": 1.0}, "gamma must be"),
        ({"temperature": -1.0}, "temperature must be"),
        ({"temperature": 1e-5}, "^temperature=1e-05 makes the exponential kernel overflow .* use a larger temperature"),
        ({"length_scale": 1e-300}, "length_scale must be"),
        ({"length_scale": 1e200}, "length_scale must be"),
        ({"length_scale": 1e-9, "dims": (99,)}, "^length_scale=1e-09 makes the rbf kernel overflow or vanish"),
        ({"ratios": (1e-200,)}, "ratios must be"),
        ({"seeds": 0}, "seeds must be"),
    ],
)
def test_wrong_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        RKHSConfig(**{**SMALL, **change})


def test_the_command_says_what_is_wrong(capsys):
    assert main(["rkhs", "--dims", "0"]) == 2
    assert capsys.readouterr().err.startswith("icrl: dims must be")


@pytest.mark.parametrize("narrow", [{"length_scale": 1e-50, "dims": (1,)}, {"dims": (60,)}])
def test_a_value_that_is_nothing_but_rare_peaks_is_a_warning(narrow, tmp_path):
    config = RKHSConfig(**{**SMALL, **narrow}, kernels=("rbf",), out=tmp_path)
    with pytest.warns(
        UserWarning, match=r"rbf value in \d+-D, seed 0: its mean square in the test states is .* and not 1"
    ):
        next(evaluate(config, Cell("rbf", config.dims[0], 0)))
