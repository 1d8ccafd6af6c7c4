"""``icrl evaluate``: any Gymnasium id, scores that plain loops confirm, clear refusals."""

import csv
import dataclasses
import json
import math

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from icrl_agents import Context, Episode, collect_episodes, evaluators, kernels
from icrl_agents.command_line import main, parse
from icrl_agents.studies.evaluate.config import EvaluateConfig
from icrl_agents.studies.evaluate.evaluation import Row, evaluate
from icrl_agents.studies.evaluate.evaluators import WIDTHS, chosen_width, kernel_evaluators, kernel_of
from icrl_agents.studies.evaluate.features import Standardisation, shortened, with_constant
from icrl_agents.studies.evaluate.run import run
from icrl_agents.studies.evaluate.summary import table

FILES = ["calibration.png", "config.json", "effective_sample_size.png", "episode.png", "rows.csv"]
SMALL = ["--seeds", "2", "--context-episodes", "4", "--held-out-episodes", "3", "--gamma", "0.8"]


class Odd(gym.Env):
    """Whatever observation space it is given; ends after eight steps."""

    action_space = spaces.Discrete(2)

    def __init__(self, kind):
        if kind == "unmade":
            raise RuntimeError("no such kind")
        self.observation_space = {
            "dict": spaces.Dict({"room": spaces.Discrete(3), "at": spaces.Box(-9, 9, (2,), np.float32)}),
            "pixels": spaces.Box(0, 255, (84, 84, 4), np.uint8),
            "grey": spaces.Box(0, 255, (84, 84), np.uint8),
            "picture": spaces.Dict({"image": spaces.Box(0, 1, (64, 64, 3), np.float32), "at": spaces.Discrete(3)}),
            "broken": spaces.Box(-9, 9, (2,), np.float32),
            "failing": spaces.Box(-9, 9, (2,), np.float32),
            "exiting": spaces.Box(-9, 9, (2,), np.float32),
            "sequence": spaces.Sequence(spaces.Discrete(3)),
        }[kind]
        self.kind = kind

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(None if seed is None else seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        if self.kind == "exiting" and self.t == 7:
            raise SystemExit
        if self.kind == "failing" and self.t == 7:
            raise RuntimeError("the simulator is gone")
        if self.kind == "broken" and self.t == 7:
            return np.full(2, np.nan, np.float32), 0.0, False, False, {}
        return self.observation_space.sample(), float(action), self.t == 8, False, {}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gym.register("icrl-test/Odd-v0", entry_point=Odd)
    yield tmp_path
    del gym.registry["icrl-test/Odd-v0"]


@pytest.mark.parametrize(
    ("id", "options"),
    [
        ("CartPole-v1", ["--depth", "30"]),
        pytest.param("Pendulum-v1", ["--max-episode-steps", "40", "--depth", "20"], marks=pytest.mark.slow),
        pytest.param("Blackjack-v1", ["--kernel", "rbf"], marks=pytest.mark.slow),
        ("icrl/BoyanChain-v0", ["--env-args", "num_states=5", "--max-episode-steps", "40"]),
        ("icrl-test/Odd-v0", ["--env-args", "kind=dict"]),
    ],
)
def test_any_id_is_evaluated_with_a_table_rows_and_figures(id, options, place, capsys):
    assert main(["evaluate", id, *SMALL, *options]) == 0
    folder = next(path.parent for path in place.rglob("config.json"))
    assert folder.parent == place / "results" / "evaluate"
    assert sorted(path.name for path in folder.iterdir()) == FILES
    printed = capsys.readouterr()
    assert "evaluating" in printed.err
    with (folder / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    names = ["softmax TD", "kernel TD", "kernel LSTD", "Monte-Carlo", "LSTD"]
    assert [row["evaluator"] for row in rows] == 2 * names
    assert all(line.split("  ")[0] in printed.out for line in names)
    assert all(math.isfinite(float(row[name])) for row in rows for name in ("td_loss", "msve", "centred_msve", "bias"))
    assert all((row["effective_sample_size"] == "") == (row["evaluator"] == "LSTD") for row in rows)
    config = json.loads((folder / "config.json").read_text())
    assert parse(config["command"][1:]) == parse(["evaluate", id, *SMALL, *options])


def test_scores_are_those_of_plain_loops():
    config = EvaluateConfig(env_id="CartPole-v1", gamma=0.9, depth=15, seeds=1)
    episodes = collect_episodes(gym.make("CartPole-v1"), num_episodes=7, max_episode_steps=30, seed=5)
    context, held_out = episodes[:4], episodes[4:]
    by_name = {result.row.evaluator: result for result in evaluate(config, 5, context, held_out)}
    softmax = by_name["softmax TD"]

    stacked = np.concatenate([e.observations[:-1] if e.terminated else e.observations for e in context]).astype(float)
    mean, deviation = stacked.mean(0), stacked.std(0)
    scaled = [Episode((e.observations - mean) / deviation, e.rewards, e.terminated) for e in context]
    fitting = Context.from_episodes(scaled, 0.9)
    states, returns, counted = [], [], []
    for episode in held_out:
        g, seen = 0.0, 0
        tail = []
        for reward in episode.rewards[::-1]:
            g, seen = reward + 0.9 * g, seen + 1
            tail.append((g, episode.terminated or 0.9**seen <= 0.05))
        returns += [g for g, _ in tail[::-1]]
        counted += [c for _, c in tail[::-1]]
        states += list((episode.observations[:-1] - mean) / deviation)
    length_scale = softmax.row.width * float(kernels.median_distance(fitting.states))
    value = evaluators.WeightedSoftmaxTD(kernels.Laplace(length_scale), 15).fit(fitting)
    v = value(np.array(states)).numpy()
    np.testing.assert_allclose(softmax.values, v)
    np.testing.assert_array_equal(softmax.counted, counted)
    errors = [v_i - g_i for v_i, g_i, c in zip(v, returns, counted, strict=True) if c]
    assert softmax.row.msve == pytest.approx(np.mean(np.square(errors)))
    assert softmax.row.bias == pytest.approx(np.mean(errors))
    assert softmax.row.centred_msve == pytest.approx(np.var(errors))
    assert softmax.row.return_variance == pytest.approx(np.var([g for g, c in zip(returns, counted, strict=True) if c]))
    assert softmax.row.returns_that_count == sum(counted)
    assert by_name["LSTD"].row.width is None


def test_the_width_is_the_best_of_the_grid_on_the_contexts_own_returns():
    config = EvaluateConfig(env_id="CartPole-v1", gamma=0.9, depth=15)
    raw = collect_episodes(gym.make("CartPole-v1"), num_episodes=6, seed=2)
    episodes = Standardisation(raw)(raw)
    losses = []
    for width in WIDTHS:
        total = 0.0
        for own, other in ((episodes[::2], episodes[1::2]), (episodes[1::2], episodes[::2])):
            fitting, test = Context.from_episodes(own, 0.9), Context.from_episodes(other, 0.9)
            value = evaluators.MonteCarlo(kernel_of(config, fitting, width), config.min_tail).fit(fitting)
            total += float((value(test.states) - test.returns()[0]).square().mean())
        losses.append(total)
    assert chosen_width(config, kernel_evaluators(config)["Monte-Carlo"], episodes) == WIDTHS[int(np.argmin(losses))]


def test_observations_are_on_the_scale_of_the_context():
    x = np.array([[1.0, 5.0, 0.0], [3.0, 5.0, 1.0], [5.0, 5.0, 0.0]], np.float32)
    episode = Episode(x, np.ones(2))
    scale = Standardisation([episode])
    np.testing.assert_allclose(scale([episode])[0].observations[:, 0], [-math.sqrt(1.5), 0.0, math.sqrt(1.5)])
    other = scale([Episode(x + 10, np.ones(2), terminated=True)])[0]
    assert other.terminated
    np.testing.assert_array_equal(other.observations[:, 1], 0.0)  # constant in the context
    np.testing.assert_array_equal(other.observations[:, 2], [10, 11, 10])  # one-hot in the context
    np.testing.assert_array_equal(with_constant([episode])[0].observations[:, 3], 1.0)


@pytest.mark.parametrize("unit", [2.0**-1000, 1e-200, 1e-13, 1e200])
def test_units_do_not_matter(unit):
    x = np.random.default_rng(0).normal(size=(9, 2))
    x[:, 1] = x[:, 1] + 1e5
    expected = (x - x.mean(0)) / x.std(0)
    episode = Episode(x * [unit, 1.0], np.ones(8))
    np.testing.assert_allclose(Standardisation([episode])([episode])[0].observations, expected, rtol=1e-9)


def test_a_long_context_is_cut_as_truncated():
    episodes = [Episode(np.arange(4.0)[:, None], np.ones(3), terminated=True) for _ in range(3)]
    kept = shortened(episodes, 5)
    assert [len(episode) for episode in kept] == [3, 2]
    assert [episode.terminated for episode in kept] == [True, False]
    assert kept[1].observations.ravel().tolist() == [0.0, 1.0, 2.0]
    assert shortened(episodes, 3) == episodes[:1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["icrl-test/Odd-v0", "--env-args", "kind=pixels"], "pixel observations (84, 84, 4) are no features"),
        (["icrl-test/Odd-v0", "--env-args", "kind=grey"], "pixel observations (84, 84) are no features"),
        (["icrl-test/Odd-v0", "--env-args", "kind=picture"], "pixel observations (64, 64, 3) are no features"),
        (["icrl-test/Odd-v0", "--env-args", "kind=sequence"], "expected observations that flatten to a vector"),
        (["icrl-test/Odd-v0", "--env-args", "kind=broken"], "episode 0, step 7"),
        (["icrl-test/Odd-v0", "--env-args", "kind=failing"], "Odd-v0 fails in step() (RuntimeError: the simulator is"),
        (["icrl-test/Odd-v0", "--env-args", "kind=exiting"], "Odd-v0 fails in step() (SystemExit: )"),
        (["icrl-test/Odd-v0", "--env-args", "kind=unmade"], "env_id: icrl-test/Odd-v0 cannot be made: no such kind"),
        (["icrl/RKHS-v0", "--max-episode-steps", "20"], "no held-out return holds 59 rewards"),
        (["CartPole-v1", "--gamma", "1"], "gamma must be a finite number in [0, 1)"),
        (["CartPole-v1", "--context-episodes", "1"], "context_episodes must be an integer ≥ 2; got 1"),
        (["CartPole-v1", "--policy", "scripted"], "have a scripted policy"),
        (["NoSuch-v0"], "env_id: NoSuch-v0 cannot be made"),
        (["LunarLander-v3"], "env_id: LunarLander-v3 cannot be made"),  # which needs Box2D
    ],
)
def test_refusals_are_one_line_and_leave_nothing(options, message, place, capsys):
    assert main(["evaluate", *options, "--out", "out"]) == 2
    printed = [line for line in capsys.readouterr().err.splitlines() if line.startswith("icrl: ")]
    assert len(printed) == 1
    assert message in printed[0]
    assert list(place.iterdir()) == []


def test_what_is_made_of_folders_is_taken_away_and_what_was_there_is_left(place, capsys):
    options = ["evaluate", "icrl-test/Odd-v0", "--env-args", "kind=failing"]
    assert main(options) == 2
    assert list(place.iterdir()) == []
    (place / "results" / "other").mkdir(parents=True)
    assert main(options) == 2
    assert sorted(path.name for path in place.rglob("*")) == ["other", "results"]
    assert "Traceback" not in capsys.readouterr().err


def test_small_rewards_have_relative_errors_and_equal_ones_have_none():
    def row(power, variance, **other):
        blank = {field.name: 1.0 for field in dataclasses.fields(Row)} | {"evaluator": "LSTD", "width": None}
        return Row(**(blank | {"return_power": power, "return_variance": variance} | other))

    small = table([row(1e-9, 5e-10, msve=1e-10, centred_msve=1e-10)] * 2)
    assert small.splitlines()[-1].split()[2:4] == ["0.1±0", "0.2±0"]
    equal = table([row(1.0, 1e-17)] * 2)
    assert equal.splitlines()[-1].split()[2:4] == ["1±0", "–"]
    assert "± " not in equal


def test_a_saved_model_is_evaluated(place):
    library = pytest.importorskip("stable_baselines3")
    library.PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=0, device="cpu").save("model.zip")
    config = EvaluateConfig(
        env_id="CartPole-v1",
        policy="model.zip",
        epsilon=0.3,
        gamma=0.8,
        seeds=1,
        context_episodes=3,
        held_out_episodes=3,
    )
    results = run(config)
    assert {result.row.policy for result in results} == {"model.zip"}
    assert all(np.isfinite(result.values).all() for result in results)


@pytest.mark.slow
def test_softmax_td_predicts_pendulum_better_than_a_line():
    results = run(EvaluateConfig(env_id="Pendulum-v1", seeds=1, gamma=0.95))
    relative = {result.row.evaluator: result.row.centred_msve / result.row.return_variance for result in results}
    assert relative["softmax TD"] < 0.3 < relative["LSTD"]
