"""What an agent sees of a simulator: a few of its 39 numbers, all of them, or the hidden state beside them."""

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from icrl_envs.metaworld.simulator import Simulator

OBSERVATIONS = ("core", "full", "state")
GOAL = slice(36, 39)
"""Where the goal is in the full observation."""

_CORE = np.array([0, 1, 2, 3, 4, 5, 6, 36, 37, 38])  # hand, gripper, object, goal
_GRIPPERS = [3, 21]  # of the current and of the previous frame
_GOAL_MARGIN = 0.01  # in m: no side of the box is empty where a domain keeps a coordinate of its goal fixed


def observe(
    simulator: Simulator, full: NDArray[np.float64], observation: str, goal_visible: bool
) -> NDArray[np.float64]:
    """Return a new array with what the agent sees.

    Args:
        simulator: In the state that ``full`` describes.
        full: ``(39,)``, the simulator's observation, goal included; it is left as it is.
        observation: ``"core"`` ``(10,)``, ``"full"`` ``(39,)`` or ``"state"`` ``(42 + nv,)``.
        goal_visible: Whether the goal is shown; it reads 0 otherwise.
    """
    seen = full.copy()
    if not goal_visible:
        seen[GOAL] = 0.0
    if observation == "core":
        return seen[_CORE]
    if observation == "full":
        return seen
    return np.concatenate([seen, simulator.data.mocap_pos[0], simulator.data.qvel])


def observation_space(simulator: Simulator, observation: str) -> spaces.Box:
    """Return a box that holds every observation of a domain, whether or not the goal is visible.

    Hand and gripper have the bounds to which the simulator clips them, the goal those of the domain's goals and 0,
    the mocap target those within which it moves; objects and velocities are unbounded. Positions in m.

    Args:
        simulator: Of the domain, its goal visible.
        observation: As for :func:`observe`.
    """
    space = simulator.sawyer_observation_space
    low, high = space.low.copy(), space.high.copy()
    low[_GRIPPERS] = 0.0
    low[GOAL] = np.minimum(low[GOAL], 0.0) - _GOAL_MARGIN
    high[GOAL] = np.maximum(high[GOAL], 0.0) + _GOAL_MARGIN
    if observation == "core":
        low, high = low[_CORE], high[_CORE]
    elif observation == "state":
        velocities = np.full(simulator.model.nv, np.inf)
        low = np.concatenate([low, simulator.mocap_low, -velocities])
        high = np.concatenate([high, simulator.mocap_high, velocities])
    return spaces.Box(low, high, dtype=np.float64)
