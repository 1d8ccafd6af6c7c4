"""What the layers converge to as depth grows: closed forms, in NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import torch

from icrl_agents import constructions, kernels
from icrl_agents.collection import collect_episodes
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.evaluators import LSTD, KernelLSTD
from icrl_agents.studies.verify import plain
from icrl_agents.studies.verify.config import VerifyConfig
from icrl_agents.studies.verify.constructions import LINEAR, SOFTMAX
from icrl_agents.studies.verify.plain import Transitions
from icrl_agents.studies.verify.rows import EXACT, Row, largest
from icrl_agents.studies.verify.samples import GAMMA, largest_error

SCORES = (
    kernels.Exponential(0.25),
    kernels.Exponential(0.1),
    kernels.RBF(0.4),
    kernels.Laplace(0.4),
    kernels.Identity(),
)
SWEEPS = 600
LINEAR_SWEEPS = 3_000


def check_fixed_points(config: VerifyConfig) -> Iterator[Row]:
    """Yields a row per limit."""
    yield from _tabular(config)
    yield from _linear(config)


def _tabular(config: VerifyConfig) -> Iterator[Row]:
    deep, closed = [], []
    states, seeds = np.eye(5), range(config.first_seed, config.first_seed + 4)
    once = [Episode(states[[s, s]], np.zeros(1)) for s in range(5)]  # so that every state was left
    for seed in seeds:
        env = gym.make("icrl/BoyanChain-v0", num_states=5, task_seed=seed)
        episodes = [*collect_episodes(env, num_steps=300, seed=seed), *once]
        context = Context.from_episodes(episodes, GAMMA).to(config.device)
        expected = plain.certainty_equivalent(Transitions.of(episodes, GAMMA), states)
        for kernel in SCORES:
            deep.append(largest_error(constructions.weighted_softmax_td(kernel, SWEEPS).fit(context)(states), expected))
            closed.append(largest_error(KernelLSTD(kernel, normalise=True).fit(context)(states), expected))
        closed.append(largest_error(LSTD().fit(context)(states), expected))
    on = f"one-hot features, {len(SCORES)} scores, {len(seeds)} chains"
    claim = "limit of the softmax transformer = tabular LSTD, at any scale of the score"
    yield Row(claim=claim, source=SOFTMAX, on=f"{on}, L = {SWEEPS}", measured=largest(deep), at_most=EXACT)
    claim = "LSTD, kernel LSTD = certainty-equivalent value"
    yield Row(claim=claim, source="", on=on, measured=largest(closed), at_most=EXACT)


def _linear(config: VerifyConfig) -> Iterator[Row]:
    rng = np.random.default_rng(config.first_seed)
    episodes = [Episode(rng.normal(size=(n + 1, 3)), rng.normal(size=n), terminated=True) for n in (20, 25, 15)]
    context = Context.from_episodes(episodes, GAMMA).to(config.device)
    t = Transitions.of(episodes, GAMMA)
    differences = t.x - t.discounts[:, None] * t.x_next
    limits = {
        "TD(0): Σ x (x − γx′)ᵀ w = Σ x R": (
            constructions.linear_td(3, LINEAR_SWEEPS),
            np.linalg.solve(t.x.T @ differences, t.x.T @ t.rewards),
        ),
        "TD(1): regression on the returns": (
            constructions.td_lambda(3, LINEAR_SWEEPS, 1.0),
            np.linalg.lstsq(t.x, _returns(episodes), rcond=None)[0],
        ),
        "residual gradient: least mean squared TD error": (
            constructions.residual_gradient(3, LINEAR_SWEEPS),
            np.linalg.lstsq(differences, t.rewards, rcond=None)[0],
        ),
    }
    on = f"{len(t.x)} transitions, d = 3, L = {LINEAR_SWEEPS:,}"
    for claim, (transformer, expected) in limits.items():
        error = largest_error(transformer.fit(context)(torch.eye(3, dtype=torch.float64)), expected)
        yield Row(claim=f"limit of {claim}", source=LINEAR, on=on, measured=error, at_most=EXACT)
    yield _average_reward(config)


def _returns(episodes: list[Episode]) -> np.ndarray:
    powers = [GAMMA ** np.arange(len(e)) for e in episodes]
    return np.concatenate(
        [[p[: len(e) - k] @ e.rewards[k:] for k in range(len(e))] for e, p in zip(episodes, powers, strict=True)]
    )


def _average_reward(config: VerifyConfig) -> Row:
    """On a context that holds each transition as often as the long run does: P has entries of 1/4, μ of 1/15."""
    P = np.array([[0.0, 0.5, 0.5], [0.25, 0.25, 0.5], [1.0, 0.0, 0.0]])
    rewards, mu = np.array([1.0, -2.0, 4.0]), np.array([6.0, 4.0, 5.0]) / 15
    now, then = np.divmod(np.repeat(np.arange(9), np.rint(60 * mu[:, None] * P).astype(int).ravel()), 3)
    context = Context(np.eye(3)[now], rewards[now], np.full(60, 0.5), np.eye(3)[then]).to(config.device)
    fitted = constructions.average_reward_td(3, LINEAR_SWEEPS // 3).fit(context)
    values = fitted(np.eye(3)).cpu().numpy()
    differential = np.linalg.lstsq(np.eye(3) - P, rewards - mu @ rewards, rcond=None)[0]
    average = 0.0 if fitted.average_rewards is None else float(fitted.average_rewards[-1])
    errors = largest_error(values - values[0], differential - differential[0]), abs(average - float(mu @ rewards))
    claim = "limit of average-reward TD: μᵀr and the differential value"
    return Row(claim=claim, source=LINEAR, on="3 states, 60 transitions", measured=largest(errors), at_most=EXACT)
