"""Rollouts of Stable-Baselines3's PPO, recorded and assessed by the critic (extra ``[sb3]``)."""

from __future__ import annotations

import copy
from typing import Any, NoReturn, cast

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import obs_as_tensor
from torch import Tensor

from icrl_agents.control.rollout import Rollout
from icrl_agents.integrations.sb3_policies import ActorOnly, extracted
from icrl_agents.integrations.sb3_sources import is_same_place, place_of


class Recording(BaseCallback):
    """Records what ``RolloutBuffer`` forgets.

    It comes behind all other callbacks, so that rewards which theirs shape in place are seen, as in the buffer. They
    are copied before Stable-Baselines3 adds the value of a truncated episode's end to them.
    """

    def _on_rollout_start(self) -> None:
        if has_moved(self.model):
            _refuse_moved()
        model = cast(Any, self.model)
        size = model.rollout_buffer.buffer_size
        if model.n_steps != size:
            raise ValueError(
                f"n_steps: expected {size}, as when the model was made, got {model.n_steps}; make another model, or "
                "save this one and load it with n_steps=."
            )
        self.first = copy.deepcopy(model._last_obs)
        self.steps: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.final: dict[tuple[int, int], Any] = {}

    def _on_step(self) -> bool:
        dones, infos = self.locals["dones"], self.locals["infos"]
        cut = [bool(done and info.get("TimeLimit.truncated", False)) for done, info in zip(dones, infos, strict=True)]
        for i in np.flatnonzero(cut):
            if infos[i].get("terminal_observation") is None:
                raise ValueError(
                    f"env: copy {i} cut an episode short (TimeLimit.truncated) without a terminal_observation in its "
                    "info, from which to bootstrap; expected what Stable-Baselines3's VecEnvs give."
                )
            self.final[len(self.steps), int(i)] = copy.deepcopy(infos[i]["terminal_observation"])
        self.steps.append((self.locals["rewards"].copy(), dones & ~np.array(cut), np.array(cut)))
        self.last = self.locals["new_obs"]
        if has_moved(self.model, self.last):
            _refuse_moved()
        return True


class Assessing(BaseCallback):
    """At a rollout's end has the critic assess it, before all other callbacks: they find the advantages in place.

    It notes after each step where the environment is, before they can move it.

    Args:
        record: Of the rollout.
    """

    def __init__(self, record: Recording) -> None:
        super().__init__()
        self._record = record

    def _on_step(self) -> bool:
        model = cast(Any, self.model)
        model.reached, model.calls[:] = (self.locals["new_obs"], place_of(self.training_env)), []
        return True

    def _on_rollout_end(self) -> None:
        model, record = cast(Any, self.model), self._record
        buffer = model.rollout_buffer
        for name in ("gae_lambda", "gamma"):
            own = getattr(buffer, name, getattr(model, name))
            if own != getattr(model, name):  # set there, as by a callback
                setattr(model, name, own)
        _check_kept(buffer, record)
        states = self._encoded(buffer.observations, (buffer.buffer_size, buffer.n_envs))
        following = torch.cat([states[1:], self._encoded(record.last, (1, buffer.n_envs))])
        for (step, i), observation in record.final.items():
            tensor, _ = model.policy.obs_to_tensor(observation)
            following[step, i] = self._features(tensor)[0]
        rollout = Rollout(buffer.n_envs)
        for x, (rewards, terminated, truncated), x_next in zip(states, record.steps, following, strict=True):
            rollout.add(x, rewards, x_next, terminated, truncated)
        assessment = model.critic.assess(rollout.context(model.gamma))
        if isinstance(model.policy, ActorOnly):
            model.policy.hold_encoder()

        def by_step(quantity: Tensor) -> np.ndarray:
            return quantity.reshape(buffer.n_envs, buffer.buffer_size).T.numpy(force=True).astype(np.float32)

        buffer.values, buffer.advantages = by_step(assessment.values), by_step(assessment.advantages)
        buffer.returns = by_step(assessment.returns)
        buffer.rewards = np.stack([rewards for rewards, _, _ in record.steps]).astype(np.float32)

    def _encoded(self, observations: Any, shape: tuple[int, int]) -> Tensor:  # noqa: ANN401 - an array or a dict
        """Features ``(*shape, d)`` of observations."""
        spaces = self.model.observation_space

        def flat(array: np.ndarray, space: Any) -> np.ndarray:  # noqa: ANN401
            return array.reshape(shape[0] * shape[1], *space.shape)

        if isinstance(observations, dict):
            observations = {name: flat(array, spaces[name]) for name, array in observations.items()}  # type: ignore[index]
        else:
            observations = flat(observations, spaces)
        features = self._features(obs_as_tensor(observations, self.model.device))
        return features.reshape(*shape, -1)

    def _features(self, observations: Any) -> Tensor:  # noqa: ANN401
        policy = cast(Any, self.model).policy
        policy.set_training_mode(False)
        with torch.no_grad():
            return extracted(policy, observations, policy.pi_features_extractor)


def _check_kept(buffer: Any, record: Recording) -> None:  # noqa: ANN401 - a rollout buffer
    """Raises ValueError if a buffer of one's own keeps other observations or rewards than it was given."""
    first, kept = record.first, buffer.observations
    pairs = [(first[name], kept[name]) for name in kept] if isinstance(kept, dict) else [(first, kept)]
    same = all(np.array_equal(np.asarray(a, b.dtype).ravel(), b[0].ravel(), b.dtype.kind == "f") for a, b in pairs)
    for (rewards, _, cut), own in zip(record.steps, buffer.rewards, strict=True):  # where cut, a value is added to them
        same = same and np.array_equal(rewards[~cut].astype(own.dtype), own[~cut], equal_nan=True)
    if not same:
        raise ValueError(
            f"rollout_buffer_class: expected one that keeps observations and rewards as they come, got others in a "
            f"{type(buffer).__name__}; change them in a wrapper or, rewards, in a callback: the critic sees that too."
        )


def has_moved(model: Any, observation: Any = None) -> bool:  # noqa: ANN401 - an InContextPPO
    """Whether the environment is known to have moved since it showed ``observation``, by default the last one."""
    last, place = model.reached or (None, [])
    if last is None or last is not (model._last_obs if observation is None else observation):
        return False
    return bool(model.calls) or not is_same_place(place, place_of(model.env))


def _refuse_moved() -> NoReturn:
    raise ValueError(
        "callback: expected the callbacks to leave the environment of the training alone, whose episodes are running, "
        "but one has reset it or made steps; evaluate in another one, as EvalCallback(make_vec_env(...)) does."
    )
