"""Wrappers that standardise by statistics of what has been seen so far."""

from __future__ import annotations

import warnings
from typing import Any

from gymnasium.vector import AsyncVectorEnv

from icrl_agents.collection.copies import environments_of


def warn_of_running_scales(env: Any) -> None:  # noqa: ANN401 - of any kind, below its wrappers too
    """Warns of wrappers by which a state or reward is another number at another time, in ``env`` and its copies."""
    inner = env.unwrapped
    names = [_running(each) for each in (env, *environments_of(env))]
    if isinstance(inner, AsyncVectorEnv) and all(inner.call("has_wrapper_attr", "update_running_mean")):
        names.append("a wrapper of its copies" if any(inner.get_attr("update_running_mean")) else None)
    for name in filter(None, names):
        warnings.warn(
            f"env: {name} goes on updating its statistics, so that one state or reward is another number at another "
            "time; set its update_running_mean to False after some steps, or standardise the context afterwards.",
            UserWarning,
            stacklevel=4,
        )


def _running(env: Any) -> str | None:  # noqa: ANN401 - an environment or a vector environment
    """The first of the wrappers, from outside, whose statistics go on being updated."""
    layer = env
    while layer is not None:
        if hasattr(type(layer), "update_running_mean") and layer.update_running_mean:
            return type(layer).__name__
        layer = vars(layer).get("env")
    return None
