"""CartPole with random physics under a random policy, as a Markov reward process."""

import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv as Simulator

from icrl_envs import arguments
from icrl_envs.arrays import real_array
from icrl_envs.random_streams import task_streams

START_BOUND = 0.05  # each start coordinate is uniform in [-START_BOUND, START_BOUND], as in Gymnasium


@dataclass(frozen=True)
class CartPoleProcess:
    """Gymnasium's CartPole under a fixed ε-greedy linear policy.

        a = 1{wᵀs > 0} with probability 1 − ε, otherwise uniform in {0, 1}

    Each step pays 1; the episode terminates when the pole or the cart leaves its bounds.

    Args:
        gravity: In m/s².
        cart_mass: In kg.
        pole_mass: In kg.
        pole_half_length: In m.
        force: In N, to the right for action 1 and to the left for action 0.
        controller: w, four numbers for cart position, cart velocity, pole angle and pole velocity.
        epsilon: ε in ``[0, 1]``, the share of uniformly random actions.
        gamma: γ in ``[0, 1)``, the discount.

    Raises:
        TypeError: If an argument is not a number, or the controller no sequence of numbers.
        ValueError: If an argument is out of its range, a mass, length or force not positive, or the controller not
            four numbers.
    """

    gravity: float
    cart_mass: float
    pole_mass: float
    pole_half_length: float
    force: float
    controller: tuple[float, float, float, float]
    epsilon: float
    gamma: float

    def __post_init__(self) -> None:
        """Check the arguments."""
        positive = "cart_mass", "pole_mass", "pole_half_length", "force"
        checked = {name: arguments.real(name, getattr(self, name), 0.0, low_open=True) for name in positive}
        checked["gravity"] = arguments.real("gravity", self.gravity)
        checked["epsilon"] = arguments.real("epsilon", self.epsilon, 0.0, 1.0)
        checked["gamma"] = arguments.discount(self.gamma)
        weights = real_array("controller", self.controller, 1)
        if weights.shape != (4,):
            raise ValueError(f"controller must be four numbers; got {self.controller!r}.")
        for name, value in {**checked, "controller": tuple(weights.tolist())}.items():
            object.__setattr__(self, name, value)

    @cached_property
    def _simulator(self) -> Simulator:
        """Gymnasium's own equations of motion with this process's physics."""
        simulator = Simulator()
        simulator.gravity = self.gravity
        simulator.masscart = self.cart_mass
        simulator.masspole = self.pole_mass
        simulator.length = self.pole_half_length
        simulator.force_mag = self.force
        simulator.total_mass = self.pole_mass + self.cart_mass
        simulator.polemass_length = self.pole_mass * self.pole_half_length
        return simulator

    @property
    def observation_space(self) -> spaces.Box:
        """Twice the position and angle at which an episode ends; velocities have no bound."""
        limits = 2.0 * self._simulator.x_threshold, 2.0 * self._simulator.theta_threshold_radians
        high = np.array([limits[0], np.inf, limits[1], np.inf])
        return spaces.Box(-high, high, dtype=np.float64)

    def sample_start(self, rng: np.random.Generator) -> np.ndarray:
        """Return a state ``(4,)`` close to upright and at rest: m, m/s, rad, rad/s."""
        return rng.uniform(-START_BOUND, START_BOUND, 4)

    def sample_step(self, state: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, float, bool]:
        """Return ``(next_state, 1.0, terminated)`` after the policy's action in ``state (4,)``."""
        action = int(np.dot(self.controller, state) > 0)
        if rng.random() < self.epsilon:
            action = int(rng.integers(2))
        simulator = copy.copy(self._simulator)  # a process never changes, nor by steps in another thread
        simulator.state = state
        simulator.steps_beyond_terminated = None
        _, reward, terminated, _, _ = simulator.step(action)
        return np.array(simulator.state), float(reward), terminated

    def observe(self, state: np.ndarray) -> np.ndarray:
        """Return the state ``(4,)`` itself, a new array on each call."""
        return state.copy()


def random_cartpole(*, gamma: float = 0.9, task_seed: int = 0) -> CartPoleProcess:
    """Return CartPole with physics and policy drawn from the task (the ranges are those of ``CartPoleEnv``).

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If γ is outside ``[0, 1)`` or ``task_seed`` is negative.
    """
    physics, policy = task_streams(arguments.task_seed(task_seed), 2)
    return _draw(physics, policy, gamma)


def random_cartpoles(count: int, rng: np.random.Generator, *, gamma: float = 0.9) -> list[CartPoleProcess]:
    """Return ``count`` independent processes with the law of :func:`random_cartpole`, drawn from one stream."""
    rng = arguments.generator("rng", rng)
    return [_draw(rng, rng, gamma) for _ in range(arguments.integer("count", count, 1))]


def _draw(physics: np.random.Generator, policy: np.random.Generator, gamma: float) -> CartPoleProcess:
    return CartPoleProcess(
        gravity=physics.uniform(7.0, 13.0),
        cart_mass=physics.uniform(0.5, 2.0),
        pole_mass=physics.uniform(0.05, 0.5),
        pole_half_length=physics.uniform(0.25, 1.0),
        force=physics.uniform(5.0, 15.0),
        controller=tuple(policy.uniform(0.0, 1.0, 4)),
        epsilon=policy.uniform(0.1, 0.5),
        gamma=gamma,
    )
