"""Transformers whose weights are written down from a theorem, each with the algorithm it implements."""

from icrl_agents.constructions.linear import average_reward_td, linear_td, residual_gradient, td_lambda
from icrl_agents.constructions.memory import kernel_td, weighted_softmax_td

__all__ = [
    "weighted_softmax_td",
    "kernel_td",
    "linear_td",
    "td_lambda",
    "residual_gradient",
    "average_reward_td",
]
