"""Layers: each applied once is one step of the algorithm that its weights spell out."""

from icrl_agents.layers.full import FullAttentionLayer
from icrl_agents.layers.lifting import lifted_features, lifted_score
from icrl_agents.layers.linear_attention import LinearAttentionLayer
from icrl_agents.layers.memory import DualHeadLayer, TemporalShiftLayer
from icrl_agents.layers.multihead import MultiheadLayer, export_multihead_attention

__all__ = [
    "DualHeadLayer",
    "TemporalShiftLayer",
    "LinearAttentionLayer",
    "FullAttentionLayer",
    "MultiheadLayer",
    "export_multihead_attention",
    "lifted_features",
    "lifted_score",
]
