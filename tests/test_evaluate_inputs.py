"""``icrl evaluate`` and ``icrl collect`` on environments and contexts that are awkward."""

import os
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from icrl_agents import Episode
from icrl_agents.command_line import main
from icrl_agents.studies.evaluate.config import EvaluateConfig
from icrl_agents.studies.evaluate.evaluation import evaluate
from icrl_agents.studies.evaluate.features import Standardisation
from icrl_agents.studies.evaluate.run import run
from icrl_agents.studies.evaluate.summary import table

SMALL = ["--seeds", "2", "--context-episodes", "4", "--held-out-episodes", "3", "--gamma", "0.8"]


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", ["collect Moving-v0 --num-steps 30 --out a/log.npz", "evaluate Moving-v0 --out a"])
def test_an_environment_that_changes_the_working_directory_moves_no_output(command, root, monkeypatch, capsys):
    elsewhere, entry = root / "elsewhere", gym.spec("CartPole-v1").entry_point
    elsewhere.mkdir()

    class Moving(gym.envs.registration.load_env_creator(entry)):
        def __init__(self, **settings):
            os.chdir(elsewhere)
            super().__init__(**settings)

        def reset(self, *, seed=None, options=None):
            os.chdir(elsewhere)
            return super().reset(seed=seed, options=options)

    monkeypatch.setitem(gym.registry, "Moving-v0", gym.envs.registration.EnvSpec("Moving-v0", entry_point=Moving))
    assert main(command.split()) == 0
    assert not list(elsewhere.iterdir())
    files = {path.name for path in (root / "a").iterdir()}
    assert files == {"log.npz"} if command.startswith("collect") else "rows.csv" in files
    assert f"In {command.split()[-1]}" in capsys.readouterr().out


@pytest.mark.parametrize("end", [np.nan, np.inf])
def test_a_terminal_observation_that_is_not_finite_has_no_part_in_the_scale(end):
    x = np.random.default_rng(0).normal(size=(4, 2))
    x[:, 1] = 3.0
    scale = Standardisation(
        [Episode(x, np.ones(3)), Episode(np.full((2, 2), [[1.0, 3.0], [end, end]]), np.ones(1), True)]
    )
    seen = np.append(x[:, 0], 1.0)
    [scaled] = scale([Episode(x, np.ones(3))])
    np.testing.assert_allclose(scaled.observations[:, 0], (x[:, 0] - seen.mean()) / seen.std())
    np.testing.assert_array_equal(scaled.observations[:, 1], 0.0)
    assert not np.isfinite(scale([Episode(np.full((2, 2), end), np.ones(1), True)])[0].observations).any()


@pytest.mark.parametrize("end", [-10.0, np.finfo(np.float64).max])
def test_a_mark_after_a_termination_has_no_part_in_the_scale(end):
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=4), np.full(4, 3.0), rng.integers(0, 2, 4)])
    marked = Episode(np.array([[1.0, 3.0, 0.0], [end] * 3]), np.ones(1), True)
    scale = Standardisation([Episode(x, np.ones(3)), marked])
    seen = np.append(x[:, 0], 1.0)
    whole, short = scale([Episode(x, np.ones(3)), marked])
    np.testing.assert_allclose(whole.observations[:, 0], (x[:, 0] - seen.mean()) / seen.std())
    np.testing.assert_array_equal(whole.observations[:, 1:], x[:, 1:] * [0.0, 1.0])
    np.testing.assert_allclose(short.observations[0], [(1.0 - seen.mean()) / seen.std(), 0.0, 0.0])


def test_a_width_that_could_not_be_chosen_is_told_of():
    config = EvaluateConfig(env_id="CartPole-v1", gamma=0.5, depth=5, max_transitions=10)
    episodes = [Episode(np.random.default_rng(i).normal(size=(21, 2)), np.ones(20)) for i in range(4)]
    with pytest.warns(UserWarning, match=r"seed 7: within 10 transitions there is one episode.*it is 0.25 medians"):
        results = list(evaluate(config, 7, episodes[:2], episodes[2:]))
    assert {result.row.width for result in results} == {0.25, None}


def test_an_evaluator_that_cannot_be_fitted_on_half_of_a_context_has_no_width_of_its_choice():
    config = EvaluateConfig(env_id="CartPole-v1", gamma=0.5, depth=5, max_transitions=22)
    episodes = [Episode(np.random.default_rng(i).normal(size=(21, 2)), np.ones(20)) for i in range(4)]
    with pytest.warns(UserWarning, match=r"seed 7, Monte-Carlo: at no width .*it is 0.25 medians"):
        widths = {result.row.evaluator: result.row.width for result in evaluate(config, 7, episodes[:2], episodes[2:])}
    assert widths["Monte-Carlo"] == 0.25


def test_a_dash_of_an_evaluator_without_a_solution_is_explained_so(monkeypatch, capsys):
    def none(evaluator, context):
        return None if type(evaluator).__name__ == "LSTD" else evaluator.fit(context)

    monkeypatch.setattr("icrl_agents.studies.evaluate.evaluation.fitted", none)
    assert main(["evaluate", "CartPole-v1", *SMALL, "--depth", "5", "--out", "out"]) == 0
    printed = capsys.readouterr().out
    assert "–: no solution in one seed or more" in printed
    assert "all returns that count are equal" not in printed


def test_an_evaluator_without_a_solution_in_one_seed_has_no_mean_effective_sample_size(monkeypatch):
    config = EvaluateConfig(env_id="CartPole-v1", gamma=0.5, depth=5)
    episodes = [Episode(np.random.default_rng(i).normal(size=(6, 2)), np.ones(5)) for i in range(4)]
    solved = [result.row for result in evaluate(config, 0, episodes[:2], episodes[2:])]
    monkeypatch.setattr("icrl_agents.studies.evaluate.evaluation.fitted", lambda evaluator, context: None)
    lost = [result.row for result in evaluate(config, 1, episodes[:2], episodes[2:])]
    assert [row.effective_sample_size is None or np.isnan(row.effective_sample_size) for row in lost] == [True] * 5
    for line in table(solved).splitlines()[2:6]:
        assert 1.0 <= float(line.split()[-2]) <= 10.0
    assert [line.split()[-2] for line in table([*solved, *lost]).splitlines()[2:6]] == ["–"] * 4


def test_held_out_episodes_that_repeat_the_contexts_are_told_of(monkeypatch):
    class Corridor(gym.Env):
        observation_space, action_space = gym.spaces.Box(0, 9, (1,), np.float64), gym.spaces.Discrete(2)

        def __init__(self, starts=1):
            self.starts = starts

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.place = float(self.np_random.random()) if self.starts == 2 else 0.0
            return np.array([self.place]), {}

        def step(self, action):
            self.place += 1.0
            return np.array([self.place]), self.place, self.place > 5, False, {}

    monkeypatch.setitem(gym.registry, "Corridor-v0", gym.envs.registration.EnvSpec("Corridor-v0", entry_point=Corridor))
    settings = {"context_episodes": 4, "held_out_episodes": 3, "seeds": 2, "gamma": 0.8, "env_id": "Corridor-v0"}
    with pytest.warns(UserWarning, match="seed 0, 1: every held-out episode is one of the context's again"):
        run(EvaluateConfig(**settings, out=Path("a")))
    run(EvaluateConfig(**settings, env_args=("starts=2",), out=Path("b")))


def test_returns_that_differ_by_where_episodes_were_cut_are_told_of():
    settings = {"context_episodes": 2, "held_out_episodes": 2, "seeds": 2, "gamma": 0.8, "depth": 5}
    with pytest.warns(UserWarning, match="seed 0, 1: most of the variance of the held-out returns is of where episod"):
        run(EvaluateConfig(env_id="MountainCar-v0", **settings, out=Path("a")))  # each reward is -1
    for env_id in ("Pendulum-v1", "icrl/LoopChain-v0", "CartPole-v1"):
        run(EvaluateConfig(env_id=env_id, **settings, max_episode_steps=60, out=Path(env_id)))
