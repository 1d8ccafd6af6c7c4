"""Any environment under a fixed policy: a Markov reward process."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from icrl_envs.random_streams import policy_stream
from icrl_envs.settings import Setting
from icrl_envs.trained import check_trained

ActionFunction = Callable[[Any, np.random.Generator], Any]


class FixedPolicy(gym.Wrapper[Any, np.int64, Any, Any], gym.utils.RecordConstructorArgs):
    """Folds a policy into an environment, which leaves one action, 0: "let the policy act".

    The policy's randomness is a stream of its own, derived from ``reset(seed=...)`` and independent of the
    environment's; ``reset()`` without a seed continues it. Actions beyond the bounds of a box are clipped to it, as
    scripted policies and Gaussian noise expect.

    Args:
        env: Any Gymnasium environment.
        policy: One of: a callable ``(observation, rng) -> action``; a Stable-Baselines3 model, whose
            ``predict(observation, deterministic=True)`` is used; a scripted policy with ``get_action(observation)``.
            It must have no memory, for the result to be a Markov reward process.

    Raises:
        TypeError: If ``env`` is not an environment or ``policy`` is none of these.
        ValueError: If ``policy`` is a model of observations that ``VecNormalize`` or ``NormalizeObservation``
            normalised, as ``env`` does not, or the other way round, or was trained with other kinds or numbers of
            actions or observations, or other bounds of actions, as under ``RescaleAction``. Other bounds of
            observations, and other wrappers that change observations or actions, are warned of.

    Example:
        >>> def push_along(observation, rng):
        ...     return int(observation[2] > 0)
        >>> env = FixedPolicy(gym.make("CartPole-v1"), push_along)
        >>> observation, info = env.reset(seed=0)
        >>> observation, reward, terminated, truncated, info = env.step(0)
        >>> reward, terminated
        (1.0, False)
    """

    policy = Setting()

    def __init__(self, env: gym.Env[Any, Any], policy: Any) -> None:  # noqa: ANN401 (see Args)
        """Find out how the policy is asked; it is not asked yet."""
        gym.utils.RecordConstructorArgs.__init__(self, policy=policy, _disable_deepcopy=True)
        gym.Wrapper.__init__(self, env)
        self.action_space = spaces.Discrete(1)
        self.policy = policy
        self._act = action_function(policy, env)
        self._rng: np.random.Generator | None = None
        self._observation: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and, where a seed is given, the policy's stream."""
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None or self._rng is None:
            self._rng = policy_stream(seed)
        self._observation = copy.deepcopy(observation)
        return observation, info

    def step(self, action: np.int64) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one step with the policy's action.

        Raises:
            ValueError: If ``action`` is not 0 or the policy's action does not fit the environment.
            gymnasium.error.ResetNeeded: If the environment was never reset.
        """
        if self._rng is None:
            raise gym.error.ResetNeeded("step() needs a running episode: call reset() first.")
        if not self.action_space.contains(action):
            raise ValueError(f"action must be 0, which lets the policy act; got {action!r}.")
        chosen = fitting_action(self._act(self._observation, self._rng), self.env.action_space)
        observation, reward, terminated, truncated, info = self.env.step(chosen)
        self._observation = copy.deepcopy(observation)
        return observation, reward, terminated, truncated, info


def action_function(policy: Any, env: Any) -> ActionFunction:  # noqa: ANN401 (see FixedPolicy)
    """Return ``policy`` as a function ``(observation, rng) -> action``, to act in ``env`` or in each of its copies.

    Raises:
        TypeError: If it is a class, or has neither ``predict`` nor ``get_action`` and takes no two arguments.
        ValueError: If it says that it was trained for another environment; see ``trained.check_trained``.
    """
    if isinstance(policy, type):
        raise TypeError(f"policy must be an object, such as {policy.__name__}(...); got the class itself.")
    if hasattr(policy, "predict"):
        check_trained(policy, env)
        return lambda observation, rng: predicted(policy, observation)
    if hasattr(policy, "get_action"):
        check_trained(policy, env)
        return lambda observation, rng: policy.get_action(observation)
    if not _takes_two(policy):
        raise TypeError(
            "policy must be a callable (observation, rng) -> action, or have predict(observation, deterministic=True) "
            f"as Stable-Baselines3 models do, or get_action(observation) as scripted policies do; got {policy!r}."
        )
    return policy


def predicted(model: Any, observation: Any) -> Any:  # noqa: ANN401 (a Stable-Baselines3 model, and what it sees)
    """Return the deterministic action of a model at one observation, or at a batch of them.

    Raises:
        TypeError: If ``predict`` does not return an action and a state.
        ValueError: If there is a state, which is not handed on.
    """
    result = model.predict(observation, deterministic=True)
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"policy: expected predict to return (action, state), got {type(result).__name__}.")
    if result[1] is not None:
        raise ValueError("policy: expected one without memory, got a recurrent model; its rewards are no MRP.")
    return result[0]


def _takes_two(policy: object) -> bool:
    """Return whether ``policy`` can be called with an observation and a generator, as far as can be told.

    A second parameter with a default of its own, such as ``deterministic=False``, is meant for something else, and so
    are those of ``action_space.sample``. A torch module shows its parameters in ``forward`` alone, and what
    ``torch.compile`` or a parallel module makes of one, in the module itself.
    """
    for name in ("_orig_mod", "module"):
        policy = getattr(policy, name, policy) if hasattr(policy, "forward") else policy
    if not callable(policy) or isinstance(getattr(policy, "__self__", None), spaces.Space):
        return False
    try:
        signature = inspect.signature(getattr(policy, "forward", policy))
        names = list(signature.bind(None, None).arguments)
    except ValueError:  # some built-in callables have no signature
        return True
    except TypeError:
        return False
    default = signature.parameters[names[-1]].default
    return default is inspect.Parameter.empty or default is None or isinstance(default, np.random.Generator)


def fitting_action(action: Any, space: spaces.Space[Any]) -> Any:  # noqa: ANN401 (actions of any space)
    """Return a policy's action as the space wants it: an int for a discrete one, cast for many, clipped for a box.

    It is a copy, since a policy may return one array again and again, with another action in it.

    Raises:
        ValueError: If the shape is not the space's, a number is not finite, or a discrete action is not in it.
    """
    if callable(getattr(action, "detach", None)):  # a tensor of a network
        action = action.detach().cpu().numpy()
    if isinstance(space, spaces.Box):
        array = np.asarray(action)
        masked = isinstance(action, np.ma.MaskedArray)
        if masked or array.dtype.kind not in "fiu" or array.shape != space.shape or not np.isfinite(array).all():
            raise ValueError(f"the policy's action must be finite and of shape {space.shape}; got {action!r}.")
        clipped = np.clip(array, space.low, space.high)
        if not np.issubdtype(space.dtype, np.floating) and np.any(clipped != np.round(clipped)):
            raise ValueError(f"the policy's action must be whole numbers, as in {space}; got {action!r}.")
        with np.errstate(over="ignore"):
            fitting = clipped.astype(space.dtype)
        if not np.isfinite(fitting).all():
            raise ValueError(f"the policy's action must be finite in {space.dtype}; got {action!r}.")
        return fitting
    if not space.contains(action):
        raise ValueError(f"the policy's action must be in {space}; got {action!r} of type {type(action).__name__}.")
    if isinstance(space, (spaces.MultiBinary, spaces.MultiDiscrete)):  # models give bits as floats
        return np.array(action, space.dtype)
    return int(action) if isinstance(space, spaces.Discrete) else copy.deepcopy(action)
