"""An environment in which a row that is no step of it shows."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Ascent(gym.Env):
    """Goes up by 1 at each step, from some place between 0 and 1, eight times."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (1,), np.float64), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(size=1)
        return self.place.copy(), {}

    def step(self, action):
        self.place = self.place + 1.0
        return self.place.copy(), 1.0, False, bool(self.place[0] > 8.0), {}
