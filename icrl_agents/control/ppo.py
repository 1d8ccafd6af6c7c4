"""Proximal policy optimisation whose critic is any evaluator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from icrl_agents.collection.copies import copies_of
from icrl_agents.collection.seeds import held_streams, warn_of_unseeded_draws
from icrl_agents.control.actor import Actor
from icrl_agents.control.collector import Batch, Collector, EpisodeEnd
from icrl_agents.control.critic import Critic
from icrl_agents.control.features import Features
from icrl_agents.control.telling import tell
from icrl_agents.divergence import DivergenceError
from icrl_agents.global_streams import IN_CRITIC, global_streams, warn_of_global_draws
from icrl_agents.machine import one_thread
from icrl_agents.magnitudes import near_power_of_two
from icrl_agents.settings import as_python
from icrl_agents.value_function import Evaluator
from icrl_envs import arguments
from icrl_envs.trained import normalises
from icrl_envs.wrapped import wrappers_of

LARGEST_SETTING = 1e30
"""Of the settings that scale numbers of the actor, which are float32."""
SMALL = 1e-3
"""Advantages that are all below this one are scaled up, since 1e-8 is added to their standard deviation."""


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """Settings of ``ppo``.

    Args:
        rollout_steps: Steps of each copy between updates, ≥ 2.
        gamma: Discount γ in [0, 1).
        gae_lambda: λ in [0, 1] of the advantages.
        window: Number of rollouts that the critic's context holds, ≥ 1.
        learning_rate: Of Adam, in (0, 1e30].
        epochs: Passes over each rollout, ≥ 1.
        batch_size: Transitions in a step of the actor, ≥ 2. A last one of each pass that is alone is left out, since
            one advantage has no standard deviation.
        clip: Largest change of a probability ratio that is rewarded, in (0, 1e30].
        entropy: Weight of the entropy, in [0, 1e30].
        max_gradient: Largest norm of the gradient, in (0, 1e30].
        hidden: Widths of the actor's hidden layers.
        device: Torch device of the critic: cpu, cuda, cuda:1, … The small actor stays on the processor.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.
    """

    rollout_steps: int = 256
    gamma: float = 0.99
    gae_lambda: float = 0.95
    window: int = 1
    learning_rate: float = 3e-4
    epochs: int = 10
    batch_size: int = 64
    clip: float = 0.2
    entropy: float = 0.0
    max_gradient: float = 0.5
    hidden: tuple[int, ...] = (64, 64)
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Checks the arguments."""
        as_python(self)
        for name, minimum in (("rollout_steps", 2), ("window", 1), ("epochs", 1), ("batch_size", 2)):
            arguments.integer(name, getattr(self, name), minimum)
        for name in ("learning_rate", "clip", "max_gradient"):
            arguments.real(name, getattr(self, name), 0.0, LARGEST_SETTING, low_open=True)
        arguments.real("entropy", self.entropy, 0.0, LARGEST_SETTING)
        arguments.real("gae_lambda", self.gae_lambda, 0.0, 1.0)
        arguments.discount(self.gamma)
        if not isinstance(self.hidden, (tuple, list)):
            raise TypeError(f"hidden must be a tuple of integers ≥ 1, such as (64, 64); got {self.hidden!r}.")
        for width in self.hidden:
            arguments.integer("hidden", width, 1)


@dataclass(frozen=True, eq=False)
class PPOResult:
    """What ``ppo`` returns.

    Args:
        actor: The trained policy.
        critic: The critic, as fitted on the last rollouts.
        episodes: Every finished episode, in order.
    """

    actor: Actor
    critic: Critic
    episodes: list[EpisodeEnd]


@torch.inference_mode(False)
@torch.enable_grad()
def ppo(
    env: Any,  # noqa: ANN401 - checked by copies_of
    evaluator: Evaluator,
    *,
    total_steps: int,
    seed: int,
    config: PPOConfig | None = None,
    features: Features | None = None,
    on_update: Callable[[int, Actor], None] | None = None,
) -> PPOResult:
    """Trains an actor by PPO (arXiv 1707.06347, clipped surrogate) with an in-context critic.

    After every rollout the evaluator is fitted on its transitions, and the actor maximises
    Σ_k min(ρ_k A_k, clip(ρ_k, 1 − ε, 1 + ε) A_k) with ρ_k = π(a_k | x_k) / π_old(a_k | x_k) and the generalised
    advantages A_k, standardised in each batch. There is no value network. It runs on one thread.

    Args:
        env: A single or a vector environment, in any autoreset mode; in SAME_STEP its copies return new arrays at each
            step, as for ``collect``.
        evaluator: Anything with ``fit(context)``.
        total_steps: Steps of the environment, over all copies; the last rollout is finished.
        seed: Of the environment, the actor's first weights, its actions and the batches.
        config: Settings; by default ``PPOConfig()``.
        features: From standardised states to the critic's features; see ``Critic``.
        on_update: Called with the steps so far and the actor before the first update and after each. It leaves ``env``
            alone, whose episode is running: evaluate the actor in another environment.

    Raises:
        TypeError: If ``env`` is no environment, the evaluator has no ``fit``, a space is not supported, or another
            argument has the wrong type.
        ValueError: If a number is out of range, an observation or reward is not finite, the device is not there, or
            ``on_update`` has moved ``env``.
        DivergenceError: If the evaluator diverges, or the actor does, at too large a ``learning_rate``.
    """
    config = _checked(config, on_update)
    seed = arguments.integer("seed", seed, 0, 2**63 - 1)
    total_steps = arguments.integer("total_steps", total_steps, 1)
    copies = copies_of(env)
    generator = torch.Generator().manual_seed(seed)
    with one_thread():  # first weights, too: several round otherwise
        actor = Actor(copies.observation_space, copies.action_space, config.hidden, generator)
    actor.normalised, actor.wrappers = normalises(env), wrappers_of(env)
    optimiser = torch.optim.Adam(actor.parameters(), lr=config.learning_rate, eps=1e-5)
    critic = Critic(
        evaluator, gae_lambda=config.gae_lambda, window=config.window, features=features, device=config.device
    )
    held, streams = held_streams(env), global_streams()
    collector = Collector(copies, seed)  # resets them
    warn_of_global_draws(streams, seed, stacklevel=2)
    with one_thread():
        while collector.steps < total_steps:
            if on_update is not None:
                tell(on_update, collector.steps, actor, env)
            streams = global_streams()
            batch = collector.collect(actor, config.rollout_steps, config.gamma, generator)
            warn_of_global_draws(streams, seed, stacklevel=2)
            warn_of_unseeded_draws(env, held, seed, stacklevel=2)
            streams = global_streams()
            advantages = critic.assess(batch.context).advantages
            warn_of_global_draws(streams, seed, stacklevel=2, where=IN_CRITIC)
            _improve(actor, optimiser, batch, advantages, config, generator)
    if on_update is not None:
        on_update(collector.steps, actor)
    return PPOResult(actor, critic, collector.episodes)


def _checked(config: PPOConfig | None, on_update: object) -> PPOConfig:
    if not isinstance(config, PPOConfig | None):
        raise TypeError(f"config must be a PPOConfig, such as PPOConfig(gamma=0.9), or None; got {config!r}.")
    if on_update is not None and not callable(on_update):
        raise TypeError(f"on_update must be a callable (steps, actor) -> None, or None; got {on_update!r}.")
    return PPOConfig() if config is None else config


def _improve(
    actor: Actor,
    optimiser: torch.optim.Optimizer,
    batch: Batch,
    advantages: Tensor,
    config: PPOConfig,
    generator: torch.Generator,
) -> None:
    """Takes ``epochs`` passes over the batch, in a new order each; raises DivergenceError if the actor diverges."""
    largest = advantages.abs().max()
    if 0 < float(largest) < SMALL:
        advantages = advantages / near_power_of_two(largest)
    for _ in range(config.epochs):
        for chosen in torch.randperm(len(advantages), generator=generator, device="cpu").split(config.batch_size):
            if len(chosen) < 2:
                continue
            policy = actor(batch.context.states[chosen])
            ratio = torch.exp(policy.log_prob(batch.actions[chosen]) - batch.log_probs[chosen])
            A = advantages[chosen].float()
            A = (A - A.mean()) / (A.std() + 1e-8)
            surrogate = torch.minimum(ratio * A, ratio.clamp(1.0 - config.clip, 1.0 + config.clip) * A)
            loss = -surrogate.mean() - config.entropy * policy.entropy().mean()
            _check_finite(loss, config)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(actor.parameters(), config.max_gradient)
            optimiser.step()
    with torch.no_grad():
        _check_finite(actor(batch.context.states).log_prob(batch.actions), config)  # NaN or inf of any weight in use
    _check_finite(torch.nn.utils.parameters_to_vector(actor.parameters()), config)


def _check_finite(numbers: Tensor, config: PPOConfig) -> None:
    """Raises DivergenceError if the actor's loss, probabilities or weights are no numbers any more."""
    if not bool(torch.isfinite(numbers).all()):
        raise DivergenceError(
            f"the actor's loss or weights are not finite: learning_rate {config.learning_rate:g} is too large for it; "
            f"take a smaller one, such as {config.learning_rate / 10:g}, or rewards of a smaller scale."
        )
