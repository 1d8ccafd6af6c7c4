"""Single and vector environments run under a policy."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from icrl_agents.collection.copies import OneCopy, VectorCopies, copies_of
from icrl_agents.collection.recorder import Recorder, flattening, rows_of
from icrl_agents.collection.scales import scales_of, warn_of_more_seen, warn_of_running_scales, warn_of_several_scales
from icrl_agents.collection.seeds import held_streams, warn_of_equal_workers, warn_of_unseeded_draws
from icrl_agents.collection.tasks import are_different_tasks
from icrl_agents.context import Context
from icrl_agents.episode import Episode
from icrl_agents.global_streams import global_streams, warn_of_global_draws
from icrl_envs import arguments
from icrl_envs.fixed_policy import ActionFunction, action_function, fitting_action
from icrl_envs.random_streams import policy_stream

AnyEnv = gym.Env[Any, Any] | VectorEnv[Any, Any, Any]


def collect(
    env: AnyEnv,
    *,
    gamma: float,
    seed: int | None,
    num_steps: int | None = None,
    num_episodes: int | None = None,
    policy: Any = None,  # noqa: ANN401 (see collect_episodes)
    max_episode_steps: int | None = None,
    stack: bool | None = None,
) -> Context:
    """Runs ``env`` under ``policy`` and returns the transitions as a context.

    The context is float64 whatever the observations are, since rewards and discounts are; ``.to(dtype=...)``
    narrows it. A context describes one process: the copies of a native vector environment of ``icrl_envs`` are
    different tasks, and so become a batch with one context each.

    Args:
        env: A single or a vector environment.
        gamma: Discount γ in [0, 1] of every transition that does not terminate, whatever an environment was made with:
            exact values by ``env.unwrapped.process.values()`` are those of its own γ.
        seed: As of ``collect_episodes``.
        num_steps: As of ``collect_episodes``.
        num_episodes: As of ``collect_episodes``.
        policy: As of ``collect_episodes``.
        max_episode_steps: As of ``collect_episodes``.
        stack: False for one context of all transitions, ``(n, d)``, copy after copy; True for a batch with one
            context per copy, ``(N, n, d)``, padded where the copies have different lengths. Default: True where the
            copies are known to be different tasks: those of ``icrl_envs``'s vector environments, and of a
            ``SyncVectorEnv`` or ``AsyncVectorEnv`` of its environments whose tasks or processes are not equal; of a
            class without an equality, those with other seeds of tasks, or other numbers or strings in them. Wrappers
            and policies are not compared, nor other environments.

    Raises:
        TypeError: As ``collect_episodes``.
        ValueError: As ``collect_episodes``; or if an observation or reward is not finite, naming the episode and
            the step; or if ``stack`` leaves a copy without an episode.

    Example:
        >>> env = gym.make("CartPole-v1")
        >>> collect(env, num_steps=50, gamma=0.99, seed=0)
        Context(shape=(50, 4), dtype=torch.float64, device='cpu')
    """
    gamma = arguments.real("gamma", gamma, 0.0, 1.0)
    copies = copies_of(env)
    stack = are_different_tasks(env) if stack is None else arguments.flag("stack", stack)
    if stack and num_episodes is not None and arguments.integer("num_episodes", num_episodes, 1) < copies.num_envs:
        raise ValueError(
            f"num_episodes: expected one or more for each of {copies.num_envs} copies to stack, got {num_episodes}."
        )
    scales = scales_of(env)
    by_copy = _run(copies, num_steps, num_episodes, seed, policy, max_episode_steps)
    if stack:
        return Context.stack([_context_of_copy(i, episodes, gamma) for i, episodes in enumerate(by_copy)])
    warn_of_several_scales(env, scales, stacklevel=2)
    return Context.from_episodes([episode for episodes in by_copy for episode in episodes], gamma)


def collect_episodes(
    env: AnyEnv,
    *,
    seed: int | None,
    num_steps: int | None = None,
    num_episodes: int | None = None,
    policy: Any = None,  # noqa: ANN401 (see Args)
    max_episode_steps: int | None = None,
    keep_actions: bool = False,
) -> list[Episode]:
    """Runs ``env`` under ``policy`` and returns what it did as episodes, copy after copy.

    The environment is reset once with ``seed`` at the start. Copy i of a vector environment gives the same
    transitions in each autoreset mode, and those of a single environment with ``seed + i`` where it seeds its
    copies so, rounded to the types of the space as Gymnasium's batches are. Observations are flattened to ``(d,)``,
    discrete ones one-hot: float32 where all of it is, otherwise float64. In autoreset mode SAME_STEP a copy must
    return a new array at each step, since Gymnasium hands on the final one after the reset without a copy of it.

    Args:
        env: A single or a vector environment.
        seed: Of the environment and, as an independent stream, of the policy: an integer ≥ 0, or None for fresh
            entropy, whatever they were seeded with before. No global generator is touched. Since copy i of N has
            ``seed + i``, seeds of independent data are N or more apart: of 0 and 1, all rows but those of one copy each
            are the same.
        num_steps: Number of transitions of each copy. The last episode is cut there, as truncated.
        num_episodes: Number of episodes in total, of which each copy runs a fixed share, so that short ones are not
            preferred. Exactly one of ``num_steps`` and ``num_episodes`` is given.
        policy: None for random actions; a callable ``(observation, rng) -> action``, asked for each copy; a
            Stable-Baselines3 model, asked for all copies at once by ``predict(..., deterministic=True)``, so that its
            actions are those for a single one up to rounding; or a scripted policy with ``get_action(observation)``.
            Actions for a box are clipped to its bounds. One that was trained for another environment is refused, as by
            ``FixedPolicy``.
        max_episode_steps: Length T ≥ 1 at which an episode is cut, as truncated, and the next one begins; for single
            environments and vector environments that do not reset themselves.
        keep_actions: Whether the episodes keep their actions, flattened as observations are.

    Raises:
        TypeError: If ``env`` or ``policy`` is of no such kind, the observations or the kept actions cannot be
            flattened, or a number is not an integer.
        ValueError: If a number is out of range, not exactly one of ``num_steps`` and ``num_episodes`` is given, the
            observations are pixels, an action does not fit the action space, or an episode does not end.
    """
    copies, scales = copies_of(env), scales_of(env)
    by_copy = _run(copies, num_steps, num_episodes, seed, policy, max_episode_steps, keep_actions)
    warn_of_several_scales(env, scales, stacklevel=2)
    return [episode for episodes in by_copy for episode in episodes]


def _context_of_copy(index: int, episodes: list[Episode], gamma: float) -> Context:
    try:
        return Context.from_episodes(episodes, gamma)
    except ValueError as error:
        raise ValueError(f"copy {index}, {error}") from None


def _run(
    copies: OneCopy | VectorCopies,
    num_steps: int | None,
    num_episodes: int | None,
    seed: int | None,
    policy: Any,  # noqa: ANN401
    max_episode_steps: int | None,
    keep_actions: bool = False,
) -> list[list[Episode]]:
    if (num_steps is None) == (num_episodes is None):
        raise ValueError(
            f"num_steps, num_episodes: expected exactly one of them, got num_steps={num_steps} and "
            f"num_episodes={num_episodes}."
        )
    given = seed if seed is None else arguments.integer("seed", seed, 0)
    seed = secrets.randbits(31) if given is None else given
    keep_actions = arguments.flag("keep_actions", keep_actions)
    seen = warn_of_running_scales(copies._env)
    act = _actions(copies, policy, seed)
    recorders = _recorders(copies, num_steps, num_episodes, max_episode_steps, keep_actions)
    streams, held = global_streams(), held_streams(copies._env, of_spaces=True)
    observations = copies.reset(seed)
    for recorder, observation in zip(recorders, observations, strict=True):
        recorder.begin(observation)
    while not all(recorder.full for recorder in recorders):
        ended = np.array([not recorder.running for recorder in recorders])
        if ended.any() and copies.autoreset_mode is not AutoresetMode.NEXT_STEP:
            if copies.autoreset_mode is AutoresetMode.DISABLED:
                observations = copies.restart(ended)
            for i in np.flatnonzero(ended).tolist():
                recorders[i].begin(observations[i])
        actions = act(observations, [recorder.running for recorder in recorders])
        step = copies.step(copy.deepcopy(actions) if keep_actions else actions)  # an environment may write into them
        observations = step.observations
        for i, recorder in enumerate(recorders):
            if recorder.running:
                outcome = step.next_observations[i], step.rewards[i], step.terminated[i], step.truncated[i]
                recorder.add(actions[i], *outcome)
            else:
                recorder.begin(observations[i])
    warn_of_more_seen(copies._env, seen)
    warn_of_global_draws(streams, given, stacklevel=3)
    warn_of_unseeded_draws(copies._env, held, given, stacklevel=3)
    by_copy = [recorder.episodes for recorder in recorders]
    warn_of_equal_workers(copies._env, by_copy, seed, stacklevel=3)
    return by_copy


def _recorders(
    copies: OneCopy | VectorCopies,
    num_steps: int | None,
    num_episodes: int | None,
    max_episode_steps: int | None,
    keep_actions: bool,
) -> list[Recorder]:
    if num_steps is not None:
        num_steps = arguments.integer("num_steps", num_steps, 1)
    if max_episode_steps is not None:
        max_episode_steps = arguments.integer("max_episode_steps", max_episode_steps, 1)
        if copies.autoreset_mode is not AutoresetMode.DISABLED:
            raise ValueError(
                "max_episode_steps: expected None for a vector environment that resets itself, got "
                f"{max_episode_steps}; pass it to gymnasium.make_vec, or make it with autoreset mode DISABLED."
            )
    row = flattening(copies.observation_space)
    action_row = rows_of("actions", copies.action_space) if keep_actions else None
    shares: list[int | None] = [None] * copies.num_envs
    if num_episodes is not None:
        share, rest = divmod(arguments.integer("num_episodes", num_episodes, 1), copies.num_envs)
        shares = [share + (i < rest) for i in range(copies.num_envs)]
    return [Recorder(row, num_steps, share, max_episode_steps, action_row) for share in shares]


def _actions(
    copies: OneCopy | VectorCopies,
    policy: Any,  # noqa: ANN401
    seed: int,
) -> Callable[[Sequence[Any], Sequence[bool]], list[Any]]:
    """Returns the function from observations, and whether each copy heeds its action, to actions."""
    space = copies.action_space
    streams = [policy_stream(seed + i) for i in range(copies.num_envs)]
    if policy is None:
        functions = [_random_action(space, rng) for rng in streams]
    else:
        functions = [action_function(policy, copies._env)] * copies.num_envs
    latest: list[Any] = [None] * copies.num_envs

    def act(observations: Sequence[Any], heeded: Sequence[bool]) -> list[Any]:
        for i, rng in enumerate(streams):
            if heeded[i]:
                observation = copy.deepcopy(observations[i])  # which the policy may write into
                latest[i] = fitting_action(functions[i](observation, rng), space)
        return latest

    def predict(observations: Sequence[Any], heeded: Sequence[bool]) -> list[Any]:
        if any(heeded):
            latest[:] = [fitting_action(action, space) for action in copies.predict(policy, heeded)]
        return latest

    return predict if hasattr(policy, "predict") else act


def _random_action(space: spaces.Space[Any], rng: np.random.Generator) -> ActionFunction:
    if isinstance(space, spaces.Discrete) and space.n == 1:
        return lambda observation, rng: space.start
    own = copy.deepcopy(space)
    own.seed(int(rng.integers(2**31)))
    return lambda observation, rng: own.sample()
