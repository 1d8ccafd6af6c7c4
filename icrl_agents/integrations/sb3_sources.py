"""Which environments a VecEnv steps, so that a saved model knows them again (extra ``[sb3]``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnvWrapper

from icrl_agents.control.telling import state_of
from icrl_envs.comparison import Held

Source = dict[str, list[str]]
"""What environments are called with all of their wrappers, and the numbers and strings that they were made with."""

_WATCHING = {
    *("Monitor", "OrderEnforcing", "PassiveEnvChecker", "TimeLimit", "RecordEpisodeStatistics", "RecordVideo"),
    *("HumanRendering", "RenderCollection", "VecMonitor", "VecVideoRecorder", "VecCheckNan", "VecTransposeImage"),
}
"""Wrappers under which transitions are as without."""


def stepped(env: Any) -> list[int]:  # noqa: ANN401 - a VecEnv
    """Identities of the environments in ``env``, below what Stable-Baselines3 itself wraps them in."""
    copies = env.envs if type(env) is DummyVecEnv else [env]
    return [id(each.env if isinstance(each, Monitor) else each) for each in copies]


def place_of(env: Any) -> list[Any]:  # noqa: ANN401 - a VecEnv
    """What Stable-Baselines3's own VecEnvs keep of their last steps and resets: after further ones, other objects.

    And the steps that wrappers of environments in this process have counted, which others may have made around it.
    """
    own = vars(env.unwrapped)
    counted = [_counted(each) for each in own["envs"]] if isinstance(env.unwrapped, DummyVecEnv) else []
    return [*own.get("reset_infos", ()), *own.get("buf_infos", ()), *counted]


def environments_in(env: Any) -> list[Any]:  # noqa: ANN401 - a VecEnv, or None
    """The environments in this process that ``env`` steps, without wrappers."""
    return (
        [each.unwrapped for each in env.unwrapped.envs] if isinstance(getattr(env, "unwrapped", 0), DummyVecEnv) else []
    )


def is_same_place(place: list[Any], other: list[Any]) -> bool:
    """Whether nothing has moved the environment from ``place`` to ``other``, as far as both tell."""
    pairs = zip(place, other, strict=False)
    return all(one is another or (type(one) is tuple and one == another) for one, another in pairs)


def _counted(env: Any) -> tuple[Any, ...]:  # noqa: ANN401 - an environment
    """Steps that time limits and monitors have counted; at an episode's start, or without a limit, the stream too."""
    counts: list[int] = []
    begun = False
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            elapsed = getattr(env, "_elapsed_steps", None) or 0
            begun = begun or elapsed > 0
            counts.append(elapsed)
        elif isinstance(env, Monitor):
            counts.append(env.total_steps)
        env = env.env
    return (*counts, None if begun else repr(state_of(vars(env).get("_np_random"))))


def source_of(env: Any) -> Source:  # noqa: ANN401 - a VecEnv, or None
    """The source of what ``env`` steps; its copies count once, and of those in workers there are only names."""
    if env is None:
        return {}
    around: list[str] = []
    while isinstance(env, VecEnvWrapper):
        around.append(type(env).__name__)
        env = env.venv
    if isinstance(env, DummyVecEnv):
        names = [_called(each) for each in env.envs]
    else:
        names = env.env_method("__str__") if isinstance(env, SubprocVecEnv) else [type(env).__name__]
    source = {"names": _distinct(" ".join([*around, name]) for name in names)}
    if isinstance(env, DummyVecEnv):
        source["arguments"] = sorted({_arguments(each.unwrapped.spec) for each in env.envs})
    return source


def are_others(source: Source, other: Source) -> bool:
    """Whether two sources are known to differ, in what both tell."""
    return any(source[part] != other[part] for part in source.keys() & other.keys())


def _called(env: gym.Env[Any, Any]) -> str:
    """What Gymnasium's own ``str(env)`` says, whatever that of the environment's class does."""
    if isinstance(env, gym.Wrapper):
        return f"{type(env).__name__} {_called(env.env)}"
    return f"{type(env).__name__} {'instance' if env.spec is None else env.spec.id}"


def _arguments(spec: Any) -> str:  # noqa: ANN401 - of an environment that gym.make made, or None
    kwargs = {} if spec is None else {name: each for name, each in spec.kwargs.items() if name != "render_mode"}
    return str(sorted((str(path), each.tolist()) for path, each in Held(SimpleNamespace(**kwargs)).numbers.items()))


def _distinct(texts: Iterable[str]) -> list[str]:
    words = ([word for word in re.findall(r"[^<>\s]+", text) if word not in _WATCHING] for text in texts)
    return sorted({" ".join(each) for each in words})
