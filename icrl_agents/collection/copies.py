"""Single and vector environments seen alike: copies that are stepped together, each with its own observations."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from icrl_agents.collection.holders import check_held, take
from icrl_agents.collection.outcomes import (
    FINAL,
    RESET,
    STEP,
    Step,
    check_cuts,
    check_not_restarted,
    detached,
    equal,
    finals_of,
    flags_of,
    rewards_of,
    single_step,
    typed,
)
from icrl_envs import arguments
from icrl_envs.fixed_policy import predicted
from icrl_envs.wrapped import has_observation_wrapper


class OneCopy:
    """A single environment: one copy, which restarts when it is told to.

    Args:
        env: Any Gymnasium environment.
    """

    num_envs = 1
    autoreset_mode = AutoresetMode.DISABLED

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self._env = env
        self._may_compare = not has_observation_wrapper(env)  # a final observation in info with what is returned
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def reset(self, seed: int | None) -> Sequence[Any]:
        """Starts an episode; returns its first observation, or raises ValueError if what it gets is no pair."""
        take(self._env, self)
        observation, _ = arguments.returned("reset", self._env.reset(seed=seed), *RESET)
        self._observation = detached(observation)
        return [self._observation]

    def restart(self, mask: np.ndarray) -> Sequence[Any]:
        """Starts the next episode; returns its first observation."""
        check_held(self._env, self)
        return self.reset(seed=None)

    def step(self, actions: Sequence[Any]) -> Step:
        """Takes the action.

        Raises:
            ValueError: If the environment returns anything but five things, the reward is not one real number, a flag
                neither true nor false, a time limit counts as a termination, or the environment has restarted.
        """
        check_held(self._env, self)
        observation, rewards, terminated, truncated, info = single_step(self._env.step(actions[0]))
        self._observation = detached(observation)
        if self._may_compare and (terminated | truncated)[0]:
            check_not_restarted(self._observation, info)
        return Step([self._observation], [self._observation], rewards, terminated, truncated)

    def predict(self, model: Any, heeded: Sequence[bool]) -> Sequence[Any]:  # noqa: ANN401 - a Stable-Baselines3 model
        """The model's deterministic action."""
        return [predicted(model, copy.deepcopy(self._observation))]


class VectorCopies:
    """The N copies of a vector environment, whichever autoreset mode it has.

    Args:
        env: A vector environment that names its mode in ``metadata["autoreset_mode"]``.

    Raises:
        ValueError: If it names no mode, or several copies are one and the same environment.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        if "autoreset_mode" not in env.metadata:
            raise ValueError(
                "env: expected metadata['autoreset_mode'] to say when the copies restart, got none; "
                "set it to a gymnasium.vector.AutoresetMode."
            )
        copies = environments_of(env)
        if len({id(each.unwrapped) for each in copies}) < len(copies):
            raise ValueError(
                "env: expected copies that are environments of their own, got one several times, which each would move "
                "on under the others; make a new one in each function."
            )
        self._env = env
        self._final = FINAL[1:] if has_observation_wrapper(env) else FINAL  # the first one single copies have, too
        self.num_envs: int = env.num_envs
        self.autoreset_mode = AutoresetMode(env.metadata["autoreset_mode"])
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space

    def reset(self, seed: int | None) -> Sequence[Any]:
        """Starts an episode in each copy; returns the first observations."""
        take(self._env, self)
        self._batch, _ = arguments.returned("reset", self._env.reset(seed=seed), *RESET)
        if _keeps_restarts(self._env):
            self._restart_pending()
            self._batch, _ = self._env.reset(seed=seed)
        return self._each(self._batch)

    def _restart_pending(self) -> None:
        """Steps until no copy is about to restart."""
        space = copy.deepcopy(self._env.action_space)  # whose generator stays where it is
        for _ in range(100):
            _, _, terminated, truncated, _ = self._env.step(space.sample())
            if not np.logical_or(terminated, truncated).any():
                return
        raise ValueError(
            "env: an AsyncVectorEnv with shared_memory=False may keep restarts of its copies over a reset, and in 100 "
            "steps there was none without one; make it with shared_memory=True."
        )

    def restart(self, mask: np.ndarray) -> Sequence[Any]:
        """Starts an episode in the copies of ``mask (N,)``; returns the observations of all copies.

        Raises:
            ValueError: If another copy observes something else after that, since it was restarted, too.
        """
        check_held(self._env, self)
        before = self._each(copy.deepcopy(self._batch))
        self._batch, _ = self._env.reset(options={"reset_mask": mask})
        observations = self._each(self._batch)
        for i in np.flatnonzero(~mask).tolist():
            if not equal(before[i], observations[i]):
                raise ValueError(
                    f"env: expected reset(options={{'reset_mask': mask}}) to leave copy {i} as it is, whose episode is "
                    "running, got another observation of it; an environment in autoreset mode DISABLED heeds the mask."
                )
        return observations

    def step(self, actions: Sequence[Any]) -> Step:
        """Takes an action in each copy; copies that are about to restart ignore theirs.

        Raises:
            ValueError: If something else has reset it, there is not one real number as the reward of each, a flag is
                neither true nor false, a final observation is missing, or one shows another autoreset mode than the
                environment names.
        """
        check_held(self._env, self)
        batch = concatenate(self.action_space, actions, create_empty_array(self.action_space, self.num_envs))
        outcome = arguments.returned("step", self._env.step(batch), *STEP)
        self._batch, rewards, terminated, truncated, info = outcome
        terminated, truncated = flags_of(terminated, truncated, self.num_envs)
        check_cuts(truncated, info)
        observations = self._each(self._batch)
        next_observations = observations
        ended = np.flatnonzero(np.logical_or(terminated, truncated)).tolist()
        final = finals_of(ended, info, self._final)
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            if len(final) < len(ended):
                raise ValueError(
                    "env: expected info['final_obs'] with the final observations, as in autoreset mode SAME_STEP, got "
                    "none."
                )
            next_observations = [typed(final[i], seen) if i in final else seen for i, seen in enumerate(observations)]
            if self._final is FINAL and isinstance(info, dict):  # what the copies themselves say of their ends
                for i, last in finals_of(ended, info.get("final_info", {})).items():
                    check_not_restarted(next_observations[i], {FINAL[1]: last})
        elif not all(equal(typed(last, observations[i]), observations[i]) for i, last in final.items()):
            raise ValueError(
                f"env: expected mode {self.autoreset_mode.name}, as metadata['autoreset_mode'] says, got final "
                "observations in info and others in their place; copies that restart in the same step are in mode "
                "SAME_STEP."
            )
        return Step(observations, next_observations, rewards_of(rewards, self.num_envs), terminated, truncated)

    def predict(self, model: Any, heeded: Sequence[bool]) -> Sequence[Any]:  # noqa: ANN401
        """The model's deterministic actions, of all copies at once.

        Args:
            model: A Stable-Baselines3 model.
            heeded: Which copies heed theirs, one at least. Of the others, which may have ended in NaN, it sees nothing.
        """
        batch = copy.deepcopy(self._batch)  # which the model may write into
        if not all(heeded):
            seen = self._each(batch)
            seen = [observation if heeded[i] else seen[heeded.index(True)] for i, observation in enumerate(seen)]
            batch = concatenate(self.observation_space, seen, create_empty_array(self.observation_space, self.num_envs))
        hint = "one that takes single observations is passed as lambda x, rng: model.predict(x)[0]."
        try:
            actions = predicted(model, batch)
        except Exception as error:  # of any kind
            if not str(error).startswith("policy: "):
                error.add_note(f"policy: predict is given the observations of {self.num_envs} copies at once; {hint}")
            raise
        if np.ndim(actions) == 0 or len(actions) != self.num_envs:
            raise ValueError(
                f"policy: expected predict to return {self.num_envs} actions for {self.num_envs} observations, "
                f"got {actions!r}; {hint}"
            )
        return list(actions)

    def _each(self, batch: Any) -> Sequence[Any]:  # noqa: ANN401 - a batch of any space
        return list(iterate(self._env.observation_space, batch))


def _keeps_restarts(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether a copy whose episode has just ended would restart in its next step although it was reset (Gymnasium 1.4).

    So it is in workers that share no memory, whatever the environment was stepped by before.
    """
    inner = env.unwrapped
    next_step = env.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    return isinstance(inner, AsyncVectorEnv) and not inner.shared_memory and next_step


def environments_of(env: Any) -> Sequence[gym.Env[Any, Any]]:  # noqa: ANN401 - of any kind
    """The environments that a vector environment of this process steps; none of any other."""
    return env.unwrapped.envs if isinstance(env.unwrapped, SyncVectorEnv) else ()


def copies_of(env: Any) -> OneCopy | VectorCopies:  # noqa: ANN401 - checked here
    """Returns the copies of a single or vector environment.

    Raises:
        TypeError: If ``env`` is neither.
    """
    if isinstance(env, VectorEnv):
        return VectorCopies(env)
    if isinstance(env, gym.Env):
        return OneCopy(env)
    hint = f"; did you mean gymnasium.make({env!r})?" if isinstance(env, str) else "."
    raise TypeError(f"env: expected a gymnasium.Env or a gymnasium.vector.VectorEnv, got {type(env).__name__}{hint}")
