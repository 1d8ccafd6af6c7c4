"""Layers: each applied once is one step of the algorithm that its weights spell out."""

from icrl_agents.layers.linear_attention import LinearAttentionLayer
from icrl_agents.layers.memory import DualHeadLayer, TemporalShiftLayer

__all__ = ["DualHeadLayer", "TemporalShiftLayer", "LinearAttentionLayer"]
