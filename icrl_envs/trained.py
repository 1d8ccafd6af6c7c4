"""What a policy was trained for, against the environment that it is to act in."""

import contextlib
import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorWrapper

from icrl_envs.same_spaces import kind_of, same_space
from icrl_envs.wrapped import warn_of_wrappers

WITH_GOAL = ((10,), (39,))
"""Shapes of MetaWorld's observations that end in the goal: the core, and all of the library's own."""


def check_trained(policy: Any, env: Any) -> None:  # noqa: ANN401 (a model, and what it is to act in)
    """Raise ValueError if a policy that says how it was trained would be another one in ``env``.

    That is so where its own environment normalises observations and ``env`` does not, or the other way round, where it
    was trained with other kinds of actions or observations, or numbers of them, where its actions had other bounds, as
    under ``RescaleAction``, where it needs masks of actions, which are not passed, and where it is one of MetaWorld's
    scripts, which take the last three numbers for the goal, and those are none. Of other bounds of observations, of
    other wrappers within the same bounds, and of a ``NormalizeObservation`` that has seen nothing, where the policy's
    had, it is warned.
    """
    _check_raw(policy, env)
    _check_called(policy)
    _check_scripted(policy, env)
    for name in ("action_space", "observation_space"):
        trained = getattr(policy, name, None)
        given = getattr(env, f"single_{name}", getattr(env, name))
        if not isinstance(trained, spaces.Space) or same_space(trained, given):
            continue
        text = (
            f"policy: the model was trained with {name} {trained}, the environment has {given}: where a wrapper made "
            "the difference, wrap this environment as well."
        )
        if name == "action_space" or kind_of(trained) != kind_of(given):
            raise ValueError(text)
        warnings.warn(text, stacklevel=4)
    warn_of_wrappers(policy, env, stacklevel=4)


def _check_raw(model: Any, env: Any) -> None:  # noqa: ANN401
    """Raise ValueError if one of the model's own environment and ``env`` normalises observations, and the other not."""
    normaliser = getattr(model, "get_vec_normalize_env", lambda: None)()
    if normaliser is not None and getattr(normaliser, "norm_obs", True):
        raise ValueError(
            "policy: expected a model of observations as they are, got one of what its VecNormalize makes of them; "
            "pass lambda observation, rng: model.predict(normaliser.normalize_obs(observation), deterministic=True)[0] "
            "with normaliser = model.get_vec_normalize_env()."
        )
    trained = _trained_on_normalised(model)
    if trained is None or trained == normalises(env):
        if trained and all(_untouched(each) for each in _statistics(env)):
            warnings.warn(
                "policy: was trained on what NormalizeObservation makes of observations, and that of this environment "
                "has seen none yet, so that it leaves them as they are; give it the obs_rms of the model's own.",
                UserWarning,
                stacklevel=5,
            )
        return
    if trained:
        raise ValueError(
            "policy: expected a model of observations as they are, got one of what NormalizeObservation makes of them; "
            "wrap this environment as well, with the obs_rms of the model's own and update_running_mean = False."
        )
    raise ValueError(
        "policy: expected a model of what NormalizeObservation makes of observations, got one of them as they are; "
        "wrap the environment in FixedPolicy(..., policy) first, in NormalizeObservation after, and pass no policy."
    )


def _statistics(env: Any) -> Sequence[Any]:  # noqa: ANN401
    """The statistics of observations that ``normalises`` has found, of each copy that has its own."""
    if isinstance(env, gym.Env):
        return [env.get_wrapper_attr("obs_rms")]
    while isinstance(env, VectorWrapper):
        if isinstance(env, gym.wrappers.vector.NormalizeObservation):
            return [env.obs_rms]
        env = env.env
    return env.get_attr("obs_rms")


def _untouched(statistics: Any) -> bool:  # noqa: ANN401
    """Whether statistics are those before the first observation, mean 0 and variance 1."""
    mean, variance = (getattr(statistics, name, None) for name in ("mean", "var"))
    return mean is not None and not np.any(mean) and bool(np.all(variance == 1))


def _trained_on_normalised(model: Any) -> bool | None:  # noqa: ANN401
    """Whether a model was trained on what ``NormalizeObservation`` makes of observations; None if not known."""
    own = getattr(getattr(model, "get_env", lambda: None)(), "envs", ())  # workers, perhaps closed by now, have none
    known = [normalises(each) for each in own if isinstance(each, gym.Env)]
    return any(known) if known else getattr(model, "normalised", None)


def _check_called(model: Any) -> None:  # noqa: ANN401
    """Raise ValueError if the model is to be told which actions are allowed, TypeError if it cannot be called."""
    parameters: Any = {}
    with contextlib.suppress(AttributeError, TypeError, ValueError):  # not all that can be called has a signature
        parameters = inspect.signature(model.predict).parameters
    if "action_masks" in parameters:
        raise ValueError(
            "policy: expected a model that chooses among all actions, got one whose predict takes action_masks; pass "
            "lambda observation, rng: model.predict(observation, deterministic=True, action_masks=MASKS)[0], MASKS "
            "those of the environment at that time."
        )
    kinds = {parameter.kind for parameter in parameters.values()}
    if kinds and "deterministic" not in parameters and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise TypeError(
            f"policy: expected predict(observation, deterministic=True), as of Stable-Baselines3's models, got one "
            f"with {list(parameters)}; of one that gives an action for each row, as scikit-learn's do, pass lambda "
            "observation, rng: model.predict(observation[None])[0]."
        )


def _check_scripted(policy: Any, env: Any) -> None:  # noqa: ANN401
    """Raise ValueError if a script of MetaWorld's would read what it takes for the goal from anything else."""
    if not type(policy).__module__.startswith("metaworld.policies"):
        return
    space, inner = getattr(env, "single_observation_space", env.observation_space), env.unwrapped
    hidden = [False]
    if isinstance(inner, AsyncVectorEnv) and all(inner.call("has_wrapper_attr", "goal_visible")):
        hidden = [not visible for visible in inner.get_attr("goal_visible")]
    elif not isinstance(inner, AsyncVectorEnv):
        hidden = [not getattr(each.unwrapped, "goal_visible", True) for each in getattr(inner, "envs", [inner])]
    bounds = (space.low[-3:], space.high[-3:]) if isinstance(space, spaces.Box) else ()
    if any(hidden) or space.shape not in WITH_GOAL or not any(bound.any() for bound in bounds):
        seen = "observations with a hidden goal" if any(hidden) else f"observations {space}"
        raise ValueError(
            "policy: MetaWorld's scripts read the goal from the last three numbers of what they observe, expected "
            f"observation='full' and goal_visible=True, got {seen}; icrl/MetaWorldMRP-v0 shows its script the goal "
            "whatever the agent sees."
        )


def normalises(env: Any) -> bool:  # noqa: ANN401
    """Whether an environment, or a vector environment or each of its copies, is in ``NormalizeObservation``."""
    if isinstance(env, gym.Env):
        return env.has_wrapper_attr("obs_rms")
    while isinstance(env, VectorWrapper):
        if isinstance(env, gym.wrappers.vector.NormalizeObservation):
            return True
        env = env.env
    return isinstance(env, (SyncVectorEnv, AsyncVectorEnv)) and all(env.call("has_wrapper_attr", "obs_rms"))
