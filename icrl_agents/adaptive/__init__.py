"""Kernels that adapt in context: a bank of evaluators, mixed per context by held-out error, without a weight update."""

from icrl_agents.adaptive.bank import RelevanceTD, default_bank
from icrl_agents.adaptive.choice import Candidate, Choice
from icrl_agents.adaptive.evaluator import AdaptiveTD, AdaptiveValueFunction

__all__ = ["AdaptiveTD", "AdaptiveValueFunction", "Candidate", "Choice", "RelevanceTD", "default_bank"]
