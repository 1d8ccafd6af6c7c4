"""Improvement of a scripted policy with noise: advantages in, gains out, nothing trained.

The noise that a policy explores with is an experiment: where actions that went further than their mean turned out
well, the script should ask for more. Advantages say what turned out well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from icrl_agents.arrays import check_list, finite, reals
from icrl_agents.context import Context
from icrl_agents.control.advantages import generalised_advantages
from icrl_agents.control.critic import check_evaluator
from icrl_agents.episode import Episode
from icrl_agents.value_function import Evaluator, check_discounted
from icrl_envs import arguments

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AmplifiedPolicy:
    """A scripted policy with gains and noise: a = clip(g ⊙ π(x) + σ ε, −1, 1) with ε ~ N(0, I).

    Seen as a residual policy, it adds (g − 1) ⊙ π(x) to the script. It is a policy for ``collect`` and
    ``FixedPolicy`` as it is.

    Args:
        scripted: π, from an observation to an action ``(k,)``, not clipped.
        log_gains: log g, ``(k,)``; zeros leave the script as it is.
        noise: σ ≥ 0, in units of the action.

    Raises:
        TypeError: If ``log_gains`` or ``noise`` are no real numbers.
        ValueError: If they are not finite, of another shape or negative; on a call, if an action has another shape
            or is not finite.
    """

    scripted: Callable[[Array], NDArray[np.floating]]
    log_gains: Array
    noise: float

    def __post_init__(self) -> None:
        """Checks the numbers."""
        gains = reals("log_gains", self.log_gains)
        finite("log_gains", gains)
        if gains.ndim != 1:
            raise ValueError(f"log_gains: expected shape (k,), got {tuple(gains.shape)}.")
        object.__setattr__(self, "log_gains", gains.numpy(force=True))
        object.__setattr__(self, "noise", arguments.real("noise", self.noise, 0.0))

    def means(self, observations: Array) -> Array:
        """E[a | x] of observations ``(m, d)``, ``(m, k)``."""
        return mean_clipped(np.stack([self._centre(observation) for observation in observations]), self.noise)

    def _centre(self, observation: Array) -> Array:
        own = np.array(observation)  # which a script may write into
        arguments.unmasked("scripted: actions", action := self.scripted(own))
        action = np.asarray(action, dtype=np.float64)
        if action.shape != self.log_gains.shape:
            raise ValueError(f"scripted: expected actions of shape {self.log_gains.shape}, got {action.shape}.")
        centre = np.exp(self.log_gains) * action
        if not np.isfinite(centre).all():
            raise ValueError(
                f"scripted: expected actions that are finite, times gains too, got {action} at {observation}."
            )
        return centre

    def __call__(self, observation: Array, rng: np.random.Generator) -> Array:
        """An action ``(k,)``."""
        centre = self._centre(observation)
        return np.clip(centre + self.noise * rng.standard_normal(len(self.log_gains)), -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Trial:
    """One episode, and what a policy did in it; of arrays it has copies.

    Args:
        episode: The states, as the critic sees them, and the rewards; T transitions.
        means: m_k = E[a | x_k], ``(T, k)``.
        deviations: a_k − m_k of the actions that were taken, ``(T, k)``.
    """

    episode: Episode
    means: Array
    deviations: Array

    def __post_init__(self) -> None:
        """Copies the arrays; TypeError of masked ones."""
        for name in ("means", "deviations"):
            arguments.unmasked(name, getattr(self, name))
            object.__setattr__(self, name, np.array(getattr(self, name)))


def mean_clipped(centre: Array, scale: float) -> Array:
    """E[clip(c + σ ε, −1, 1)] for ε ~ N(0, 1), of each entry; the clipped centre where σ = 0.

    With l = (−1 − c)/σ and u = (1 − c)/σ it is c (Φ(u) − Φ(l)) − σ (φ(u) − φ(l)) + 1 − Φ(u) − Φ(l).

    Args:
        centre: c, any shape.
        scale: σ ≥ 0. Rounding leaves an error of about 1e-16 · max(|c|, σ).

    Raises:
        TypeError: If one is no real number.
        ValueError: If c is not finite, or σ out of range.
    """
    c = reals("centre", centre)
    finite("centre", c)
    if arguments.real("scale", scale, 0.0) == 0.0:
        return c.clamp(-1.0, 1.0).numpy(force=True)
    low, high = ((bound - c) / scale for bound in (-1.0, 1.0))
    below, inside = torch.special.ndtr(low), torch.special.ndtr(high) - torch.special.ndtr(low)
    above = torch.special.ndtr(-high)
    density = (torch.exp(-high.square() / 2) - torch.exp(-low.square() / 2)) / math.sqrt(2 * math.pi)
    return (c * inside + (above - below - scale * density)).numpy(force=True)


def cross_fitted_advantages(
    episodes: Sequence[Episode], evaluator: Evaluator, *, gamma: float, lambda_: float, folds: int, device: str = "cpu"
) -> list[Array]:
    """Generalised advantages of each episode, ``(T,)``, by a critic whose context has other episodes.

    A kernel critic interpolates the returns of its own context, noise included, and so would find no advantage
    there. Episode i is of fold i mod F; the critic of fold f is fitted on fold f + 1 mod F. An episode that is given
    several times, as in a bootstrap, counts once there. Others that are equal to it are others: a baseline that left
    them out would depend on the return that it is taken from.

    Args:
        episodes: At least F different ones.
        evaluator: The critic, fitted once for each fold.
        gamma: Discount γ in [0, 1].
        lambda_: λ in [0, 1]; see ``generalised_advantages``.
        folds: F ≥ 2.
        device: Torch device of the critic: cpu, cuda, cuda:1, …

    Raises:
        TypeError: If the evaluator is none.
        ValueError: If an argument is out of range, or the evaluator's values are differential.
    """
    check_evaluator(evaluator)
    folds = arguments.integer("folds", folds, 2)
    episodes = list(episodes)
    numbers = {each: i for i, each in enumerate(dict.fromkeys(episodes))}  # episodes are compared by identity
    if len(numbers) < folds:
        raise ValueError(f"episodes: expected at least one for each of {folds} folds, got {len(numbers)}.")
    fold_of = [numbers[episode] % folds for episode in episodes]

    def context(chosen: Sequence[Episode]) -> Context:
        return Context.from_episodes(chosen, gamma).to(device)

    found: dict[int, Array] = {}
    for f in range(folds):
        others = [episode for episode, of in zip(episodes, fold_of, strict=True) if of == (f + 1) % folds]
        values = evaluator.fit(context(others))  # asked before the next fit, as it may keep it
        check_discounted("evaluator", values)
        for i in (i for i, of in enumerate(fold_of) if of == f):
            own = context([episodes[i]])
            found[i] = generalised_advantages(own, values(own.points), lambda_).numpy(force=True)
    return [found[i] for i in range(len(episodes))]


def return_advantages(episodes: Sequence[Episode], gamma: float) -> list[Array]:
    """What there is without a critic: returns, minus the mean return of all episodes at the same step, ``(T,)``.

    Args:
        episodes: All of one length T.
        gamma: Discount γ in [0, 1].

    Raises:
        ValueError: If the lengths differ, or sums or differences of returns overflow.
    """
    if len({len(episode) for episode in episodes}) != 1:
        raise ValueError(f"episodes: expected one length, got {sorted({len(episode) for episode in episodes})}.")
    returns = np.stack([Context.from_episodes([episode], gamma).returns()[0].numpy() for episode in episodes])
    with np.errstate(over="ignore", invalid="ignore"):
        returns = returns - returns[0]  # of equal ones the mean of these is exact
        advantages = returns - returns.mean(0)
    finite("episodes", torch.from_numpy(advantages), " as returns, less their mean")
    return list(advantages)


def gain_scores(trials: Sequence[Trial], advantages: Sequence[Array]) -> Array:
    """How surely larger gains are better, ``(k,)``: t_j = Σ_e u_ej / √(Σ_e u_ej²), u_ej = Σ_k A_k (a_kj − m_kj) m_kj.

    A_k is Â_k less the mean of Â over all transitions of all trials, a baseline. Σ_e u_ej is the policy gradient
    (arXiv 1506.02438, policy gradients with advantage estimates) along the script's own direction m, up to a
    positive factor. It uses the actions that were taken: where the script asks for more than the clip lets through,
    noise does nothing, the deviation is 0, and nothing is learned from chance. The square root estimates the
    standard error, episode e by episode e, since transitions of one episode share their chances; so t is free of
    the rewards' scale. Where m or the deviations are all 0, t = 0.

    Args:
        trials: Of one policy.
        advantages: Â of each trial's transitions, ``(T,)``.

    Raises:
        ValueError: If there are none, not one advantage for each transition of each trial, or means and deviations of
            different shapes, or if sums are not finite; TypeError if ``trials`` is no list of them.
    """
    check_list("trials", trials, Trial)
    lengths = [np.shape(trial.means)[:1] for trial in trials]
    if [np.shape(a) for a in advantages] != lengths:
        raise ValueError(
            f"advantages: expected shapes {lengths}, one for each transition, got {[np.shape(a) for a in advantages]}."
        )
    for trial in trials:
        if np.ndim(trial.means) != 2 or np.shape(trial.deviations) != np.shape(trial.means):
            raise ValueError(
                "trials: expected means and deviations of one shape, (T, k), got "
                f"{np.shape(trial.means)} and {np.shape(trial.deviations)}."
            )
    first = np.concatenate(list(advantages))[:1]  # of equal ones the mean of their differences is exact
    centre = (np.concatenate(list(advantages)) - first).mean()
    sums = np.stack([(a - first - centre) @ (t.deviations * t.means) for t, a in zip(trials, advantages, strict=True)])
    if not np.isfinite(sums).all():
        raise ValueError("advantages: expected finite numbers, got NaN, inf or some whose sums overflow.")
    sums = np.ldexp(sums, -np.frexp(np.abs(sums).max(0))[1])  # by powers of two, so that squares stay in range
    spread = np.sqrt(np.square(sums).sum(0))
    return sums.sum(0) / np.where(spread > 0, spread, 1.0)


def gain_step(scores: Array, *, largest: float, caution: float) -> Array:
    """The change of log g, ``(k,)``: log(f) · t / √(t² + c²), bounded and the smaller, the less sure.

    Args:
        scores: t, ``(k,)``.
        largest: f > 1, a bound of the factor by which a gain changes.
        caution: c ≥ 0, the t at which a step is 71 % of the largest; at 0 only the sign counts.

    Raises:
        TypeError: If an argument is no real number.
        ValueError: If a number is out of range, or a score is not finite.
    """
    checked = reals("scores", scores)
    finite("scores", checked)
    scores = checked.numpy()
    largest = arguments.real("largest", largest, 1.0, low_open=True)
    scale = np.hypot(scores, arguments.real("caution", caution, 0.0))
    return math.log(largest) * scores / np.where(scale > 0, scale, 1.0)
