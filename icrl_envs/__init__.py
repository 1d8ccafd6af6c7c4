"""Gymnasium environments whose value functions are to be found in context; importing this registers them."""

from icrl_envs.adapter import ProcessEnv
from icrl_envs.chains import boyan_chain, loop_chain
from icrl_envs.fixed_policy import FixedPolicy
from icrl_envs.process import FiniteProcess, Process
from icrl_envs.registration import register_envs
from icrl_envs.rkhs import RKHSProcess

__all__ = [
    "register_envs",
    "ProcessEnv",
    "FixedPolicy",
    "Process",
    "FiniteProcess",
    "RKHSProcess",
    "boyan_chain",
    "loop_chain",
]

register_envs()
