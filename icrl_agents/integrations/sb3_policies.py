"""Stable-Baselines3's actor-critic policies without their value network (extra ``[sb3]``)."""

from __future__ import annotations

import copy
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.policies import (
    ActorCriticCnnPolicy,
    ActorCriticPolicy,
    BaseModel,
    MultiInputActorCriticPolicy,
)
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import Tensor, nn

from icrl_agents.collection.recorder import beyond_single
from icrl_agents.control.critic import Critic


def extracted(policy: BaseModel, observations: Any, extractor: nn.Module) -> Tensor:  # noqa: ANN401
    """The features ``(m, d)`` of observations: vectors that float32 would round as they are, others in float32."""
    space = policy.observation_space
    if isinstance(space, spaces.Box) and beyond_single(space) and isinstance(extractor, FlattenExtractor):
        return observations.double().flatten(1)
    return BaseModel.extract_features(policy, observations, extractor)  # type: ignore[arg-type]


class ActorOnly(ActorCriticPolicy):
    """Takes the value network out of an actor-critic policy, leaving the actor as it was initialised."""

    critic: Critic | None = None

    def _build(self, lr_schedule: Any) -> None:  # noqa: ANN401
        super()._build(lr_schedule)
        self.value_net = self.mlp_extractor.value_net = nn.Sequential()
        self.vf_features_extractor = self.pi_features_extractor
        self.encoder = copy.deepcopy(self.pi_features_extractor).requires_grad_(False)  # of the critic's last fit
        rate = lr_schedule(1)
        self.optimizer = self.optimizer_class(self.parameters(), lr=rate, **self.optimizer_kwargs)  # type: ignore[call-arg]

    def hold_encoder(self) -> None:
        """Keeps the feature extractor as it is now, for queries of a critic that is fitted on its features."""
        self.encoder.load_state_dict(self.pi_features_extractor.state_dict())

    def forward(self, obs: Any, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
        """Actions, zeros in place of values (they follow at the end of the rollout), and log-probabilities."""
        distribution = self.get_distribution(obs)
        actions = distribution.get_actions(deterministic=deterministic)
        log_prob = distribution.log_prob(actions)
        return actions.reshape(-1, *self.action_space.shape), _zeros(log_prob), log_prob  # type: ignore[misc]

    def evaluate_actions(self, obs: Any, actions: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:  # noqa: ANN401
        """Zeros in place of values, log-probabilities and entropies."""
        distribution = self.get_distribution(obs)
        log_prob = distribution.log_prob(actions)
        return _zeros(log_prob), log_prob, distribution.entropy()

    def predict_values(self, obs: Any) -> Tensor:  # noqa: ANN401
        """Values ``(m, 1)`` by the critic's last fit, with the features of that time; zeros before the first rollout.

        Raises:
            ValueError: If the policy was saved and loaded alone: its critic belongs to the model.
        """
        if self.critic is None:
            raise ValueError("policy: has no critic, so no values; save and load the InContextPPO model instead of it.")
        self.encoder.eval()  # as it was for the states of the fit, whatever mode training has left
        states = extracted(self, obs, self.encoder)
        return self.critic(states)[:, None]


class ActorCnnPolicy(ActorOnly, ActorCriticCnnPolicy):
    """The actor of ``CnnPolicy``."""


class ActorMultiInputPolicy(ActorOnly, MultiInputActorCriticPolicy):
    """The actor of ``MultiInputPolicy``."""


def _zeros(like: Tensor) -> Tensor:
    return torch.zeros_like(like)[:, None]
