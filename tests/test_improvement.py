"""Improvement by advantages: each formula against a plain loop, a toy problem that gets better, and the study."""

import json
import math

import numpy as np
import pytest

from icrl_agents import Context, Episode
from icrl_agents.control.improvement import (
    AmplifiedPolicy,
    Trial,
    cross_fitted_advantages,
    gain_scores,
    gain_step,
    mean_clipped,
    return_advantages,
)
from icrl_agents.evaluators import WeightedSoftmaxTD
from icrl_agents.kernels import Laplace
from icrl_agents.studies.improve import run as study
from icrl_agents.studies.improve import training
from icrl_agents.studies.improve.config import ImproveConfig
from icrl_agents.studies.improve.figures import rewards_figure
from icrl_agents.studies.improve.rollouts import FEATURES, rollouts, trials
from icrl_envs.metaworld.env import MetaWorldEnv
from icrl_envs.metaworld.policies import scripted_policy

CRITIC = WeightedSoftmaxTD(Laplace(0.3), num_sweeps=20)
SMALL = {
    "domains": ("reach-v3",),
    "seeds": 1,
    "rounds": 2,
    "episodes": 4,
    "test_episodes": 2,
    "steps": 15,
    "folds": 2,
    "depth": 5,
    "executor": "serial",
}


@pytest.mark.parametrize(("centre", "scale"), [(0.0, 1.0), (0.4, 0.7), (-3.0, 1.0), (25.0, 0.1), (0.9, 0.01)])
def test_the_mean_of_a_clipped_normal_by_quadrature(centre, scale):
    total = 0.0
    for k in range(20_000):
        e = -8 + 16 * (k + 0.5) / 20_000
        total += min(max(centre + scale * e, -1.0), 1.0) * math.exp(-(e**2) / 2) / math.sqrt(2 * math.pi) * 16 / 20_000
    assert float(mean_clipped(np.array(centre), scale)) == pytest.approx(total, abs=1e-7)
    assert mean_clipped(np.array([centre]), 0.0).tolist() == [min(max(centre, -1.0), 1.0)]


def test_the_policy_amplifies_before_the_clip():
    policy = AmplifiedPolicy(lambda x: np.array([0.2, -4.0]), np.log([3.0, 0.5]), 0.5)
    e = np.random.default_rng(7).standard_normal(2)
    expected = [min(max(0.6 + 0.5 * e[0], -1), 1), min(max(-2.0 + 0.5 * e[1], -1), 1)]
    assert policy(np.zeros(3), np.random.default_rng(7)) == pytest.approx(expected)
    rng = np.random.default_rng(0)
    drawn = np.mean([policy(np.zeros(3), rng) for _ in range(4_000)], axis=0)
    assert policy.means(np.zeros((1, 3)))[0] == pytest.approx(drawn, abs=0.03)


def episodes_of(count, length, seed):
    rng = np.random.default_rng(seed)
    return [Episode(rng.standard_normal((length + 1, 2)), rng.standard_normal(length)) for _ in range(count)]


def test_advantages_come_from_a_critic_of_other_episodes():
    episodes = episodes_of(5, 6, seed=0)
    found = cross_fitted_advantages(episodes, CRITIC, gamma=0.9, lambda_=0.7, folds=2)
    for i, episode in enumerate(episodes):
        others = [other for j, other in enumerate(episodes) if j % 2 != i % 2]
        value = CRITIC.fit(Context.from_episodes(others, 0.9))
        v = [float(value(x)) for x in episode.observations]
        delta = [episode.rewards[k] + 0.9 * v[k + 1] - v[k] for k in range(6)]
        expected = [sum((0.9 * 0.7) ** (m - k) * delta[m] for m in range(k, 6)) for k in range(6)]
        assert found[i] == pytest.approx(expected, rel=1e-10)
    with pytest.raises(ValueError, match="at least one for each of 6 folds, got 5"):
        cross_fitted_advantages(episodes, CRITIC, gamma=0.9, lambda_=0.7, folds=6)
    with pytest.raises(ValueError, match="folds must be"):
        cross_fitted_advantages(episodes, CRITIC, gamma=0.9, lambda_=0.7, folds=1)


def test_advantages_without_a_critic():
    episodes = episodes_of(3, 4, seed=1)
    returns = [[sum(0.5 ** (m - k) * e.rewards[m] for m in range(k, 4)) for k in range(4)] for e in episodes]
    means = [sum(of_episode[k] for of_episode in returns) / 3 for k in range(4)]
    for found, of_episode in zip(return_advantages(episodes, 0.5), returns, strict=True):
        assert found == pytest.approx([g - m for g, m in zip(of_episode, means, strict=True)])
    with pytest.raises(ValueError, match=r"expected one length, got \[4, 7\]"):
        return_advantages([*episodes, *episodes_of(1, 7, seed=2)], 0.5)


def test_scores_by_plain_loops_and_free_of_scale():
    rng = np.random.default_rng(3)
    episodes = episodes_of(4, 5, seed=3)
    tried = [Trial(e, rng.standard_normal((5, 2)), rng.standard_normal((5, 2))) for e in episodes]
    tried = [Trial(t.episode, t.means * [1.0, 0.0], t.deviations) for t in tried]  # the second dimension rests
    advantages = [rng.standard_normal(5) for _ in tried]
    centre = sum(a.sum() for a in advantages) / 20
    sums = []
    for trial, a in zip(tried, advantages, strict=True):
        sums.append(sum((a[k] - centre) * trial.deviations[k, 0] * trial.means[k, 0] for k in range(5)))
    scores = gain_scores(tried, advantages)
    assert scores[0] == pytest.approx(sum(sums) / math.sqrt(sum(u * u for u in sums)))
    assert scores[1] == 0.0
    assert gain_scores(tried, [1000 * a + 3 for a in advantages]) == pytest.approx(scores)
    for scale in (1e-200, 1e200):  # whose squares are not numbers any more
        assert gain_scores(tried, [scale * a for a in advantages]) == pytest.approx(scores)


def test_steps_are_bounded_and_cautious():
    step = gain_step(np.array([-50.0, -2.0, 0.0, 2.0, 50.0]), largest=2.0, caution=2.0)
    assert np.exp(step) == pytest.approx([0.5, 2 ** -(0.5**0.5), 1.0, 2 ** (0.5**0.5), 2.0], rel=1e-3)
    assert np.exp(gain_step(np.array([-0.1, 0.0, 0.1]), largest=3.0, caution=0.0)) == pytest.approx([1 / 3, 1, 3])
    with pytest.raises(ValueError, match="largest must be"):
        gain_step(np.zeros(1), largest=1.0, caution=1.0)
    with pytest.raises(ValueError, match="caution must be"):
        gain_step(np.zeros(1), largest=2.0, caution=-1.0)


def test_a_timid_script_learns_to_go_further():
    """x′ = x + 0.1 a, reward −x²: the script goes home at a tenth of the pace that pays off."""

    def tried(policy, rng, count=24, length=40):
        done = []
        for _ in range(count):
            x, actions = [rng.uniform(-1, 1, 1)], []
            for _ in range(length):
                actions.append(policy(x[-1], rng))
                x.append(x[-1] + 0.1 * actions[-1])
            states = np.stack(x)
            means = policy.means(states[:-1])
            done.append(Trial(Episode(states, -np.square(states[:-1, 0])), means, np.stack(actions) - means))
        return done

    rng = np.random.default_rng(0)
    policy = AmplifiedPolicy(lambda x: -0.3 * x, np.zeros(1), 0.5)
    before = np.mean([t.episode.rewards.mean() for t in tried(policy, rng)])
    for _ in range(4):
        batch = tried(policy, rng)
        advantages = cross_fitted_advantages([t.episode for t in batch], CRITIC, gamma=0.9, lambda_=0.9, folds=2)
        step = gain_step(gain_scores(batch, advantages), largest=2.0, caution=1.0)
        policy = AmplifiedPolicy(policy.scripted, policy.log_gains + step, policy.noise)
    after = np.mean([t.episode.rewards.mean() for t in tried(policy, rng)])
    assert policy.log_gains[0] > math.log(3)
    assert after > 0.6 * before  # both negative


def test_rollouts_are_those_of_the_simulator():
    policy = AmplifiedPolicy(scripted_policy("reach-v3"), np.full(4, 0.3), 0.5)
    done = rollouts("reach-v3", policy, split="test", task_seed=2, seed=5, episodes=2, steps=6)
    env = MetaWorldEnv("reach-v3", observation="full", split="test", task_seed=2)
    core = MetaWorldEnv("reach-v3", observation="core", split="test", task_seed=2)
    for i, (rollout, trial) in enumerate(zip(done, trials(policy, done), strict=True)):
        assert np.array_equal(env.reset(seed=5 if i == 0 else None)[0], rollout.observations[0])
        assert np.array_equal(core.reset(seed=5 if i == 0 else None)[0], trial.episode.observations[0])
        steps = [env.step(action) for action in rollout.actions]
        assert [reward for _, reward, *_ in steps] == rollout.rewards.tolist()
        assert np.array_equal([o[FEATURES] for o, *_ in steps], trial.episode.observations[1:])
        assert rollout.success == any(info["success"] for *_, info in steps)
    assert not np.array_equal(done[0].actions, done[1].actions)


def test_the_study_goes_on_where_it_was(tmp_path, capsys, monkeypatch):
    config = ImproveConfig(**SMALL, out=tmp_path / "out")
    summary = study.run(config)
    rows = (config.out / "rows.csv").read_text()
    assert rows.count("\n") == 7
    printed = capsys.readouterr().out
    for name in ("before", "in-context critic", "returns, no critic", "shuffled advantages"):
        assert name in printed
    assert summary.differences("reach-v3", "critic").shape == (1,)
    assert (config.out / "rewards.png").stat().st_size > 10_000
    figure = rewards_figure(summary)  # of one domain, as narrow as it gets
    figure.canvas.draw()
    (caption,) = figure.texts
    assert caption.get_window_extent().x0 >= 0
    assert caption.get_window_extent().x1 <= figure.bbox.width
    assert json.loads((config.out / "config.json").read_text())["command"][:2] == ["icrl", "improve"]
    monkeypatch.setattr(study, "rows_of", open)  # nothing is computed again
    study.run(config)
    assert (config.out / "rows.csv").read_text() == rows


def test_a_critic_that_diverges_is_named_with_its_cell():
    path = 0.3 * np.sin(1.0 + 0.06 * np.arange(34))[:, None]  # at γ = 0.99 its sweeps have a spectral radius of 1.007
    config = ImproveConfig(**{**SMALL, "depth": 5_000, "gamma": 0.99, "folds": 2})
    advantages = training._ways(config, training.Cell("reach-v3", 1))
    with pytest.raises(ValueError, match="depth: in reach-v3, seed 1, the critic diverges; take fewer layers"):
        advantages["critic"]([Episode(path, np.cos(np.arange(33))) for _ in range(2)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domains": ("reach",)}, "Did you mean 'reach-v3'"),
        ({"domains": ()}, "domains: expected at least one"),
        ({"noise": "0"}, "noise: expected more than 0"),
        ({"noise": "hi"}, "noise must be one of"),
        ({"episodes": 1}, "episodes must be"),
        ({"folds": 1}, "folds must be"),
        ({"steps": 501}, "steps must be"),
        ({"gamma": 1.0}, "gamma must be"),
        ({"gae_lambda": 1.5}, "gae_lambda must be"),
        ({"largest_factor": 1.0}, "largest_factor must be"),
        ({"caution": -1.0}, "caution must be"),
        ({"length_scale": 0.0}, "length_scale must be"),
    ],
)
def test_wrong_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        ImproveConfig(**{**SMALL, **change})


@pytest.mark.parametrize(
    ("run", "error", "message"),
    [
        (lambda: AmplifiedPolicy(np.sin, [0.0], -0.1), ValueError, r"noise must be a finite number in \[0, inf\)"),
        (lambda: AmplifiedPolicy(np.sin, [0.0], math.nan), ValueError, "noise must be a finite number"),
        (lambda: AmplifiedPolicy(np.sin, [math.inf], 0.1), ValueError, "log_gains: expected finite numbers"),
        (lambda: AmplifiedPolicy(np.sin, 0.0, 0.1), ValueError, r"log_gains: expected shape \(k,\)"),
        (lambda: AmplifiedPolicy(np.sin, [0.0], 0.1)(np.zeros(2), np.random.default_rng(0)), ValueError, "scripted: "),
        (lambda: AmplifiedPolicy(np.sin, [0.0], 0.1).means(np.zeros((3, 2))), ValueError, "scripted: "),
        (lambda: mean_clipped(np.array([math.inf]), 0.1), ValueError, "centre: expected finite numbers"),
        (lambda: gain_step([math.nan], largest=2.0, caution=1.0), ValueError, "scores: expected finite numbers"),
        (lambda: gain_scores([], []), ValueError, "trials: expected at least one, got none"),
        (lambda: gain_scores([trial()], []), ValueError, "advantages: expected shapes"),
        (lambda: gain_scores([trial()], [np.zeros(5)]), ValueError, r"advantages: .* got \[\(5,\)\]"),
        (lambda: gain_scores([trial()], [np.full(3, np.nan)]), ValueError, "advantages: expected finite numbers"),
    ],
)
def test_what_cannot_be_improved_with_is_named(run, error, message):
    with pytest.raises(error, match=message):
        run()


def trial():
    return Trial(episodes_of(1, 3, seed=0)[0], np.zeros((3, 2)), np.zeros((3, 2)))


@pytest.mark.parametrize("count", [3, 7, 45])
def test_returns_that_are_all_equal_move_no_gain(count):
    rng = np.random.default_rng(count)
    episodes = [Episode(rng.standard_normal((51, 2)), np.full(50, -0.1), terminated=False) for _ in range(count)]
    trials = [Trial(each, *rng.standard_normal((2, 50, 3))) for each in episodes]
    advantages = return_advantages(episodes, 0.97)
    assert not np.any(advantages)
    for each in (advantages, [np.full(50, 0.1)] * count):
        assert gain_scores(trials, each).tolist() == [0.0, 0.0, 0.0]
