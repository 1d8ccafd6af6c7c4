"""Environments and policies as the command line names them; importing this imports no torch."""

from __future__ import annotations

import ast
import contextlib
import copy
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from tqdm import tqdm

import icrl_envs  # noqa: F401 - registers the environments
from icrl_envs import arguments
from icrl_envs.fixed_policy import action_function

POLICIES = ("random", "scripted")


def check_policy(policy: str, epsilon: float) -> None:
    """Raises ValueError if there is no such policy, or ``epsilon`` is no share."""
    if policy.endswith(".zip"):
        if not Path(policy).is_file():
            raise ValueError(f"policy: there is no file {policy}.")
    elif policy not in POLICIES:
        raise ValueError(
            f"policy: expected random, scripted or the path of a Stable-Baselines3 model, MODEL.zip; got {policy!r}."
        )
    arguments.real("epsilon", epsilon, 0.0, 1.0)


def keywords(pairs: Sequence[str]) -> dict[str, Any]:
    """Returns ``("num_states=20", "noise=low")`` as a dictionary, values read as JSON's or Python's where they are.

    Raises:
        ValueError: If one is no pair, or a name comes twice.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name.isidentifier():
            raise ValueError(f"env_args: expected NAME=VALUE, such as num_states=20, got {pair!r}.")
        if name in found:
            raise ValueError(f"env_args: expected each name once, got {name} again.")
        found[name] = _literal(text)
    return found


def _literal(text: str) -> Any:  # noqa: ANN401 - what the text says
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError):
            return read(text)
    return text


def make_environment(env_id: str, env_args: Sequence[str] = ()) -> gym.Env[Any, Any]:
    """Returns the environment of an id.

    Raises:
        ValueError: If Gymnasium cannot make it, with what it says.
    """
    try:
        return gym.make(env_id, **keywords(env_args))
    except Exception as error:  # Gymnasium's, and any of the environment's own
        raise ValueError(f"env_id: {env_id} cannot be made: {error}") from error


def make_policy(name: str, epsilon: float, env: gym.Env[Any, Any]) -> Any:  # noqa: ANN401 - see collect_episodes
    """Returns a policy for ``collect_episodes``; None for random actions.

    Args:
        name: ``"random"``, ``"scripted"`` or the path of a Stable-Baselines3 model.
        epsilon: Share of the steps with a random action instead, in [0, 1].
        env: The environment that it acts in.

    Raises:
        ValueError: If the environment has no scripted policy, the model was trained on other spaces, or ``epsilon``
            would have no effect.
    """
    if epsilon > 0 and (name == "random" or getattr(env.action_space, "n", None) == 1):
        why = (
            "every action is random already" if name == "random" else "there is but one action; its noise is --env-args"
        )
        raise ValueError(f"epsilon: expected 0, since {why}, got {epsilon}.")
    if name == "random":
        return None
    policy = _scripted(env) if name == "scripted" else _model(name, env)
    return policy if epsilon == 0 else _with_random_actions(policy, epsilon, env)


class Counted(gym.Wrapper[Any, Any, Any, Any]):
    """Moves a progress bar on by one at each step; what the environment raises becomes one line that names it.

    Args:
        env: Any environment.
        bar: The bar.

    Raises:
        ValueError: If a step or a reset of the environment raises.
    """

    def __init__(self, env: gym.Env[Any, Any], bar: tqdm[Any]) -> None:
        super().__init__(env)
        self._bar = bar

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:  # noqa: ANN401
        """Takes the step."""
        self._bar.update()
        with self._named("step"):
            return self.env.step(action)

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
        """Resets it."""
        with self._named("reset"):
            return self.env.reset(**settings)

    @contextlib.contextmanager
    def _named(self, call: str) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:  # any that the environment's author may have thought of
            name = self.env.spec.id if self.env.spec else type(self.env.unwrapped).__name__
            raise ValueError(f"env_id: {name} fails in {call}() ({type(error).__name__}: {error}).") from error


def _scripted(env: gym.Env[Any, Any]) -> Any:  # noqa: ANN401
    inner = env.unwrapped
    if not type(inner).__module__.startswith("icrl_envs.metaworld"):
        raise ValueError("policy: only icrl/MetaWorld-v0 and icrl/MetaWorldMRP-v0 have a scripted policy; try random.")
    if isinstance(env.action_space, gym.spaces.Discrete):
        return lambda observation, rng: 0
    from icrl_envs.metaworld.policies import scripted_policy

    act = scripted_policy(inner.domain)  # pyright: ignore[reportAttributeAccessIssue]
    return lambda observation, rng: act(inner.get_state().full)  # pyright: ignore[reportAttributeAccessIssue]


def _model(path: str, env: gym.Env[Any, Any]) -> Any:  # noqa: ANN401
    from icrl_agents.integrations.sb3_models import load_model

    model = load_model(path)
    for name in ("observation_space", "action_space"):
        expected, got = getattr(model, name), getattr(env, name)
        if type(expected) is not type(got) or expected.shape != got.shape or _sizes(expected) != _sizes(got):
            raise ValueError(f"policy: {path} was trained with {name} {expected}, the environment has {got}.")
    return model


def _sizes(space: gym.spaces.Space[Any]) -> list[Any]:
    """What a model was trained for beside the shape: numbers of actions, and spaces inside; not the bounds of a box."""
    if isinstance(space, gym.spaces.Dict):
        return [(name, type(part), part.shape, _sizes(part)) for name, part in space.spaces.items()]
    if isinstance(space, gym.spaces.Discrete):
        return [int(space.n), int(space.start)]
    return space.nvec.tolist() if isinstance(space, gym.spaces.MultiDiscrete) else []


def _with_random_actions(policy: Any, epsilon: float, env: gym.Env[Any, Any]) -> Any:  # noqa: ANN401
    act, own = action_function(policy, env), copy.deepcopy(env.action_space)

    def mixed(observation: Any, rng: np.random.Generator) -> Any:  # noqa: ANN401
        if rng.random() >= epsilon:
            return act(observation, rng)
        own.seed(int(rng.integers(2**31)))
        return own.sample()

    return mixed
