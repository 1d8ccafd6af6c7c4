"""Pictures of a simulator, the right way up."""

import os

import gymnasium as gym
import numpy as np

from icrl_envs.metaworld.simulator import Simulator

CAMERAS = ("corner", "corner2", "corner3", "corner4", "topview", "behindGripper", "gripperPOV")

_INSTALL = (
    "rendering needs OpenGL without a display: install it (on Debian or Ubuntu `apt-get install libegl1 "
    "libgl1-mesa-dri`) and set the environment variable MUJOCO_GL=egl before Python starts. "
    "Everything but rendering works without."
)
_FORKED = (
    "rendering would hang: OpenGL does not survive a fork, and this process was forked from one that has rendered; "
    "start it afresh, with context='spawn' (gymnasium.make_vec(..., vectorization_mode='async', "
    "vector_kwargs={'context': 'spawn'})), or render in the parent process only."
)
_rendering: set[int] = set()
"""The process that has rendered, by its id; a fork inherits it."""
_missing: dict[int, str] = {}
"""Why a process, by its id, has no OpenGL: one without a display is aborted if it is tried again."""


def picture(simulator: Simulator) -> np.ndarray:
    """Return what the simulator's camera sees, ``(height, width, 3)`` bytes.

    The library mounts some of its cameras upside down (the four corners): their pictures are turned by 180°.

    Raises:
        gymnasium.error.DependencyNotInstalled: If there is no OpenGL; the message says what to install.
        RuntimeError: In a process that was forked from one that has rendered.
    """
    if _rendering - {os.getpid()}:
        raise RuntimeError(_FORKED)
    process = os.getpid()
    if process in _missing:
        raise gym.error.DependencyNotInstalled(_missing[process])
    try:
        pixels = np.array(simulator.render())
    except Exception as error:  # each OpenGL platform fails in a way of its own
        told = f"{_INSTALL} The cause: {error!r}"
        if process not in _rendering:
            _missing[process] = told
        raise gym.error.DependencyNotInstalled(told) from error
    finally:
        _rendering.add(process)
    return pixels[::-1, ::-1].copy() if _is_upside_down(simulator) else pixels


def _is_upside_down(simulator: Simulator) -> bool:
    """Return whether the camera's upward axis, the second column of its frame, points down."""
    return bool(simulator.data.camera(simulator.camera_name).xmat.reshape(3, 3)[2, 1] < 0.0)
