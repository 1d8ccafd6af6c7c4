"""MetaWorld's scripted policies, one for each domain."""

import types
from collections.abc import Callable

import numpy as np
from metaworld.policies import ENV_POLICY_MAP
from metaworld.policies.policy import move
from numpy.typing import NDArray

from icrl_envs.metaworld.rebinding import rebound
from icrl_envs.trained import WITH_GOAL


def scripted_policy(domain: str) -> Callable[[NDArray[np.float64]], NDArray[np.float32]]:
    """Return π, from the full observation ``(39,)`` with a visible goal to an action ``(4,)``, not clipped.

    It has no memory and no randomness. The library's own code runs, with two faults kept away: it warns on every
    action beyond [−1, 1], where actions are clipped anyway; and the policies of door-close and door-open write into
    the observation that they are given, so each call hands out a copy.

    Args:
        domain: One of the 50 names.

    Raises:
        ValueError: From π, if an observation is neither that nor the core ``(10,)`` of it, which most domains take, or
            if its goal is hidden.
    """
    policy = ENV_POLICY_MAP[domain]()
    get_action = rebound(type(policy).get_action, move=_silent_move)

    def act(full: NDArray[np.float64]) -> NDArray[np.float32]:
        if np.shape(full) not in WITH_GOAL or not np.any(full[-3:]):
            raise ValueError(
                "policy: MetaWorld's scripts read the goal from the last three numbers of what they observe, expected "
                f"shape (39,) as of observation='full' with goal_visible=True, got {np.shape(full)} that end in "
                f"{full[-3:]}."
            )
        return get_action(policy, full.copy())

    return act


def _ignore(message: str) -> None:
    """Drop the one warning of ``move``: "Constant(s) may be too high. Environments clip response to [-1, 1]"."""


_silent_move = rebound(move, warnings=types.SimpleNamespace(warn=_ignore))
