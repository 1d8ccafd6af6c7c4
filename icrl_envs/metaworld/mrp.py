"""A MetaWorld domain under its scripted policy plus noise, as a Markov reward process."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from icrl_envs.comparison import Task
from icrl_envs.metaworld.domains import noise_scale
from icrl_envs.metaworld.env import MetaWorldEnv, Step
from icrl_envs.metaworld.policies import scripted_policy
from icrl_envs.random_streams import policy_stream
from icrl_envs.settings import Setting


class MetaWorldMRPEnv(MetaWorldEnv):
    """One of MetaWorld's 50 manipulation domains under its scripted policy plus noise, the action folded in.

    ## Description
    The environment of `icrl/MetaWorld-v0`, moved by the library's own scripted policy π of the domain:

        a = clip(π(s) + σ ε, −1, 1) ,   ε ~ N(0, I₄)

    The noise comes before the clip. The policy sees the full observation, goal included, whatever the agent sees.
    The noise has a random stream of its own, derived from `reset(seed=...)` and independent of the goals': episodes
    with the same seed and different `goal_index` share their noise.

    ## Action Space
    `Discrete(1)`: the policy acts, so that the environment is a Markov reward process.

    ## Observation Space
    As for `icrl/MetaWorld-v0`: `"core"` `(10,)`, `"full"` `(39,)` or `"state"` `(42 + nv,)`, float64.

    ## Rewards
    As for `icrl/MetaWorld-v0`. They read the action too, and so are random given the state.

    ## Starting State
    As for `icrl/MetaWorld-v0`.

    ## Episode End
    Never terminated, success included. Truncated after `max_episode_steps` steps; one more step is an error.

    ## Arguments
    * `domain="pick-place-v3"`: one of `icrl_envs.metaworld.domains.DOMAINS`.
    * `noise="high"`: `"high"`, `"mid"` or `"low"` for σ = 1, 0.5 or 0.1, or σ ≥ 0 itself, in units of the action.
    * All others as for `icrl/MetaWorld-v0`.

    ## Version History
    * v0: first version, on MetaWorld v3 domains.
    """

    noise, noise_scale = Setting(), Setting()
    _arguments = ("noise", *MetaWorldEnv._arguments)
    _streams = ("_policy_stream", *MetaWorldEnv._streams)

    def __init__(self, domain: str = "pick-place-v3", noise: str | float = "high", **arguments: Any) -> None:  # noqa: ANN401
        """Check the arguments and build the simulator; the keywords are those of :class:`MetaWorldEnv`."""
        self.noise = noise
        self.noise_scale = noise_scale(noise)
        super().__init__(domain, **arguments)
        self.action_space = spaces.Discrete(1)
        self._policy = scripted_policy(self.domain)
        self._policy_stream = policy_stream(None)

    @property
    def comparable_task(self) -> Task:
        """What it runs, for comparison with another environment's: the noise too."""
        return Task((super().comparable_task.process, self.noise_scale))

    def step(self, action: ArrayLike) -> Step:
        """Move one step on; the only action is 0, which lets the policy act.

        Raises:
            ValueError: If the action is not 0, or the episode is over.
            gymnasium.error.ResetNeeded: If no episode has begun.
        """
        self._episode.require_running()
        if not self.action_space.contains(action):
            raise ValueError(f"action must be 0, which lets the policy act; got {action!r}.")
        noise = self.noise_scale * self._policy_stream.standard_normal(4)
        return self._advance(np.clip(self._policy(self._episode.full) + noise, -1.0, 1.0))

    def _reseed(self, seed: int | None) -> None:
        """Seed the random streams, the policy's included; None continues them."""
        super()._reseed(seed)
        if seed is not None:
            self._policy_stream = policy_stream(seed)
