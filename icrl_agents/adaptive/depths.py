"""Evaluators as deep as they have values: one that diverges in the end is judged by what it is before that."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from numbers import Integral
from typing import Any, NamedTuple, cast

from icrl_agents.arrays import check_kind
from icrl_agents.context import Context
from icrl_agents.evaluators import OffsetCorrected
from icrl_agents.notices import hearing
from icrl_agents.transformer import InContextTransformer
from icrl_agents.value_function import DivergenceError, Evaluator, ValueFunction


class Fitted(NamedTuple):
    """An evaluator's value function of a context, the warnings on the way, and whether it diverges if it is deeper."""

    values: ValueFunction
    caught: list[Warning]
    cut: bool


def fit_deepest(evaluator: Evaluator, context: Context, depths: Iterable[int]) -> Fitted | None:
    """Fits ``evaluator`` as it is or, where it diverges, with fewer sweeps or layers: the most of ``depths`` that hold.

    Returns:
        What was fitted; None where it diverges at every depth, or has one only.

    Raises:
        TypeError: If the evaluator infers no value function.
    """
    for depth in (None, *sorted(set(depths), reverse=True)):
        tried = evaluator if depth is None else shallower(evaluator, int(depth))
        if tried is None:
            continue
        with hearing() as caught:
            try:
                values = tried.fit(context)
            except DivergenceError:
                continue
        check_kind("evaluators: result of fit", values, ValueFunction)
        return Fitted(values, caught, depth is not None)
    return None


def shallower(evaluator: Evaluator, depth: int) -> Evaluator | None:
    """The same evaluator with ``depth`` sweeps or layers; None where it has no more anyway, or no such depth."""
    if isinstance(evaluator, OffsetCorrected):
        inner = shallower(evaluator.evaluator, depth)
        return None if inner is None else OffsetCorrected(inner)
    if isinstance(evaluator, InContextTransformer):
        loops, rest = divmod(depth, len(evaluator.blocks))
        return None if rest or loops >= evaluator.loops else InContextTransformer(list(evaluator.blocks), loops)
    sweeps = getattr(evaluator, "num_sweeps", None)
    if not dataclasses.is_dataclass(evaluator) or not isinstance(sweeps, Integral) or depth >= int(sweeps):
        return None
    return cast(Evaluator, dataclasses.replace(cast(Any, evaluator), num_sweeps=depth))
