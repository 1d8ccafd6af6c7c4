"""The value function that an evaluator infers from a context."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any, Protocol, Self, cast

import torch
from torch import Tensor

from icrl_agents.arrays import finite, floating
from icrl_agents.attention import BoundAttention
from icrl_agents.context import Context, check_context
from icrl_agents.divergence import DivergenceError, DivergenceWarning, check_finite
from icrl_agents.possible_values import check_possible
from icrl_agents.pure import deep_copied
from icrl_agents.weighted_context import read_points

__all__ = ["Basis", "DivergenceError", "DivergenceWarning", "Evaluator", "ValueFunction", "as_queries"]

Basis = Callable[[Tensor], Tensor]


class Evaluator(Protocol):
    """A function operator: a context in, a value function out."""

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function inferred from ``context``: a new one on each call, which leaves it as it is."""
        ...


class ValueFunction:
    """A value function v: states ``(*batch, m, d)`` (or one state ``(d,)``) to values ``(*batch, m)`` (or ``()``).

    Whatever the evaluator, the value is an expansion v_ℓ(x) = Σ_t Σ_k b_tk(x) w_tk^ℓ: kernels of the context's
    transitions for softmax and kernel TD, the features themselves for linear TD. So a query costs one row of the
    basis, never the sweeps or layers again.

    Args:
        bases: Functions ``(*batch, m, d) -> (*batch, m, k)``.
        coefficients: For each basis, w^ℓ for depths ℓ = 0 … L, shape ``(*batch, L+1, k)``.
        context: The context it was inferred from, kept as it is now.
        depth: The depth read by ``__call__``, default L.
        average_rewards: For average-reward evaluators, r̄_ℓ, shape ``(*batch, L+1)``.
        approximation_error: Where the kernel was approximated, the estimated relative error of the values; else None.

    Raises:
        DivergenceError: If a coefficient is not finite, naming the first such sweep.
    """

    def __init__(
        self,
        bases: Sequence[Basis],
        coefficients: Sequence[Tensor],
        context: Context,
        depth: int | None = None,
        average_rewards: Tensor | None = None,
        approximation_error: float | None = None,
    ) -> None:
        self.context = context.fitted()
        self.average_rewards, self.approximation_error = average_rewards, approximation_error
        self._bases, self._coefficients = tuple(bases), tuple(coefficients)
        self.max_depth = self._coefficients[0].shape[-2] - 1
        self.depth = self.max_depth if depth is None else self._check_depth(depth)
        for each in self._coefficients:
            check_finite(each)
        normalised = all(isinstance(basis, BoundAttention) and basis.normalised for basis in self._bases)
        self._bounded = normalised and average_rewards is None

    def __deepcopy__(self, known: dict[int, Any]) -> Self:
        """A copy whose gradients are those of the original."""
        return deep_copied(self, known)

    def __repr__(self) -> str:
        """Its depth and its context."""
        return f"{type(self).__name__}(depth={self.depth} of {self.max_depth}, context={self.context!r})"

    def __call__(self, states: Any) -> Tensor:  # noqa: ANN401
        """Values of ``states (*batch, m, d)`` at this depth, ``(*batch, m)``.

        States of a narrower floating type than the context's are promoted; lists of numbers take the context's. Values
        that no policy has, beyond twice r_max/(1 − γ) or far below 0 where no reward is (or above), under attention
        that is normalised, are warned of (``DivergenceWarning``).

        Raises:
            TypeError: If the states are not float32 or float64, or float64 where the context is float32.
            ValueError: If their shape is another or one of them is not finite.
            DivergenceError: If a value overflows.
        """
        return self.by_depth(states, [self.depth])[..., 0]

    def at_depth(self, depth: int) -> Self:
        """The value function after ``depth`` sweeps or layers, 0 ≤ depth ≤ ``max_depth``."""
        shallower = copy.copy(self)
        shallower.depth = self._check_depth(depth)
        return shallower

    def by_depth(self, states: Any, depths: Iterable[int] | None = None) -> Tensor:  # noqa: ANN401
        """Values after each of several depths at once, ``(*batch, m, len(depths))``; default 0 … ``max_depth``."""
        if not (depths is None or isinstance(depths, Iterable)) or isinstance(depths, (set, frozenset)):  # in no order
            raise TypeError(f"depths: expected a list of integers, got {depths!r}; at_depth takes a single one.")
        chosen = list(range(self.max_depth + 1)) if depths is None else [self._check_depth(depth) for depth in depths]
        queries, single = self._queries(states)
        terms = [
            _expanded(basis, queries, coefficients[..., chosen, :].to(queries).mT)
            for basis, coefficients in zip(self._bases, self._coefficients, strict=True)
        ]
        values = _checked(torch.stack(terms).sum(0), "values of these states")
        if self._bounded:
            check_possible(values.detach(), self.context)
        return values[..., 0, :] if single else values

    def td_errors(self, context: Context) -> Tensor:
        """TD errors δ_k = R_k + γ_k v(x′_k) − v(x_k) on ``context``, ``(*batch, n)``; none of differential ones."""
        check_context(context)
        check_discounted("td_errors", self)
        return _checked(context.td_errors(self(read_points(context))), "TD errors on this context")

    def offset_corrected(self) -> Self:
        """The same values plus the constant at which the mean TD error of their context is 0, at every depth.

        c_ℓ = Σ_k δ_k / Σ_k (1 − γ_k)    with δ_k = R_k + γ_k v_ℓ(x′_k) − v_ℓ(x_k) ,

        which is mean(δ) / (1 − γ) where nothing terminates (the constant offset of arXiv 2605.09727). Sweeps from v = 0
        find a constant last: under softmax weights it lacks γ^ℓ of itself after ℓ sweeps. Differences of values, and
        so advantages and rankings, stay as they are. A context without transitions has c = 0.

        Raises:
            DivergenceError: If the constant overflows.
            ValueError: If all transitions of a context have γ = 1, or if rewards are counted from their average: a
                constant changes no TD error there; or if the context's states were written into after the fit.
        """
        check_discounted("offset_corrected", self)
        check_context(self.context)
        mask = self.context.mask
        missing = (1.0 - self.context.discounts).masked_fill(~mask, 0.0).sum(-1, keepdim=True)
        if bool(((missing == 0) & mask.any(-1, keepdim=True)).any()):
            raise ValueError("offset_corrected: expected a transition with γ < 1 in every context, got none.")
        missing = missing.masked_fill(missing == 0, 1.0)
        values = self.by_depth(read_points(self.context))
        errors = [self.context.td_errors(values[..., depth]) / missing for depth in range(self.max_depth + 1)]
        offsets = _checked(torch.stack(errors, dim=-2).sum(-1), "offset_corrected: constants")[..., None]
        corrected = copy.copy(self)
        corrected._bases, corrected._coefficients = (*self._bases, _constant), (*self._coefficients, offsets)
        return corrected

    def effective_sample_size(self, states: Any) -> Tensor:  # noqa: ANN401
        """(Σ_k |K_k|)² / Σ_k K_k² per state, ``(*batch, m)``: how many transitions a value rests on, 0 to n.

        It is n where a state listens to all transitions alike, and its value is no more than the context's average:
        so under a dot-product score, far from every key. Of a stack of different layers it is the smallest of theirs.

        Raises:
            TypeError: If the value function is not a kernel expansion (linear TD, LSTD).
        """
        attentions = [basis for basis in self._bases if basis is not _constant]
        if not all(isinstance(basis, BoundAttention) for basis in attentions):
            raise TypeError("effective_sample_size: defined for kernel expansions; this value function is linear.")
        queries, single = self._queries(states)
        sizes = [cast(BoundAttention, basis).effective_sample_size(queries) for basis in attentions]
        size = torch.stack(sizes).amin(0)
        return size[..., 0] if single else size

    def _queries(self, states: Any) -> tuple[Tensor, bool]:  # noqa: ANN401
        queries = as_queries("states", states, self.context)
        single, batch = queries.ndim == 1, tuple(self.context.points.shape[:-2])
        try:
            if 0 in torch.broadcast_shapes(queries.shape[:-2], batch):
                raise RuntimeError
        except RuntimeError:
            expected = f"(m, {self.context.dim}) or {(*batch, 'm', self.context.dim)}".replace("'", "")
            raise ValueError(f"states: expected shape {expected}, got {tuple(queries.shape)}.") from None
        return (queries[None] if single else queries), single

    def _check_depth(self, depth: int) -> int:
        if isinstance(depth, bool) or not isinstance(depth, Integral) or not 0 <= depth <= self.max_depth:
            raise ValueError(
                f"depth: expected an integer from 0 to {self.max_depth}, got {depth!r}{self._one_depth()}."
            )
        return int(depth)

    def _one_depth(self) -> str:
        """Why there is no depth but 0, and how to have others; empty where there are others."""
        if self.max_depth > 0:
            return ""
        return (
            "; of num_sweeps=math.inf, of a closed form such as LSTD and of no sweeps at all, the value at depth 0 is "
            "the only one: fit with num_sweeps=L for the values after each of 0 … L sweeps"
        )


def check_discounted(name: str, values: Any) -> None:  # noqa: ANN401 - of an evaluator of one's own, too
    """Raises ValueError if ``values`` are differential: discounted TD errors, offsets or advantages are not theirs."""
    if getattr(values, "average_rewards", None) is not None:
        raise ValueError(f"{name}: expected a discounted evaluator, got differential values, as of AverageRewardTD.")


def _checked(numbers: Tensor, what: str) -> Tensor:
    """Returns ``numbers``; raises DivergenceError if one is not finite."""
    if not bool(torch.isfinite(numbers.detach()).all()):
        raise DivergenceError(f"{what} overflow {numbers.dtype}; scale the rewards or the states down.")
    return numbers


def _constant(queries: Tensor) -> Tensor:
    """The basis function 1, ``(*batch, m, 1)``."""
    return torch.ones_like(queries[..., :1])


def _expanded(basis: Basis, queries: Tensor, coefficients: Tensor) -> Tensor:
    """Σ_k b_k(x) w_k, ``(*batch, m, c)``."""
    return basis.expand(queries, coefficients) if isinstance(basis, BoundAttention) else basis(queries) @ coefficients


def as_queries(name: str, states: Any, context: Context) -> Tensor:  # noqa: ANN401
    """Returns states to ask about, ``(..., d)``, in the floating type and on the device of ``context``.

    Raises:
        TypeError: If they are not float32 or float64, would be rounded to the context's type, or are under vmap.
        ValueError: If their last dimension is not d or one of them is not finite.
    """
    check_context(context, arranged=False)
    queries = floating(name, states)
    if isinstance(states, (list, tuple)):
        queries = queries.to(context.dtype)
    if torch.promote_types(queries.dtype, context.dtype) != context.dtype:
        raise TypeError(
            f"{name}: {queries.dtype} would be rounded, since the context is {context.dtype}; pass {context.dtype} "
            f"states, or make the context {queries.dtype} with .to(dtype={queries.dtype})."
        )
    if queries.ndim == 0 or queries.shape[-1] != context.dim:
        raise ValueError(f"{name}: expected shape (..., m, {context.dim}), got {tuple(queries.shape)}.")
    try:
        finite(name, queries)
    except RuntimeError as error:
        if "vmap" not in str(error):
            raise
        raise TypeError(
            f"{name}: torch.func.vmap does not show the numbers, which are looked at; ask for all at once, v(states), "
            "whose rows do not depend on each other: the gradients of v(states).sum() are those of each."
        ) from error
    return queries.to(context.points)
