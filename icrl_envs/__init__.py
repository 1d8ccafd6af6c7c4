"""Gymnasium environments whose value functions are to be found in context; importing this registers them."""

from icrl_envs.adapter import ProcessEnv
from icrl_envs.batches import FiniteBatch
from icrl_envs.chains import boyan_chain, boyan_chains, loop_chain, loop_chains
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
    "FiniteBatch",
    "RKHSProcess",
    "boyan_chain",
    "loop_chain",
    "boyan_chains",
    "loop_chains",
]

register_envs()
