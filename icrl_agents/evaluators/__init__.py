"""Evaluators: policy-evaluation algorithms on a context, each ``fit(context) -> ValueFunction``."""

from icrl_agents.evaluators.closed_forms import KernelLSTD, MonteCarlo
from icrl_agents.evaluators.linear import AverageRewardTD, LinearTD, ResidualGradient, TDLambda
from icrl_agents.evaluators.lstd import LSTD
from icrl_agents.evaluators.nystrom import Nystrom
from icrl_agents.evaluators.offset import OffsetCorrected
from icrl_agents.evaluators.sweeps import KernelTD, TabularTD, WeightedSoftmaxTD

__all__ = [
    "WeightedSoftmaxTD",
    "KernelTD",
    "TabularTD",
    "LinearTD",
    "TDLambda",
    "ResidualGradient",
    "AverageRewardTD",
    "LSTD",
    "KernelLSTD",
    "MonteCarlo",
    "Nystrom",
    "OffsetCorrected",
]
