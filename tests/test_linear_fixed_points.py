"""What the sweeps of the linear family converge to, against numpy, and what they have in common."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import AverageRewardTD, KernelTD, LinearTD, ResidualGradient, TDLambda
from icrl_agents.kernels import Linear

DIM, GAMMA = 3, 0.9


def episodes_of(seed, *lengths, terminated=False):
    rng = np.random.default_rng(seed)
    return [Episode(rng.normal(size=(n + 1, DIM)), rng.normal(size=n), terminated) for n in lengths]


def weights(evaluator, episodes):
    return evaluator.fit(Context.from_episodes(episodes, GAMMA))(torch.eye(DIM, dtype=torch.float64)).numpy()


@pytest.mark.parametrize("terminated", [False, True])
@pytest.mark.parametrize("lengths", [(12,), (5, 7, 1, 4)])
def test_td_lambda_zero_is_linear_td_is_kernel_td_with_the_linear_kernel(lengths, terminated):
    context = Context.from_episodes(episodes_of(0, *lengths, terminated=terminated), GAMMA)
    at = torch.as_tensor(np.random.default_rng(1).normal(size=(4, DIM)))
    expected = LinearTD(20).fit(context).by_depth(at)
    assert torch.equal(TDLambda(0.0, 20).fit(context).by_depth(at), expected)
    assert float((KernelTD(Linear(), 20).fit(context).by_depth(at) - expected).abs().max()) <= 1e-10


@pytest.mark.parametrize("terminated", [False, True])
@pytest.mark.parametrize("lengths", [(12,), (5, 7, 1, 4)])
def test_residual_gradient_minimises_the_mean_squared_td_error(lengths, terminated):
    episodes = episodes_of(0, *lengths, terminated=terminated)
    differences = []
    for episode in episodes:
        following = GAMMA * episode.observations[1:]
        following[-1] *= not terminated
        differences.append(episode.observations[:-1] - following)
    best = np.linalg.lstsq(np.concatenate(differences), np.concatenate([e.rewards for e in episodes]), rcond=None)[0]
    np.testing.assert_allclose(weights(ResidualGradient(3000), episodes), best, atol=1e-8)


def test_residual_gradient_never_raises_the_squared_td_error_at_the_auto_step():
    context = Context.from_episodes(episodes_of(1, 5, 7, 1, 4), GAMMA)
    fitted = ResidualGradient(50).fit(context)
    losses = [float(fitted.at_depth(depth).td_errors(context).square().mean()) for depth in range(51)]
    assert all(later < earlier for earlier, later in pairwise(losses))


def test_td_one_is_the_regression_on_the_returns():
    episodes, returns = episodes_of(2, 4, 5, 6, 7, 8, 9, terminated=True), []
    for episode in episodes:
        following, own = 0.0, []
        for reward in reversed(episode.rewards.tolist()):
            following = reward + GAMMA * following
            own.append(following)
        returns += reversed(own)
    states = np.concatenate([e.observations[:-1] for e in episodes])
    best = np.linalg.lstsq(states, np.array(returns), rcond=None)[0]
    np.testing.assert_allclose(weights(TDLambda(1.0, 4000), episodes), best, atol=1e-8)


def test_average_reward_is_that_of_the_stationary_distribution():
    P = np.array([[0.0, 0.5, 0.5], [0.25, 0.25, 0.5], [1.0, 0.0, 0.0]])
    rewards = np.array([1.0, -2.0, 4.0])
    eigenvalues, vectors = np.linalg.eig(P.T)
    stationary = np.real(vectors[:, np.argmin(np.abs(eigenvalues - 1))])
    stationary /= stationary.sum()
    counts = np.rint(15 * stationary[:, None] * P).astype(int)
    np.testing.assert_allclose(counts, 15 * stationary[:, None] * P, atol=1e-12)

    # Each transition s → s′ as often as in the long run.
    now, then = (np.repeat(index, counts.ravel()) for index in np.divmod(np.arange(9), 3))
    eye = np.eye(3)
    fitted = AverageRewardTD(400).fit(Context(eye[now], rewards[now], np.full(15, 0.5), eye[then]))
    average = float(stationary @ rewards)
    assert float(fitted.average_rewards[-1]) == pytest.approx(average, abs=1e-10)
    differential = np.linalg.lstsq(np.eye(3) - P, rewards - average, rcond=None)[0]
    found = fitted(torch.as_tensor(eye)).numpy()
    np.testing.assert_allclose(found - found[0], differential - differential[0], atol=1e-9)


@pytest.mark.parametrize("evaluator", [LinearTD, ResidualGradient, partial(TDLambda, 0.5)])
def test_a_preconditioner_is_kept_as_it_was_unless_it_takes_a_gradient(evaluator):
    episodes = episodes_of(0, 5, 7)
    C = np.diag([1.0, 2.0, 0.5])
    kept = evaluator(5, 0.1, preconditioner=C)
    expected = weights(kept, episodes)
    C *= 2.0
    np.testing.assert_array_equal(weights(kept, episodes), expected)
    learned = torch.tensor(C / 2.0, requires_grad=True)
    trained = evaluator(5, 0.1, preconditioner=learned)
    with torch.no_grad():
        learned *= 2.0
    followed = trained.fit(Context.from_episodes(episodes, GAMMA))(torch.eye(DIM).double())
    assert abs(followed.detach().numpy() - expected).max() > 1e-3
