"""Whether values that a transformer's forward pass gives are a policy's: its fit is asked where that is in doubt."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

from icrl_agents.attention import KernelAttention
from icrl_agents.blocks import PatchedError
from icrl_agents.context import Context
from icrl_agents.divergence import DivergenceError, DivergenceWarning
from icrl_agents.error_dynamics import is_suspect
from icrl_agents.notices import hearing, warn
from icrl_agents.possible_values import check_possible


def judge(
    transformer: Any,  # noqa: ANN401 - an InContextTransformer, which is above
    context: Context,
    queries: Tensor,
    values: Tensor,
    errors: Tensor | None = None,
    rewards: Tensor | None = None,
) -> None:
    """Warns, or raises DivergenceError, as ``fit``, where ``is_suspect`` finds that a looped layer of TD asks it.

    While weights are trained, which may lead out of it, that is a warning too.
    """
    layer: Any = transformer.blocks[0]
    sweeps = getattr(layer, "step_size", 1.0) is not None and len(transformer.blocks) == 1
    if not (sweeps and getattr(layer, "expands", True)):
        return
    bounded = not isinstance(getattr(layer, "attention", None), KernelAttention)
    with hearing() as heard:
        if bounded:
            check_possible(values.detach()[..., None], context)
    if not (heard or is_suspect(context, values, errors, rewards, bounded)):
        return
    try:
        with torch.no_grad(), contextlib.suppress(PatchedError):  # of a layer that is no sweep then
            transformer.fit(context)(queries)
    except DivergenceError:
        if not (torch.is_grad_enabled() and any(weight.requires_grad for weight in transformer.parameters())):
            raise
        text = "the layers diverge on a context: values of trained weights are no policy's; fit says from where."
        warn(text, DivergenceWarning, stacklevel=5)
