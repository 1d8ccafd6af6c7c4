"""What can be measured about an evaluator: value errors, TD losses, attention and its contraction."""

from icrl_agents.diagnostics.contraction import (
    Diagonality,
    contraction_factor,
    kernel_diagonality,
    spectral_radius,
    sufficient_bound,
)
from icrl_agents.diagnostics.distances import attention_distance, value_distance, value_row_distance
from icrl_agents.diagnostics.emergence import (
    attention_by_layer,
    context_diagonality,
    implicit_weight_similarity,
    sensitivity_similarity,
    sign_pattern,
    sign_rate,
    value_difference,
    value_weights,
)
from icrl_agents.diagnostics.errors import centred_msve, msve, relative_centred_msve, relative_msve, td_loss
from icrl_agents.diagnostics.expected_update import ExpectedUpdate, attention_matrix, expected_update
from icrl_agents.diagnostics.neu import mean_updates, neu

__all__ = [
    "msve",
    "relative_msve",
    "centred_msve",
    "relative_centred_msve",
    "td_loss",
    "attention_matrix",
    "Diagonality",
    "kernel_diagonality",
    "sufficient_bound",
    "contraction_factor",
    "spectral_radius",
    "ExpectedUpdate",
    "expected_update",
    "neu",
    "mean_updates",
    "sign_pattern",
    "sign_rate",
    "value_weights",
    "value_distance",
    "value_row_distance",
    "attention_distance",
    "attention_by_layer",
    "context_diagonality",
    "value_difference",
    "implicit_weight_similarity",
    "sensitivity_similarity",
]
