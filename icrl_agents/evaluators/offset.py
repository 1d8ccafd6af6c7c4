"""Any evaluator with its constant offset corrected from the context."""

from __future__ import annotations

from dataclasses import dataclass

from icrl_agents.arrays import check_kind
from icrl_agents.context import Context
from icrl_agents.value_function import Evaluator, ValueFunction


@dataclass(frozen=True)
class OffsetCorrected:
    """Another evaluator's values plus c = Σ_k δ_k / Σ_k (1 − γ_k), at which the context's mean TD error is 0.

    See ``ValueFunction.offset_corrected``. It pays where sweeps are few, γ is near 1 or the weights do not sum to 1,
    as in kernel TD; what it cannot know is how far values away from the context's states are off.

    Args:
        evaluator: Any evaluator of discounted values.

    Example:
        >>> from icrl_agents.evaluators import TabularTD
        >>> context = Context([[0.0]], [1.0], [0.9], [[0.0]])
        >>> round(float(OffsetCorrected(TabularTD(num_sweeps=2)).fit(context)([0.0])), 9)
        10.0
    """

    evaluator: Evaluator

    def __post_init__(self) -> None:
        """Checks the argument."""
        if isinstance(self.evaluator, type) or not callable(getattr(self.evaluator, "fit", None)):
            raise TypeError(f"evaluator: expected an object with fit(context), got {self.evaluator!r}.")

    def fit(self, context: Context) -> ValueFunction:
        """Returns the corrected value function, at every depth.

        Raises:
            TypeError: If the evaluator infers no value function.
            ValueError: If all transitions have γ = 1.
        """
        values = self.evaluator.fit(context)
        check_kind("evaluator: result of fit", values, ValueFunction)
        return values.offset_corrected()
