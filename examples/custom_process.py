"""A Markov reward process of your own: a random walk that terminates at either end."""

import numpy as np
from gymnasium import spaces

from icrl_agents import collect, constructions, kernels
from icrl_envs import ProcessEnv


class RandomWalk:
    """States 1 … 5 between two terminal ends; reward 1 on reaching the right one (Sutton & Barto, example 6.2)."""

    gamma = 1.0
    observation_space = spaces.Box(0.0, 1.0, (1,), np.float64)

    def sample_start(self, rng: np.random.Generator) -> int:
        """Starts in the middle."""
        return 3

    def sample_step(self, state: int, rng: np.random.Generator) -> tuple[int, float, bool]:
        """Goes left or right; returns the next state, the reward and whether the walk has ended."""
        state += 1 if rng.random() < 0.5 else -1
        return state, float(state == 6), state in (0, 6)

    def observe(self, state: int) -> np.ndarray:
        """The position, scaled to [0, 1]."""
        return np.array([state / 6])


context = collect(ProcessEnv(RandomWalk()), num_episodes=200, gamma=1.0, seed=0)
value = constructions.weighted_softmax_td(kernels.RBF(length_scale=0.05), num_layers=100).fit(context)

positions = np.arange(1, 6)[:, None] / 6
print("exact    ", np.arange(1, 6) / 6)
print("estimate ", value(positions).numpy().round(3))
