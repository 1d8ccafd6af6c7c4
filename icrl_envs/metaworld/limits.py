"""A guard against time limits that an environment would not reach."""

from typing import Any

import gymnasium as gym


class EpisodeLimit(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Refuses a time limit around an environment that truncates its episodes earlier.

    ``gym.make(id, max_episode_steps=n)`` keeps ``n`` to itself and puts a ``TimeLimit`` around the environment, which
    never hears of it. Where n exceeds the environment's own ``max_episode_steps``, episodes would end early and in
    silence; with this wrapper among the registered ones, ``gym.make`` raises the error instead.

    Args:
        env: Made by ``gym.make``; its unwrapped environment has an attribute ``max_episode_steps``.

    Raises:
        ValueError: If the time limit exceeds the environment's own.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        """Compare the two limits."""
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        own = self.unwrapped.max_episode_steps  # pyright: ignore[reportAttributeAccessIssue]
        limit = None if env.spec is None else env.spec.max_episode_steps
        if limit is not None and limit > own:
            raise ValueError(
                f"max_episode_steps must be at most {own}, where the environment truncates its episodes; got {limit}."
            )
