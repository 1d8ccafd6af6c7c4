"""Wrappers that standardise by statistics of what has been seen so far."""

from __future__ import annotations

import warnings
from typing import Any

from gymnasium.vector import AsyncVectorEnv

from icrl_agents.collection.copies import environments_of


def warn_of_running_scales(env: Any) -> list[Any]:  # noqa: ANN401 - of any kind, below its wrappers too
    """Warns of wrappers by which a state or reward is another number at another time, in ``env`` and its copies.

    In workers it can ask for the outermost alone. Of others see ``warn_of_more_seen``, for which it returns how many
    numbers they have seen; nothing where it has warned of the outermost.
    """
    inner = env.unwrapped
    for name in filter(None, [_running(each) for each in (env, *environments_of(env))]):
        _warn(name)
    if not isinstance(inner, AsyncVectorEnv) or not all(inner.call("has_wrapper_attr", "update_running_mean")):
        return []
    if any(inner.get_attr("update_running_mean")):
        _warn("a wrapper of its copies")
        return []
    return _seen(inner)


def warn_of_more_seen(env: Any, before: list[Any]) -> None:  # noqa: ANN401 - of any kind
    """Warns of wrappers in workers whose statistics have seen more than ``before``."""
    if before and _seen(env.unwrapped) != before:
        _warn("an inner wrapper of its copies")


def _seen(inner: AsyncVectorEnv) -> list[Any]:
    kinds = [name for name in ("obs_rms", "return_rms") if all(inner.call("has_wrapper_attr", name))]
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
