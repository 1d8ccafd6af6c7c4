"""Pretraining of in-context transformers on random processes, from random weights.

``pretrain`` and its result are imported when they are first used, so that the configuration does not load torch.
"""

from typing import TYPE_CHECKING, Any

from icrl_agents.pretraining.config import PretrainConfig

if TYPE_CHECKING:
    from icrl_agents.pretraining.loop import PretrainResult, pretrain
    from icrl_agents.pretraining.measurements import TrainingRow

__all__ = ["PretrainConfig", "PretrainResult", "TrainingRow", "pretrain"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Imports a public name on first use."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'measurements' if name == 'TrainingRow' else 'loop'}"), name)
