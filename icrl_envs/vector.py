"""Native batched environments: many tasks of one kind, stepped together without a loop over copies."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from icrl_envs import arguments
from icrl_envs.batches import FiniteBatch, RKHSBatch
from icrl_envs.chains import boyan_chain, loop_chain
from icrl_envs.process import Process
from icrl_envs.rkhs import RKHSProcess

OPTIONS = ("task_seed", "reset_mask")


class ProcessVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """N processes of one kind as one vector environment; copy i is the task ``task_seed + i``.

    Each copy is exactly the task that the single environment with that seed has; so a ``task_seed`` N or more away
    gives other ones. The processes never terminate; with ``max_episode_steps`` all copies are truncated in time and
    restart on their next step. ``reset`` takes the options ``{"task_seed": k}``, which redraws every copy, and
    ``{"reset_mask": mask}``, with ``mask (N,)`` of bools, which restarts some of them.

    Args:
        draw: Called as ``draw(task_seed=k)``, returns the process of task k.
        batch: Steps a list of such processes.
        num_envs: N ≥ 1.
        task_seed: The task of the first copy.
        max_episode_steps: The length at which episodes are truncated; None for never.
        render_mode: None, ``"ansi"`` or ``"rgb_array"``.

    Attributes:
        processes: The process of each copy, a list of length N.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of its range.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (declared so by Gymnasium)
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 10,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        draw: Callable[..., Process[Any]],
        batch: Callable[..., FiniteBatch | RKHSBatch],
        num_envs: int = 1,
        task_seed: int = 0,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Draw the tasks."""
        self.num_envs = arguments.integer("num_envs", num_envs, 1)
        if max_episode_steps is not None:
            max_episode_steps = arguments.integer("max_episode_steps", max_episode_steps, 1)
        if render_mode is not None:
            arguments.choice("render_mode", render_mode, self.metadata["render_modes"])
        self._horizon = np.inf if max_episode_steps is None else max_episode_steps
        self.render_mode = render_mode
        self._draw, self._batch_of = draw, batch
        self._take(self._drawn(arguments.task_seed(task_seed)))
        self.single_observation_space = _hull(self.processes)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.single_action_space = spaces.Discrete(1)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Restart all copies, or those of ``options["reset_mask"]``, and return all observations ``(N, d)``.

        Args:
            seed: Seeds the starts and transitions of all copies; None continues the current stream.
            options: ``"task_seed"`` and ``"reset_mask"``, not both.

        Raises:
            TypeError: If an option has the wrong type.
            ValueError: If an option is unknown or does not fit.
        """
        if options is not None and not isinstance(options, dict):
            raise TypeError(f"options must be a dictionary or None; got {options!r}.")
        options = options or {}
        for key in options:
            arguments.choice("the key of options", key, OPTIONS)
        mask = self._checked_mask(options)
        drawn = self._redrawn(arguments.task_seed(options["task_seed"])) if "task_seed" in options else None
        super().reset(seed=seed)
        if drawn is not None:
            self._take(drawn)
        states = self._restart(mask)
        return self._batch.observe(states), self._batch.info(states)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Move every copy one step on; a copy truncated on the step before restarts instead, with reward 0.

        Args:
            actions: ``(N,)`` of zeros, the only action.

        Raises:
            ValueError: If an action is not 0 or their number is not N.
            gymnasium.error.ResetNeeded: If ``reset`` was never called.
        """
        if self._states is None:
            raise gym.error.ResetNeeded("step() needs running episodes: call reset() first.")
        if np.shape(actions) != (self.num_envs,) or np.any(actions):
            raise ValueError(f"actions must be {self.num_envs} zeros, the only action; got {actions!r}.")
        restarting = self._elapsed == self._horizon
        self._states, rewards = self._batch.sample_step(self._states, self.np_random)
        self._elapsed += 1
        if restarting.any():
            self._restart(restarting)
            rewards[restarting] = 0.0
        observations, info = self._batch.observe(self._states), self._batch.info(self._states)
        return observations, rewards, np.zeros(self.num_envs, dtype=bool), self._elapsed == self._horizon, info

    def render(self) -> tuple[Any, ...] | None:
        """Return each copy's current state as text or as an image ``(H, W, 3)`` of bytes, by the render mode.

        Raises:
            gymnasium.error.ResetNeeded: If ``reset`` was never called.
        """
        if self.render_mode is None:
            gym.logger.warn(
                "render() needs a render mode: make the environment with render_mode='rgb_array' or 'ansi'."
            )
            return None
        if self._states is None:
            raise gym.error.ResetNeeded("render() needs states: call reset() first.")
        from icrl_envs import rendering  # matplotlib is loaded for pictures only

        draw = rendering.text if self.render_mode == "ansi" else rendering.image
        return tuple(draw(*pair) for pair in zip(self.processes, self._states, strict=True))

    def _drawn(self, task_seed: int) -> list[Process[Any]]:
        """Return the processes of the tasks ``task_seed, task_seed + 1, …``."""
        return [self._draw(task_seed=task_seed + i) for i in range(self.num_envs)]

    def _redrawn(self, task_seed: int) -> list[Process[Any]]:
        """Return the same; ValueError if the space does not hold their observations."""
        space: Any = self.single_observation_space
        hull = _hull(processes := self._drawn(task_seed))
        if hull.shape != space.shape or (hull.low < space.low).any() or (hull.high > space.high).any():
            raise ValueError(
                f"draw must return processes with observations in {space}, as the first had; got {hull} from task "
                f"{task_seed} on. Let all of them have one space."
            )
        return processes

    def _take(self, processes: list[Process[Any]]) -> None:
        """Go over to new tasks, which have no states yet."""
        self.processes = processes
        self._batch = self._batch_of(processes)
        self._states: np.ndarray | None = None
        self._elapsed = np.zeros(self.num_envs, dtype=np.int64)

    def _checked_mask(self, options: dict[str, Any]) -> np.ndarray:
        """Return which copies are to restart, ``(N,)``; all of them where no mask is given."""
        if "reset_mask" not in options:
            return np.ones(self.num_envs, dtype=bool)
        mask = options["reset_mask"]
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError(f"options['reset_mask'] must be a NumPy array of bools; got {mask!r}.")
        if mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(
                f"options['reset_mask'] must have shape ({self.num_envs},) and at least one True; got {mask!r}."
            )
        if "task_seed" in options:
            raise ValueError("options must not have both 'task_seed', which restarts every copy, and 'reset_mask'.")
        if self._states is None and not mask.all():
            raise ValueError("options['reset_mask'] must be all True on the first reset: no copy has a state yet.")
        return mask

    def _restart(self, mask: np.ndarray) -> np.ndarray:
        """Give the copies of ``mask (N,)`` a start state and return the states of all."""
        starts = self._batch.sample_start(self.np_random)
        states = starts if self._states is None else self._states
        states[mask] = starts[mask]
        self._states = states
        self._elapsed[mask] = 0
        return states


def _hull(processes: Sequence[Process[Any]]) -> spaces.Box:
    """Return the smallest box that holds the observations of all; ValueError if their shapes differ."""
    boxes = [process.observation_space for process in processes]
    if any(box.shape != boxes[0].shape for box in boxes):
        raise ValueError(f"draw must return processes with observations of one shape; got {boxes}.")
    low, high = np.min([box.low for box in boxes], axis=0), np.max([box.high for box in boxes], axis=0)
    return spaces.Box(low, high, dtype=np.float64)


class BoyanChainVectorEnv(ProcessVectorEnv):
    """Random Boyan's chains; the task's arguments are those of :func:`icrl_envs.boyan_chain`."""

    def __init__(
        self,
        num_envs: int = 1,
        *,
        task_seed: int = 0,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        **task: Any,  # noqa: ANN401 (checked by boyan_chain)
    ) -> None:
        """Draw the chains."""
        super().__init__(
            partial(boyan_chain, **task), FiniteBatch.stack, num_envs, task_seed, max_episode_steps, render_mode
        )


class LoopChainVectorEnv(ProcessVectorEnv):
    """Random ergodic chains; the task's arguments are those of :func:`icrl_envs.loop_chain`."""

    def __init__(
        self,
        num_envs: int = 1,
        *,
        task_seed: int = 0,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        **task: Any,  # noqa: ANN401 (checked by loop_chain)
    ) -> None:
        """Draw the chains."""
        super().__init__(
            partial(loop_chain, **task), FiniteBatch.stack, num_envs, task_seed, max_episode_steps, render_mode
        )


class RKHSVectorEnv(ProcessVectorEnv):
    """Processes with values from an RKHS; the task's arguments are those of :class:`icrl_envs.RKHSProcess`."""

    def __init__(
        self,
        num_envs: int = 1,
        *,
        task_seed: int = 0,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        **task: Any,  # noqa: ANN401 (checked by RKHSProcess)
    ) -> None:
        """Draw the values."""
        super().__init__(partial(RKHSProcess, **task), RKHSBatch, num_envs, task_seed, max_episode_steps, render_mode)
