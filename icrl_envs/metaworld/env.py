"""A MetaWorld domain as a Gymnasium environment for control."""

import copy
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from icrl_envs import arguments
from icrl_envs.comparison import Task
from icrl_envs.metaworld import checks
from icrl_envs.metaworld.domains import domain_name
from icrl_envs.metaworld.episode import Episode
from icrl_envs.metaworld.goals import SPLITS, split_goals
from icrl_envs.metaworld.observations import OBSERVATIONS, observation_space, observe
from icrl_envs.metaworld.pictures import CAMERAS, picture
from icrl_envs.metaworld.simulator import Simulator, build_simulator
from icrl_envs.metaworld.snapshots import Snapshot
from icrl_envs.settings import Setting

Step = tuple[np.ndarray, float, bool, bool, dict[str, Any]]


class MetaWorldEnv(gym.Env[np.ndarray, ArrayLike]):
    """One of MetaWorld's 50 manipulation domains, for control.

    ## Description
    A Sawyer arm moves objects on a table: the library's own simulator with its dynamics, rewards and success, bit
    for bit, at up to twice its speed. Everything random comes from `reset(seed=...)`; the global generator of
    NumPy is never touched. `env.unwrapped.get_state()` and `set_state(snapshot)` copy and restore the state
    exactly, and so do pickle and deepcopy.

    ## Action Space
    `Box(-1, 1, (4,), float32)`: the displacement in x, y, z, in cm, of the mocap target that the hand follows, and
    the force that closes the gripper. An action outside of the box, of another shape or not finite is an error, and
    nothing has moved.

    ## Observation Space
    `Box`, float64, by `observation`; positions in m:
    * `"core"` `(10,)`: hand 3, gripper opening 1, object 3, goal 3.
    * `"full"` `(39,)`: the library's own, which its scripted policies read. Hand 3, gripper opening 1, two objects of
      position 3 and quaternion 4 each (zeros where there is none), then the same 18 numbers one step before, then the
      goal 3.
    * `"state"` `(42 + nv,)`: `"full"`, then the mocap target 3, then all joint velocities.

    None is exactly Markov. `"core"` and `"full"` leave out the mocap target, which leads the hand by centimetres;
    `"state"` still leaves out the arm's joint angles, so take them as approximately Markov features. With
    `goal_visible=False` the goal reads 0 in every row.

    ## Rewards
    The library's `reward_version`: `"v2"`, in [0, 10], or `"v1"`, whose scale differs by domain and reaches
    thousands. `info` has `success`, `near_object`, `grasp_success`, `grasp_reward`, `in_place_reward`,
    `obj_to_target` and `unscaled_reward`, as the library computes them.

    ## Starting State
    The hand starts at a place that the domain fixes; object and goal are where the drawn goal vector puts them, just
    as after the library's `set_task` and `reset`. A start depends on nothing but that vector.

    ## Episode End
    Never terminated, success included. Truncated after `max_episode_steps` steps; one more step is an error.

    ## Arguments
    * `domain="pick-place-v3"`: one of `icrl_envs.metaworld.domains.DOMAINS`.
    * `observation="core"`: `"core"`, `"full"` or `"state"`.
    * `goal_visible=True`: whether the observation shows the goal.
    * `reward_version="v2"`: `"v2"` or `"v1"`.
    * `split="train"`: which goals a reset draws from. `"train"` and `"test"`: the 50 of the benchmark
      `metaworld.ML1(domain, seed=task_seed)`, whose test goals are the train goals of the next seed. `"all"`: any
      goal of the domain, a new one at each reset; `task_seed` then has no effect. `env.unwrapped.goals` is the set,
      `(50, k)`, a row for each goal vector, or None with `"all"`.
    * `task_seed=0`: names the goal set. `reset(options={"task_seed": k})` goes over to set k, and
      `reset(options={"goal_index": i})` takes goal i of the set, which is otherwise drawn and told by `info`.
    * `max_episode_steps=500`: at most 500, the benchmark's horizon. (`gym.make` keeps the argument of this name to
      itself and puts a `TimeLimit` around the environment.)
    * `render_mode=None`: or `"rgb_array"`, which needs OpenGL: on Debian `apt-get install libegl1 libgl1-mesa-dri`,
      and `MUJOCO_GL=egl` in the environment.
    * `camera="corner2"`, `width=480`, `height=480`: of the pictures; the cameras are `corner`, `corner2`, `corner3`,
      `corner4`, `topview`, `behindGripper` and `gripperPOV`.

    ## Version History
    * v0: first version, on MetaWorld v3 domains.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 80}  # noqa: RUF012 (declared so by Gymnasium)

    domain, observation, goal_visible, reward_version, split, task_seed = (Setting() for _ in range(6))
    max_episode_steps, camera, width, height = (Setting() for _ in range(4))
    _of_the_task: tuple[str, ...] = "domain", "observation", "goal_visible", "reward_version", "split", "task_seed"
    _arguments: tuple[str, ...] = (*_of_the_task, "max_episode_steps", "render_mode", "camera", "width", "height")
    _streams: tuple[str, ...] = ("_np_random", "_np_random_seed")

    def __init__(
        self,
        domain: str = "pick-place-v3",
        *,
        observation: str = "core",
        goal_visible: bool = True,
        reward_version: str = "v2",
        split: str = "train",
        task_seed: int = 0,
        max_episode_steps: int = checks.HORIZON,
        render_mode: str | None = None,
        camera: str = "corner2",
        width: int = 480,
        height: int = 480,
    ) -> None:
        """Check the arguments, draw the goal set and build the simulator."""
        self.domain = domain_name(domain)
        self.observation = arguments.choice("observation", observation, OBSERVATIONS)
        self.goal_visible = arguments.flag("goal_visible", goal_visible)
        self.reward_version = checks.reward_version(reward_version)
        self.split = arguments.choice("split", split, SPLITS)
        self.task_seed = checks.task_seed(task_seed)
        self.max_episode_steps = checks.max_episode_steps(max_episode_steps)
        self.render_mode = checks.render_mode(render_mode, self.metadata["render_modes"])
        self.camera = arguments.choice("camera", camera, CAMERAS)
        self.width = arguments.integer("width", width, 1)
        self.height = arguments.integer("height", height, 1)
        self.goals = split_goals(self.domain, self.split, self.task_seed)
        rendering = {"render_mode": "rgb_array", "camera_name": camera, "width": width, "height": height}
        simulator = build_simulator(self.domain, self.reward_version, **rendering)
        self._episode = Episode(simulator, self.max_episode_steps)
        self.observation_space = observation_space(self.simulator, observation)
        self.action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (4,), np.float32)

    @property
    def simulator(self) -> Simulator:
        """The library's object for the domain, with MuJoCo's ``model`` and ``data``."""
        return self._episode.simulator

    @property
    def comparable_task(self) -> Task:
        """What it runs, for comparison with another environment's: its arguments, goals by themselves, no pictures."""
        goals = None if self.goals is None else self.goals.tobytes()
        return Task((self.domain, self.observation, self.goal_visible, self.reward_version, goals))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode and return its first observation; the info tells the goal's index in its set.

        Args:
            seed: Seeds everything random; None continues the current streams.
            options: ``{"task_seed": k}`` goes over to goal set k, ``{"goal_index": i}`` takes its goal i.

        Raises:
            TypeError: If an option has the wrong type.
            ValueError: If an option is unknown or out of range, or given where ``split="all"``.
        """
        task_seed, index = checks.reset_options(options, self.split)
        self._reseed(seed)
        if task_seed is not None:
            vars(self)["task_seed"] = task_seed
            self.goals = split_goals(self.domain, self.split, task_seed)
        if self.goals is None:
            self._episode.begin_anywhere(self.np_random)
            return self._observe(), {}
        index = int(self.np_random.integers(len(self.goals))) if index is None else index
        self._episode.begin(self.goals[index])
        return self._observe(), {"goal_index": index}

    def step(self, action: ArrayLike) -> Step:
        """Move one step on.

        Args:
            action: ``(4,)``, in [−1, 1].

        Raises:
            TypeError: If the action is not an array of numbers.
            ValueError: If it is not in the action space, or the episode is over.
            gymnasium.error.ResetNeeded: If no episode has begun.
        """
        self._episode.require_running()
        return self._advance(checks.action(action))

    def render(self) -> np.ndarray | None:
        """Return a picture ``(height, width, 3)`` of bytes, or None where there is no render mode.

        Raises:
            gymnasium.error.ResetNeeded: If no episode has begun.
            gymnasium.error.DependencyNotInstalled: If there is no OpenGL; the message says what to install.
        """
        if self.render_mode is None:
            gym.logger.warn("render() needs a render mode: make the environment with render_mode='rgb_array'.")
            return None
        return picture(self.simulator) if self._episode.full is not None else None

    def close(self) -> None:
        """Free the renderer, if there is one."""
        self.simulator.close()

    def get_state(self) -> Snapshot:
        """Return an exact copy of the state of the episode and of the random streams.

        Raises:
            gymnasium.error.ResetNeeded: If no episode has begun.
        """
        _ = self.np_random  # begins where no seed was given yet
        streams = {name: copy.deepcopy(getattr(self, name)) for name in self._streams}
        return Snapshot(self.domain, self.reward_version, *self._episode.get_state(), streams)

    def set_state(self, snapshot: Snapshot, *, seed: int | None = None) -> np.ndarray:
        """Go back to a state and return its observation; what follows equals what followed then, to the last bit.

        Args:
            snapshot: From :meth:`get_state` of an environment of the same domain and reward version. The goal is a part
                of it; the goal set of later resets and the time limit stay the environment's.
            seed: Where given, the random streams are seeded anew instead of restored: another future, same state.

        Raises:
            TypeError: If it is not a snapshot.
            ValueError: If it belongs to another domain or reward version, or lacks a stream and there is no seed.
        """
        restored = self._streams if seed is None else ()
        checks.snapshot(snapshot, self.domain, self.reward_version, restored)
        streams = {name: copy.deepcopy(snapshot.streams[name]) for name in restored}
        self._reseed(seed)
        self._episode.set_state(snapshot.simulator, snapshot.full)
        vars(self).update(streams)
        return self._observe()

    def _reseed(self, seed: int | None) -> None:
        """Seed the random streams; None continues them."""
        super().reset(seed=seed)

    def _advance(self, action: NDArray[Any]) -> Step:
        """Apply an action ``(4,)`` that was checked."""
        reward, info = self._episode.advance(action)
        return self._observe(), reward, False, self._episode.over, info

    def _observe(self) -> np.ndarray:
        """Return what the agent sees now, a new array on each call."""
        return observe(self.simulator, self._episode.full, self.observation, self.goal_visible)

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickle and deepcopy keep: the arguments, the state of the episode, and the generators."""
        names = (*self._arguments, *self._streams, "action_space", "observation_space", "spec")
        snapshot = self.get_state() if self._episode.begun else None
        return {"snapshot": snapshot} | {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Build the environment anew and go back to the state."""
        state = dict(state)
        snapshot = state.pop("snapshot")
        type(self).__init__(self, **{name: state.pop(name) for name in self._arguments})
        vars(self).update(state)
        if snapshot is not None:
            self.set_state(snapshot)
