"""Wrappers that standardise by statistics of what has been seen so far."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from icrl_agents.collection.copies import environments_of

_HAS = "has_wrapper_attr"


def warn_of_running_scales(env: Any) -> list[Any]:  # noqa: ANN401 - of any kind, below its wrappers too
    """Warns of wrappers by which a state or reward is another number at another time, in ``env`` and its copies.

    In workers it can ask for the outermost alone. Of others see ``warn_of_more_seen``, for which it returns how many
    numbers they have seen; nothing where it has warned of the outermost.
    """
    inner = env.unwrapped
    for name in filter(None, [_running(each) for each in (env, *environments_of(env))]):
        _warn(name)
    if not isinstance(inner, AsyncVectorEnv) or not all(inner.call(_HAS, "update_running_mean")):
        return []
    if any(inner.get_attr("update_running_mean")):
        _warn("a wrapper of its copies")
        return []
    return _seen(inner)


def warn_of_more_seen(env: Any, before: list[Any]) -> None:  # noqa: ANN401 - of any kind
    """Warns of wrappers in workers whose statistics have seen more than ``before``."""
    if before and _seen(env.unwrapped) != before:
        _warn("an inner wrapper of its copies")


def scales_of(env: Any) -> dict[str, list[tuple[bytes, bytes]]]:  # noqa: ANN401 - of any kind
    """Mean and variance by which each copy of ``env`` standardises observations and rewards, where all do."""
    inner = env.unwrapped
    if not isinstance(inner, (SyncVectorEnv, AsyncVectorEnv)):
        return {}
    kinds = [name for name in ("obs_rms", "return_rms") if all(inner.call(_HAS, name))]
    return {name: [(_bytes(each, "mean"), _bytes(each, "var")) for each in inner.get_attr(name)] for name in kinds}


def warn_of_several_scales(env: Any, before: dict[str, Any], stacklevel: int) -> None:  # noqa: ANN401 - of any kind
    """Warns if copies are each standardised by statistics of their own, which are those of ``before`` and differ.

    Args:
        env: An environment or vector environment.
        before: What ``scales_of`` gave. Of what goes on running the functions above tell.
        stacklevel: As of ``warnings.warn``, from the caller.
    """
    for name, scales in scales_of(env).items():
        if len(set(scales)) > 1 and scales == before.get(name):
            what = "observation" if name == "obs_rms" else "reward"
            warnings.warn(
                f"env: its copies are each standardised by {name} of their own, so that one {what} is another number "
                f"in each; let them have the same, env.set_attr({name!r}, env.get_attr({name!r})[0]), or standardise "
                "all of them at once, as the wrappers in gymnasium.wrappers.vector do.",
                UserWarning,
                stacklevel=stacklevel + 1,
            )


def _bytes(scale: Any, name: str) -> bytes:  # noqa: ANN401 - RunningMeanStd, or something of a wrapper of one's own
    return np.asarray(getattr(scale, name, 0.0)).tobytes()


def _seen(inner: AsyncVectorEnv) -> list[Any]:
    kinds = [name for name in ("obs_rms", "return_rms") if all(inner.call(_HAS, name))]
    return [getattr(statistics, "count", None) for name in kinds for statistics in inner.get_attr(name)]


def _warn(name: str) -> None:
    warnings.warn(
        f"env: {name} goes on updating its statistics, so that one state or reward is another number at another "
        "time; set its update_running_mean to False after some steps, or standardise the context afterwards.",
        UserWarning,
        stacklevel=5,
    )


def _running(env: Any) -> str | None:  # noqa: ANN401 - an environment or a vector environment
    """The first of the wrappers, from outside, whose statistics go on being updated."""
    layer = env
    while layer is not None:
        if hasattr(type(layer), "update_running_mean") and layer.update_running_mean:
            return type(layer).__name__
        layer = vars(layer).get("env")
    return None
