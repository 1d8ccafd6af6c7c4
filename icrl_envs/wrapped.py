"""Wrappers that change observations or actions within their space, so that spaces do not tell of them."""

import itertools
import warnings
from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import (
    AsyncVectorEnv,
    SyncVectorEnv,
    VectorActionWrapper,
    VectorEnv,
    VectorObservationWrapper,
    VectorWrapper,
)

from icrl_envs.same_spaces import same_space

_HARMLESS = {"FlattenObservation", "DtypeObservation", "ReshapeObservation", "ClipAction"}
_HARMLESS |= {"RescaleObservation", "RescaleAction", "NormalizeObservation", "StickyAction", "DelayObservation"}
"""Gymnasium's that change no number, or of which bounds tell, or ``trained.check_trained``, or that are the process."""


def warn_of_wrappers(model: Any, env: Any, stacklevel: int) -> None:  # noqa: ANN401 (a policy, what it is to act in)
    """Warn of wrappers that either a model's own environment or ``env`` is in, and the other is not.

    Args:
        model: A policy. Where it does not show its environment, nothing is known.
        env: An environment or vector environment.
        stacklevel: As of ``warnings.warn``, from the caller.
    """
    own = getattr(model, "get_env", lambda: None)()
    trained, given = getattr(model, "wrappers", None) if own is None else wrappers_of(own), wrappers_of(env)
    if not isinstance(trained, Counter) or given is None:
        return
    missing, more = trained - given, given - trained
    if vectorised := _vectorised(own):  # another class has to stand for it here
        missing, more = missing if more or _passed_on(model, own) else missing + vectorised, Counter[str]()
    for names, there, here in ((missing, "the model's own environment", "this one"), (more, "this one", "the model's")):
        if names:
            warnings.warn(
                f"policy: {', '.join(names)} changes observations or actions in {there}, and is not around {here}: the "
                "model may be another policy here; wrap both alike.",
                UserWarning,
                stacklevel=stacklevel + 1,
            )


def wrappers_of(env: Any) -> Counter[str] | None:  # noqa: ANN401 (of Gymnasium or Stable-Baselines3)
    """Count the wrappers of an environment, or of its first copy, by their names; None where workers hide them."""
    layers = _layers(env)
    if isinstance(layers[-1], AsyncVectorEnv) or not isinstance(layers[-1], (gym.Env, VectorEnv)):
        return None
    return Counter(type(outer).__name__ for outer, inner in itertools.pairwise(layers) if _changes(outer, inner))


def has_observation_wrapper(env: Any) -> bool:  # noqa: ANN401 (of Gymnasium)
    """Return whether an environment, or its first copy, is in an ``ObservationWrapper``, or may be, in workers."""
    hiding = (gym.ObservationWrapper, VectorObservationWrapper, AsyncVectorEnv)
    return any(isinstance(layer, hiding) for layer in _layers(env))


def _layers(env: Any) -> list[Any]:  # noqa: ANN401
    """An environment, and all that it wraps, down to the first copy."""
    if isinstance(env, (gym.Wrapper, VectorWrapper)):
        inner = env.env
    elif isinstance(env, (gym.Env, VectorEnv)):
        inner = env.envs[0] if isinstance(env, SyncVectorEnv) else None
    else:  # a VecEnv
        inner = vars(env).get("venv") or next(iter(vars(env).get("envs", ())), None)
    return [env] if inner is None else [env, *_layers(inner)]


def _changes(outer: Any, inner: Any) -> bool:  # noqa: ANN401
    """Whether a wrapper's kind is to change observations or actions, and its space does not tell of it."""
    if isinstance(outer, (gym.ObservationWrapper, VectorObservationWrapper)):
        part = "observation_space"
    elif isinstance(outer, (gym.ActionWrapper, VectorActionWrapper)):
        part = "action_space"
    else:
        return False
    after, before = (getattr(each, f"single_{part}", getattr(each, part)) for each in (outer, inner))
    return type(outer).__name__ not in _HARMLESS and after.shape == before.shape and same_space(after, before)


def _vectorised(own: Any) -> Counter[str]:  # noqa: ANN401 (a VecEnv, or None)
    """The wrappers of a VecEnv that are not Stable-Baselines3's, whose spaces tell of them."""
    kinds = [type(layer) for layer in _layers(own) if "venv" in vars(layer)] if own is not None else []
    return Counter(kind.__name__ for kind in kinds if not kind.__module__.startswith("stable_baselines3."))


def _passed_on(model: Any, own: Any) -> bool:  # noqa: ANN401
    """Whether the last observation in a model's training was the one that the first of its VecEnvs has kept."""
    last = getattr(model, "_last_obs", None)
    kept = next((vars(layer)["buf_obs"] for layer in _layers(own) if "buf_obs" in vars(layer)), {})
    parts = last if isinstance(last, dict) else {None: last}
    return all(name in kept and np.array_equal(np.asarray(part), kept[name]) for name, part in parts.items())
