"""Advantages by critics of other episodes, which episodes are others, and what scores take of them."""

import numpy as np
import pytest

from icrl_agents import Episode
from icrl_agents.control.improvement import AmplifiedPolicy, Trial, cross_fitted_advantages, gain_scores
from icrl_agents.evaluators import WeightedSoftmaxTD
from icrl_agents.kernels import Laplace

CRITIC = WeightedSoftmaxTD(Laplace(0.3), num_sweeps=20)


def test_an_episode_that_is_given_twice_is_no_other_episode():
    rng = np.random.default_rng(0)
    once = [Episode(rng.standard_normal((7, 2)), rng.standard_normal(6)) for _ in range(4)]
    settings = {"gamma": 0.9, "lambda_": 0.7, "folds": 2}
    twice = cross_fitted_advantages([e for e in once for _ in range(2)], CRITIC, **settings)
    assert np.concatenate(twice[::2]) == pytest.approx(np.concatenate(twice[1::2]))
    assert np.concatenate(twice[::2]) == pytest.approx(
        np.concatenate(cross_fitted_advantages(once, CRITIC, **settings))
    )
    with pytest.raises(ValueError, match="at least one for each of 2 folds, got 1"):
        cross_fitted_advantages(once[:1] * 5, CRITIC, **settings)


def test_episodes_that_came_out_equal_by_chance_are_others():
    rng = np.random.default_rng(0)
    tosses = [Episode(np.zeros((2, 1)), np.array([float(rng.random() < 0.9)]), True) for _ in range(200)]
    found = np.concatenate(cross_fitted_advantages(tosses, CRITIC, gamma=0.9, lambda_=0.7, folds=2))
    assert abs(found.mean()) < 0.05  # 0.8 where the equal ones are left out: each baseline is the other outcome


def test_episodes_may_come_one_by_one():
    rng = np.random.default_rng(0)
    episodes = [Episode(rng.standard_normal((7, 2)), rng.standard_normal(6)) for _ in range(4)]
    settings = {"gamma": 0.9, "lambda_": 0.7, "folds": 2}
    listed = cross_fitted_advantages(episodes, CRITIC, **settings)
    found = cross_fitted_advantages((each for each in episodes), CRITIC, **settings)  # type: ignore[arg-type]
    assert np.array_equal(found, listed)


@pytest.mark.parametrize("shape", [(6,), (6, 2), (1, 1)])
def test_deviations_of_another_shape_than_the_means_are_refused(shape):
    trial = Trial(Episode(np.zeros((7, 2)), np.zeros(6)), np.zeros((6, 1)), np.zeros(shape))
    with pytest.raises(ValueError, match=r"trials: expected means and deviations of one shape, \(T, k\), got \(6, 1\)"):
        gain_scores([trial], [np.arange(6.0)])


def test_a_trial_has_copies_of_arrays_that_are_filled_again():
    means, trials = np.zeros((6, 1)), []
    for i in range(3):
        means[:] = i
        trials.append(Trial(Episode(np.zeros((7, 2)), np.zeros(6)), means, means))
    assert [float(trial.means[0, 0]) for trial in trials] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("action", [[np.nan, 0.0], [0.0, np.inf]])
def test_a_script_that_gives_no_finite_action_is_named(action):
    policy = AmplifiedPolicy(lambda x: np.array(action), np.zeros(2), 0.5)
    with pytest.raises(
        ValueError, match=r"scripted: expected actions that are finite, times gains too, got .* at \[0\. 0\.\]"
    ):
        policy(np.zeros(2), np.random.default_rng(0))
    with pytest.raises(ValueError, match="scripted: expected actions that are finite"):
        policy.means(np.zeros((1, 2)))
