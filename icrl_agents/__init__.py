"""In-context evaluator agents: ``fit(context)`` returns a value function, without a weight update.

Names are imported when they are first used, so that ``import icrl_agents`` does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icrl_agents import adaptive, constructions, control, diagnostics, evaluators, kernels, layers
    from icrl_agents.collection import collect, collect_episodes
    from icrl_agents.context import Context
    from icrl_agents.datasets import load_episodes, save_episodes
    from icrl_agents.episode import Episode
    from icrl_agents.pretraining import PretrainConfig, PretrainResult, pretrain
    from icrl_agents.transformer import InContextTransformer
    from icrl_agents.value_function import DivergenceError, Evaluator, ValueFunction

__all__ = [
    "collect",
    "collect_episodes",
    "load_episodes",
    "save_episodes",
    "Context",
    "Episode",
    "Evaluator",
    "ValueFunction",
    "DivergenceError",
    "InContextTransformer",
    "PretrainConfig",
    "PretrainResult",
    "pretrain",
    "adaptive",
    "constructions",
    "control",
    "diagnostics",
    "evaluators",
    "kernels",
    "layers",
]

_MODULES = {
    "collect": "collection",
    "collect_episodes": "collection",
    "load_episodes": "datasets",
    "save_episodes": "datasets",
    "Context": "context",
    "Episode": "episode",
    "InContextTransformer": "transformer",
    "PretrainConfig": "pretraining",
    "PretrainResult": "pretraining",
    "pretrain": "pretraining",
    "DivergenceError": "value_function",
    "Evaluator": "value_function",
    "ValueFunction": "value_function",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Imports a public name on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """The public names."""
    return __all__
