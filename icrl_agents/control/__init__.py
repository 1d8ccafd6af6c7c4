"""Reinforcement-learning loops whose critic is any evaluator, fitted in context instead of trained.

``ppo`` for any Gymnasium environment, ``policy_iteration`` for finite MDPs; Stable-Baselines3's own PPO with such a
critic is ``icrl_agents.integrations.sb3.InContextPPO``.
"""

from icrl_agents.control.actor import Actor
from icrl_agents.control.advantages import generalised_advantages
from icrl_agents.control.collector import EpisodeEnd
from icrl_agents.control.critic import Assessment, Critic
from icrl_agents.control.defaults import default_evaluator
from icrl_agents.control.features import quadratic_features
from icrl_agents.control.finite_mdp import Experience, FiniteMDP, Optimum
from icrl_agents.control.policy_iteration import PolicyIteration, policy_iteration
from icrl_agents.control.ppo import PPOConfig, PPOResult, ppo

__all__ = [
    "ppo",
    "PPOConfig",
    "PPOResult",
    "EpisodeEnd",
    "Actor",
    "Critic",
    "Assessment",
    "generalised_advantages",
    "quadratic_features",
    "default_evaluator",
    "policy_iteration",
    "PolicyIteration",
    "FiniteMDP",
    "Experience",
    "Optimum",
]
