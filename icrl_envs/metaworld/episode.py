"""A simulator with an episode in it."""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from icrl_envs.metaworld.simulator import Simulator, draw_goal, reset_to_goal
from icrl_envs.metaworld.snapshots import SimulatorState, capture, restore


class Episode:
    """Runs one episode after the other in a simulator, each of which depends on its goal and actions only.

    Args:
        simulator: As it was built; the episode owns it from now on.
        max_steps: The number of steps after which an episode ends.
    """

    def __init__(self, simulator: Simulator, max_steps: int) -> None:
        """Keep the simulator's first state, to which each episode goes back."""
        self.simulator = simulator
        self.max_steps = max_steps
        self._full: NDArray[np.float64] | None = None
        self._pristine = capture(simulator)

    @property
    def full(self) -> NDArray[np.float64]:
        """The last full observation ``(39,)``, goal included.

        Raises:
            gymnasium.error.ResetNeeded: If no episode has begun.
        """
        if self._full is None:
            raise gym.error.ResetNeeded("no episode has begun: call reset() first.")
        return self._full

    @property
    def begun(self) -> bool:
        """Whether there is an episode, over or not."""
        return self._full is not None

    @property
    def over(self) -> bool:
        """Whether the last step has been made."""
        return self.simulator.curr_path_length >= self.max_steps

    def begin(self, goal: NDArray[np.float64]) -> None:
        """Start at a goal ``(k,)``."""
        restore(self.simulator, self._pristine)
        self._full = reset_to_goal(self.simulator, goal)

    def begin_anywhere(self, rng: np.random.Generator) -> None:
        """Start at a goal that the domain draws from ``rng``."""
        restore(self.simulator, self._pristine)
        self.simulator.np_random = rng
        self.begin(draw_goal(self.simulator))

    def require_running(self) -> None:
        """Do nothing if there is a step left.

        Raises:
            ValueError: If the episode is over.
            gymnasium.error.ResetNeeded: If no episode has begun.
        """
        if self.full is not None and self.over:
            raise ValueError(
                f"step() needs a running episode; this one was truncated after {self.max_steps} steps: "
                "call reset() to begin another."
            )

    def advance(self, action: NDArray[Any]) -> tuple[float, dict[str, Any]]:
        """Apply an action ``(4,)`` in [−1, 1] and return the reward and the library's info."""
        self._full, reward, _, _, info = self.simulator.step(action)
        return float(reward), info

    def get_state(self) -> tuple[SimulatorState, NDArray[np.float64]]:
        """Return copies of the simulator's state and of the last full observation ``(39,)``."""
        return capture(self.simulator), self.full.copy()

    def set_state(self, state: SimulatorState, full: NDArray[np.float64]) -> None:
        """Go back to a state of the same domain."""
        restore(self.simulator, state)
        self._full = full.copy()
