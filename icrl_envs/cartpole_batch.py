"""CartPoles in lockstep, on Gymnasium's own vector environment, whose physics may be arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from icrl_envs import arguments
from icrl_envs.arrays import shaped
from icrl_envs.cartpole import START_BOUND, CartPoleProcess


class CartPoleBatch:
    """N CartPoles with physics and policies of their own.

    Args:
        processes: The N processes.

    Raises:
        ValueError: If there are none, they have different γ, or one samples or observes in a way of its own.
    """

    def __init__(self, processes: Sequence[CartPoleProcess]) -> None:
        """Give each copy of Gymnasium's simulator the physics of its process."""
        arguments.same_kind(processes, CartPoleProcess, "gamma")
        self.processes = processes
        self._controllers = np.array([process.controller for process in processes])
        self._epsilons = self._stack("epsilon")
        simulator: Any = CartPoleVectorEnv(len(processes))
        simulator.gravity, simulator.force_mag = self._stack("gravity"), self._stack("force")
        simulator.masscart, simulator.masspole = self._stack("cart_mass"), self._stack("pole_mass")
        simulator.length = self._stack("pole_half_length")
        simulator.total_mass = simulator.masspole + simulator.masscart
        simulator.polemass_length = simulator.masspole * simulator.length
        self._simulator = simulator

    def sample_start(self, rng: np.random.Generator) -> np.ndarray:
        """Return one start state of each process, ``(N, 4)``."""
        return rng.uniform(-START_BOUND, START_BOUND, (len(self.processes), 4))

    def sample_step(self, states: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ``(next_states, rewards, terminated)`` of one step from ``states (N, 4)``; each reward is 1.

        Raises:
            ValueError: If there is not one state of each process.
        """
        N = len(self.processes)
        shaped("states", states, (N, 4))
        greedy = (self._controllers * states).sum(axis=1) > 0
        actions = np.where(rng.random(N) < self._epsilons, rng.integers(2, size=N), greedy)
        simulator = self._simulator
        simulator.state = states.T
        simulator.steps = np.zeros(N, dtype=np.int32)  # the processes know no time limit,
        simulator.prev_done = np.zeros(N, dtype=np.bool_)  # and who calls says when they restart
        _, rewards, terminated, _, _ = simulator.step(actions.astype(np.int64))
        return simulator.state.T.copy(), rewards.astype(np.float64), terminated

    def _stack(self, name: str) -> np.ndarray:
        return np.array([getattr(process, name) for process in self.processes])
