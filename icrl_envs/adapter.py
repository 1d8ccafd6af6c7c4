"""The one adapter that turns a process into a Gymnasium environment."""

import copy
import numbers
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from icrl_envs import arguments
from icrl_envs.comparison import Held, Task, equal
from icrl_envs.process import Process
from icrl_envs.settings import Setting

STEP = "next_state", "reward", "terminated"
"""What ``sample_step`` of a process returns."""


class Snapshot(NamedTuple):
    """The state of a process, and the random stream from which it goes on."""

    state: Any
    stream: np.random.Generator
    process: Process[Any]


class ProcessEnv(gym.Env[np.ndarray, np.int64]):
    """A Markov reward process as a Gymnasium environment with one action.

    ``reset(seed=...)`` drives the start and the transitions and nothing else. Where the environment was given a way
    to draw tasks, ``reset(options={"task_seed": k})`` replaces the process by task k, for this episode and the
    following ones. Integer states are reported as ``info["state"]``.

    Args:
        process: The process to run.
        draw: Called as ``draw(task_seed=k)``, returns the process of task k with the same observation space.
        task_seed: The task that ``process`` is, if it was drawn.
        render_mode: None, ``"ansi"`` or ``"rgb_array"``.

    Raises:
        ValueError: If the render mode is unknown.

    Example:
        >>> from icrl_envs import FiniteProcess
        >>> process = FiniteProcess([[0.0, 1.0], [1.0, 0.0]], [1.0, 0.0], [[1.0], [-1.0]], 0.5, [1.0, 0.0])
        >>> env = ProcessEnv(process)
        >>> env.reset(seed=0)
        (array([1.]), {'state': 0})
        >>> env.step(np.int64(0))
        (array([-1.]), 1.0, False, False, {'state': 1})
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}  # noqa: RUF012 (declared so by Gymnasium)
    task_seed = Setting()

    def __init__(
        self,
        process: Process[Any],
        *,
        draw: Callable[..., Process[Any]] | None = None,
        task_seed: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Take the process; nothing is sampled before ``reset``."""
        if render_mode is not None:
            arguments.choice("render_mode", render_mode, self.metadata["render_modes"])
        self.process = process
        self.task_seed = task_seed
        self.render_mode = render_mode
        self.observation_space = process.observation_space
        self.action_space = spaces.Discrete(1)
        self._draw = draw
        self._state: Any = None
        self._running = False

    @property
    def comparable_task(self) -> Task:
        """What it runs, to be compared in another Python process; of a process that cannot be sent, what it holds."""
        try:
            pickle.dumps(self.process)
        except Exception:  # what pickle raises depends on what there is
            return Task(Held(self.process), self.task_seed)
        return Task(self.process, self.task_seed)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Return the observation and info of a start state.

        Args:
            seed: Seeds the start and the transitions; None continues the current stream.
            options: ``{"task_seed": k}`` goes over to task k.

        Raises:
            ValueError: If an option is unknown, the environment has a fixed process and cannot draw tasks, the one
                that it draws has another observation space, or a process observes one array again and again.
        """
        task_seed = arguments.reset_task_seed(options)
        process = self.process if task_seed is None else self._drawn(task_seed)
        super().reset(seed=seed)
        self.process = process
        vars(self)["task_seed"] = self.task_seed if task_seed is None else task_seed
        self._state = copy.deepcopy(process.sample_start(self.np_random))  # whose steps may write into it
        self._running = True
        observation = process.observe(self._state)
        if np.may_share_memory(observation, process.observe(self._state)):
            raise ValueError(
                "process must observe a new array on each call; got one that later steps write into: return a copy."
            )
        return observation, self._info()

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move one step on; the only action is 0.

        Raises:
            ValueError: If the action is not 0, or the process returns anything but three things, in their order.
            gymnasium.error.ResetNeeded: If the episode has not begun or has terminated.
        """
        if not self._running:
            raise gym.error.ResetNeeded(
                "step() needs a running episode: call reset() first, and after each termination."
            )
        if not self.action_space.contains(action):
            raise ValueError(f"action must be 0, the only action of a Markov reward process; got {action!r}.")
        outcome = self.process.sample_step(self._state, self.np_random)
        self._state, reward, terminated = arguments.returned("sample_step", outcome, *STEP, by="process")
        self._running = not terminated
        return self.process.observe(self._state), reward, terminated, False, self._info()

    def get_state(self) -> Snapshot:
        """Return copies of the state and of the random stream, and whose state it is, for :meth:`set_state`.

        Raises:
            gymnasium.error.ResetNeeded: If the episode has not begun or has terminated.
        """
        if not self._running:
            raise gym.error.ResetNeeded("get_state() needs a running episode: call reset() first.")
        return Snapshot(*copy.deepcopy((self._state, self.np_random)), self.process)

    def set_state(self, snapshot: Snapshot, *, seed: int | None = None) -> np.ndarray:
        """Go back to a state of the same process and return its observation; what follows equals what followed then.

        Args:
            snapshot: From :meth:`get_state`.
            seed: Where given, the random stream is seeded anew instead of restored: another future, same state.

        Raises:
            TypeError: If it is not a snapshot.
            ValueError: If it is one of another process, as another task is.
        """
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"snapshot must come from get_state(); got an object of type {type(snapshot).__name__}.")
        if equal(snapshot.process, self.process) is False:
            raise ValueError(
                "snapshot must be of a state of the environment's process; got one of another process or task. "
                'reset(options={"task_seed": k}) goes over to task k.'
            )
        state, stream = copy.deepcopy(snapshot[:2])
        observation = self._observed(state)
        super().reset(seed=seed)
        self._state = state
        if seed is None:
            self.np_random = stream
        self._running = True
        return observation

    def render(self) -> np.ndarray | str | None:
        """Return the current state as text or as an image ``(H, W, 3)`` of bytes, by the render mode.

        Raises:
            gymnasium.error.ResetNeeded: If there is no state yet.
        """
        if self.render_mode is None:
            gym.logger.warn(
                "render() needs a render mode: make the environment with render_mode='rgb_array' or 'ansi'."
            )
            return None
        if self._state is None:
            raise gym.error.ResetNeeded("render() needs a state: call reset() first.")
        from icrl_envs import rendering  # matplotlib is loaded for pictures only

        draw = rendering.text if self.render_mode == "ansi" else rendering.image
        return draw(self.process, self._state)

    def _drawn(self, task_seed: int) -> Process[Any]:
        """Return the process of another task."""
        if self._draw is None:
            raise ValueError("options must be empty: this environment runs one given process and draws no tasks.")
        process = self._draw(task_seed=task_seed)
        if process.observation_space != self.observation_space:
            raise ValueError(
                f"draw must return processes with observation space {self.observation_space}, like the first; "
                f"got {process.observation_space} for task {task_seed}. Let all of them have one space."
            )
        return process

    def _observed(self, state: object) -> np.ndarray:
        """Return the observation of a state that may be anything; ValueError if the process has no such state."""
        try:
            observation = self.process.observe(state)
        except (AttributeError, IndexError, TypeError, ValueError):
            observation = None
        if observation is None or observation not in self.process.observation_space:
            raise ValueError(f"snapshot must be of a state of the environment's process; got one of {state!r}.")
        return observation

    def _info(self) -> dict[str, Any]:
        """Return the state's index where states are integers, Python's or NumPy's."""
        return {"state": int(self._state)} if isinstance(self._state, numbers.Integral) else {}
