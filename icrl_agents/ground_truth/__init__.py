"""Ground truth: values by many continuations from exact states, to measure value errors against."""

from icrl_agents.ground_truth.errors import Measured, true_centred_msve, true_msve
from icrl_agents.ground_truth.files import kept_truth
from icrl_agents.ground_truth.markov import hidden_share, nearest, unexplained_share
from icrl_agents.ground_truth.states import Restorable, observed, states_along
from icrl_agents.ground_truth.values import GroundTruth, ground_truth, horizon

__all__ = [
    "GroundTruth",
    "ground_truth",
    "kept_truth",
    "horizon",
    "true_msve",
    "true_centred_msve",
    "Measured",
    "states_along",
    "observed",
    "Restorable",
    "unexplained_share",
    "hidden_share",
    "nearest",
]
