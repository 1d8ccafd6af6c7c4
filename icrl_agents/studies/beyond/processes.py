"""The processes of the study, each a Markov reward process whose state can be taken and given back."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from icrl_agents.studies.beyond.config import CHAINS, BeyondConfig
from icrl_agents.studies.beyond.policies import Policy, discrete, energy, lean, mixed, rock, swing, torques
from icrl_envs.fixed_policy import fitting_action
from icrl_envs.random_streams import policy_stream

SIMULATORS = {
    "cartpole": ("CartPole-v1", discrete(2), {"lean": lean}),
    "pendulum": ("Pendulum-v1", torques, {"energy": energy}),
    "acrobot": ("Acrobot-v1", discrete(3), {"pump": swing}),
    "mountaincar": ("MountainCar-v0", discrete(3), {"pump": rock}),
}


class Snapshot(NamedTuple):
    """A simulator's state, what was seen of it, and the stream of the policy's random numbers."""

    state: Any
    observation: np.ndarray
    stream: np.random.Generator


class SimulatorEnv(gym.Env[np.ndarray, np.int64]):
    """A classic-control simulator of Gymnasium under a fixed policy: a Markov reward process with exact snapshots.

    The simulator draws nothing at random but its start, so that the policy's stream decides all that follows. It has
    no time limit.

    Args:
        env_id: Of an environment whose attribute ``state`` is all of its state.
        policy: ``(observation, rng) -> action``.
    """

    def __init__(self, env_id: str, policy: Policy) -> None:
        self._simulator: Any = gym.make(env_id).unwrapped
        self._policy = policy
        self._snapshot = Snapshot(None, np.zeros(0), policy_stream(None))
        self.observation_space = self._simulator.observation_space
        self.action_space = spaces.Discrete(1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode; a seed also begins the policy's stream anew."""
        observation, info = self._simulator.reset(seed=seed, options=options)
        stream = self._snapshot.stream if seed is None else policy_stream(seed)
        self._snapshot = Snapshot(self._simulator.state, observation, stream)
        return observation.copy(), info

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes one step with the policy's action; the only action is 0."""
        _, seen, stream = self._snapshot
        chosen = fitting_action(self._policy(seen, stream), self._simulator.action_space)
        observation, reward, terminated, _, info = self._simulator.step(chosen)
        self._snapshot = Snapshot(self._simulator.state, observation, stream)
        return observation.copy(), float(reward), bool(terminated), False, info

    def get_state(self) -> Snapshot:
        """Returns a copy of the state."""
        return copy.deepcopy(self._snapshot)

    def set_state(self, snapshot: Snapshot, /, *, seed: int | None = None) -> np.ndarray:
        """Goes back to a state, the policy's stream by ``seed`` where it is given, and returns its observation."""
        self._snapshot = copy.deepcopy(snapshot)
        if seed is not None:
            self._snapshot = self._snapshot._replace(stream=policy_stream(seed))
        self._simulator.state = copy.deepcopy(snapshot.state)
        if hasattr(self._simulator, "steps_beyond_terminated"):
            self._simulator.steps_beyond_terminated = None
        return snapshot.observation.copy()


class Recorded(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps a snapshot of every state that is left.

    Args:
        env: An environment with ``get_state``.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.snapshots: list[Any] = []

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:  # noqa: ANN401
        """Takes the step."""
        self.snapshots.append(self.get_wrapper_attr("get_state")())
        return self.env.step(action)


def make(config: BeyondConfig, name: str, seed: int) -> gym.Env[Any, Any]:
    """Returns the process of that name; of a chain, the one that ``seed`` names."""
    kind, _, way = name.partition("-")
    if kind in CHAINS:
        features = way.replace("-", "_")
        chain = gym.make(
            CHAINS[kind], num_states=config.num_states, gamma=config.gamma, features=features, task_seed=seed
        )
        return chain.unwrapped
    env_id, random, simple = SIMULATORS[kind]
    return SimulatorEnv(env_id, random if way == "random" else mixed(simple[way], random))
