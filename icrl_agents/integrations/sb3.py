"""Stable-Baselines3's PPO with an in-context critic in place of the value network (extra ``[sb3]``)."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np

from icrl_agents.arrays import check_kind
from icrl_agents.control.critic import Critic, check_evaluator
from icrl_agents.control.defaults import default_evaluator
from icrl_agents.control.features import Features
from icrl_agents.control.telling import calls_of
from icrl_agents.value_function import Evaluator

try:
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback
    from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy

    from icrl_agents.integrations.sb3_policies import ActorCnnPolicy, ActorMultiInputPolicy, ActorOnly
    from icrl_agents.integrations.sb3_rollouts import Assessing, Recording, has_moved
    from icrl_agents.integrations.sb3_sources import are_others, environments_in, place_of, source_of, stepped
except ImportError as error:
    raise ImportError(
        f"icrl_agents.integrations.sb3 needs Stable-Baselines3 ({error}); install it with: pip install 'icrl[sb3]', "
        "in a clone of the repository pip install '.[sb3]'."
    ) from error

_OF_CRITIC = ("evaluator", "gae_lambda", "window", "features")
"""What the model and its critic both have."""


class InContextPPO(PPO):
    """PPO whose critic is any evaluator: fitted anew on every rollout, without a value network or its loss.

    Everything else is Stable-Baselines3's: the actor (of the same first weights at the same ``seed``), callbacks,
    VecEnvs, normalisation, logging, ``save`` and ``load``. At the end of a rollout the evaluator is fitted on its
    transitions; values, advantages and returns in ``rollout_buffer`` are then those of the in-context value function.
    Its states are what the policy's feature extractor makes of observations: vectors as they are, images and
    dictionaries encoded. Truncated episodes bootstrap from their final observation, terminated ones do not. An
    environment must return a new array at each step: Stable-Baselines3 hands the final one on after the reset, without
    a copy.

    ``save`` keeps the critic's transitions as tensors beside the actor's weights, ``load`` fits the evaluator on them
    again, so that ``predict_values`` goes on as it was; before the first rollout values are 0, and so they are in
    another environment than before, by ``set_env`` or ``load(file, env=...)``: transitions of the former are forgotten.
    A file knows its environment by ids, classes, wrappers and arguments. What belongs to a value network has no effect,
    and is warned of: ``vf_coef``, ``clip_range_vf``, and ``vf`` layers in ``net_arch``.

    Args:
        policy: ``"MlpPolicy"``, ``"CnnPolicy"``, ``"MultiInputPolicy"``, all without a value network. An actor-critic
            class of your own keeps its value network, which is neither trained nor asked.
        env: An environment, a VecEnv or an id.
        evaluator: Anything with ``fit(context)``; by default ``icrl_agents.control.default_evaluator()``.
        window: Number of rollouts that the context holds, ≥ 1; under ``VecNormalize`` each as it was normalised then.
        features: From standardised states ``(m, d)`` to features, such as ``control.quadratic_features`` for ``LSTD``.
        **settings: Every other argument of ``stable_baselines3.PPO``.

    Raises:
        TypeError: If ``evaluator`` has no ``fit``.
        ValueError: If ``window`` is not an integer ≥ 1, or is larger with a feature extractor that is trained; or if
            discrete actions do not start at 0, from where Stable-Baselines3 counts them whatever their space says; in
            ``learn``, if a callback has moved ``env``, as where it evaluates in it.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {}  # filled below, by the policies of this module
    reached: tuple[Any, list[Any]] | None = None
    """What the environment last showed to the training, and its place then."""
    calls: list[str]
    """What else has been called of the environments since, while ``learn`` lasts."""

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: Any,  # noqa: ANN401 - what Stable-Baselines3 takes
        evaluator: Evaluator | None = None,
        *,
        window: int = 1,
        features: Features | None = None,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        self.evaluator = default_evaluator() if evaluator is None else check_evaluator(evaluator)
        self.window, self.features, self.calls = window, features, []
        _warn_of_value_network(settings)
        super().__init__(policy, env, **settings)

    def _setup_model(self) -> None:
        if np.any(getattr(self.action_space, "start", 0)):
            raise ValueError(
                f"env: expected discrete actions from 0 on, as Stable-Baselines3 takes them, got {self.action_space}; "
                "shift them, for instance with gymnasium.wrappers.TransformAction."
            )
        super()._setup_model()
        self.vf_coef = 0.0  # the loss of a class that keeps its value network
        self.critic = self._new_critic()
        self.critic.source = source_of(self.env)

    def _new_critic(self, **changed: Any) -> Critic:  # noqa: ANN401 - settings of it
        settings = {name: getattr(self, name) for name in _OF_CRITIC} | changed
        critic = Critic(settings.pop("evaluator"), **settings)
        extractor = self.policy.pi_features_extractor
        trained = any(weight.requires_grad for weight in extractor.parameters()) or any(
            True for _ in extractor.buffers()
        )
        if critic.window > 1 and trained:
            raise ValueError(
                f"window: expected 1 with a feature extractor that is trained, got {critic.window}; the states of "
                "earlier rollouts would be those of another network."
            )
        return critic

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401
        """Sets an attribute; a setting of the critic is checked, and holds from the next rollout on."""
        if name == "critic":
            check_kind(name, value, Critic)
            if isinstance(self.policy, ActorOnly):
                self.policy.critic = value
        if name in _OF_CRITIC and "critic" in vars(self):
            setattr(self.critic, name, getattr(self._new_critic(**{name: value}), name))
        if name in ("gae_lambda", "gamma") and "critic" in vars(self):
            setattr(self.rollout_buffer, name, value)
        super().__setattr__(name, value)

    def set_env(self, env: Any, force_reset: bool = True) -> None:  # noqa: ANN401 - what Stable-Baselines3 takes
        """Goes on in ``env``; the critic forgets transitions of another environment."""
        before = self.env
        super().set_env(env, force_reset)
        self.reached = None
        if before is not None and stepped(before) != stepped(self.env):
            self.critic.forget()
        self._forget_another()

    def set_parameters(self, *given: Any, **settings: Any) -> None:  # noqa: ANN401 - what Stable-Baselines3 takes
        """Takes over weights and the critic, but for transitions of another environment than its own."""
        super().set_parameters(*given, **settings)
        self._forget_another()

    def _forget_another(self) -> None:
        own = source_of(self.env)
        if are_others(self.critic.source, own):
            self.critic.forget()
        self.critic.source = own or self.critic.source

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        names, others = super()._get_torch_save_params()
        return [*names, "critic"], others  # by its state_dict, which is loaded as tensors and numbers alone

    def _init_callback(self, callback: Any, progress_bar: bool = False) -> BaseCallback:  # noqa: ANN401
        given = callback if isinstance(callback, list) else [callback]
        converted = [each if isinstance(each, BaseCallback) else ConvertCallback(each) for each in given]
        record = Recording()
        return super()._init_callback([Assessing(record), *converted, record], progress_bar)

    def learn(self, *given: Any, **settings: Any) -> Self:  # noqa: ANN401 - what Stable-Baselines3 takes
        """As ``PPO`` does; raises ValueError of callbacks that move the environment, where it is in this process."""
        with calls_of(environments_in(self.env)) as self.calls:
            return super().learn(*given, **settings)

    def save(self, path: Any, exclude: Any = None, include: Any = None) -> None:  # noqa: ANN401 - as Stable-Baselines3's
        """As ``PPO`` does, with the settings that the critic has now; warns of those that are left out."""
        for name in _OF_CRITIC:
            super().__setattr__(name, getattr(self.critic, name))
        if missing := sorted({*_OF_CRITIC, "gamma"} & {*(exclude or ())} - {*(include or ())}):
            warnings.warn(
                f"exclude: {', '.join(missing)} will be missing in the file, and be the default where it is loaded; "
                "pass them to load then.",
                UserWarning,
                stacklevel=2,
            )
        super().save(path, exclude, include)

    def _setup_learn(self, *given: Any, **settings: Any) -> Any:  # noqa: ANN401 - what Stable-Baselines3 takes
        last, _ = self.reached or (None, None)
        if has_moved(self) or last is not self._last_obs:  # as by an evaluation in it since, or where a callback or an
            self._last_obs = None  # error has ended the last step: an episode begins, not to go on from elsewhere
        begun = super()._setup_learn(*given, **settings)
        self.reached, self.calls[:] = (self._last_obs, place_of(self.env)), []
        return begun

    def collect_rollouts(self, env: Any, callback: Any, *given: Any, **settings: Any) -> bool:  # noqa: ANN401
        """As ``PPO`` does; raises ValueError of a callback without those by which ``learn`` has rollouts assessed."""
        if not any(isinstance(each, Assessing) for each in getattr(callback, "callbacks", ())):
            raise ValueError(
                "callback: expected what learn makes of callbacks, which has the critic assess rollouts; call "
                "learn, or pass model._init_callback(callback)."
            )
        return super().collect_rollouts(env, callback, *given, **settings)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "reached", "calls"]

    def train(self) -> None:
        """Updates the actor; logs the loss of the in-context values, and how often the critic diverged."""
        super().train()
        errors = self.rollout_buffer.returns - self.rollout_buffer.values
        self.logger.record("train/value_loss", float(np.square(errors).mean()))
        self.logger.record("train/critic_divergences", self.critic.divergences)


InContextPPO.policy_aliases = {
    "MlpPolicy": ActorOnly,
    "CnnPolicy": ActorCnnPolicy,
    "MultiInputPolicy": ActorMultiInputPolicy,
}


def _warn_of_value_network(settings: dict[str, Any]) -> None:
    """Warns of settings that only a value network would read."""
    given = [name for name in ("vf_coef", "clip_range_vf") if settings.get(name)]
    layers = (settings.get("policy_kwargs") or {}).get("net_arch")
    if isinstance(layers, dict) and layers.get("vf"):
        given.append("policy_kwargs['net_arch']['vf']")
    if given:
        warnings.warn(
            f"{', '.join(given)}: without effect, since InContextPPO has no value network; leave out, or take PPO.",
            UserWarning,
            stacklevel=3,
        )
