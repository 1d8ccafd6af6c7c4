"""Whether weighted softmax TD contracts, and how fast (arXiv 2605.07333, convergence).

The error of v goes as e ← (I − αMA) e, with the matrices of ``ExpectedUpdate``. Three numbers say what becomes of it:
the bound that kernel diagonality gives, which is sufficient; the ∞-norm, a factor for every single sweep; and the
spectral radius, the rate per sweep in the long run, below 1 exactly where the sweeps converge.
"""

from __future__ import annotations

from numbers import Real
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from icrl_agents.arrays import as_tensor, finite, floating
from icrl_agents.context import Context
from icrl_agents.diagnostics.expected_update import expected_updates
from icrl_agents.diagnostics.finite_chain import FiniteChain
from icrl_agents.error_dynamics import largest_eigenvalue
from icrl_agents.kernels import Kernel
from icrl_agents.notices import warn


class Diagonality(NamedTuple):
    """How much of their attention states keep to themselves, ``(*batch,)``: the least of them and the mean."""

    minimum: Tensor
    mean: Tensor


def kernel_diagonality(matrix: Tensor, mask: Tensor | None = None) -> Diagonality:
    """Kernel diagonality m = min_s M(s, s), and the mean over s.

    Args:
        matrix: M, ``(*batch, S, S)`` from ``attention_matrix``, or ``(*batch, D′, D)`` of an ``ExpectedUpdate``. In
            the former of a context each transition is its own key, so that n visits of a state share its attention;
            the latter counts them as one state.
        mask: The states that count, ``(*batch, S)``; default all. Of a padded batch it is the batch's own, else the
            padding, which keeps nothing to itself, makes the least of them 0; that is warned of.

    Raises:
        ValueError: If the matrix has no entry, no state counts, or one that counts has NaN or inf.

    Example:
        >>> kernel_diagonality(torch.tensor([[0.75, 0.25], [0.5, 0.5]]))
        Diagonality(minimum=tensor(0.5000), mean=tensor(0.6250))
    """
    matrix = floating("matrix", matrix)
    if matrix.ndim < 2 or 0 in matrix.shape[-2:]:
        raise ValueError(f"matrix: expected shape (*batch, S, S) with S ≥ 1, got {tuple(matrix.shape)}.")
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    counted = torch.ones_like(diagonal, dtype=torch.bool) if mask is None else _counted(mask, diagonal)
    if not bool(counted.any(-1).all()):
        raise ValueError("mask: expected at least one state that counts, got none.")
    finite("matrix", diagonal.masked_fill(~counted, 0.0), " on its diagonal")
    if mask is None and bool(_apart(matrix.detach()).any()):
        warn(
            "matrix: counts states that neither listen nor are listened to, as padding; take mask=context.mask.",
            RuntimeWarning,
            stacklevel=2,
        )
    minimum = diagonal.masked_fill(~counted, float("inf")).amin(-1)
    return Diagonality(minimum, diagonal.masked_fill(~counted, 0.0).sum(-1) / counted.sum(-1))


def sufficient_bound(diagonality: Tensor | float, gamma: float, step_size: float = 1.0) -> Tensor:
    """The bound ‖I − αM(I − γP)‖_∞ ≤ 1 − α(2m − 1 − γ): below 1, and the sweeps contract, if m > (1 + γ)/2.

    Sufficient, not necessary. It holds in a context too, if every final observation that is bootstrapped from is
    among the states that are left.

    Args:
        diagonality: m in [0, 1], the least kernel diagonality.
        gamma: γ in [0, 1].
        step_size: α in (0, 1].

    Raises:
        ValueError: If an argument is out of range; for α outside (0, 1] the bound does not hold.

    Example:
        >>> sufficient_bound(0.975, gamma=0.9)
        tensor(0.9500, dtype=torch.float64)
    """
    if not isinstance(step_size, Real) or not 0 < step_size <= 1:
        raise ValueError(f"step_size: expected α in (0, 1], for which the bound holds, got {step_size!r}.")
    if isinstance(gamma, bool) or not isinstance(gamma, Real) or not 0 <= gamma <= 1:
        raise ValueError(f"gamma: expected a discount in [0, 1], got {gamma!r}.")
    m = floating("diagonality", diagonality, integers=True).to(torch.float64)
    if not bool(((m >= 0) & (m <= 1 + 1e-6)).all()):
        raise ValueError(f"diagonality: expected numbers in [0, 1], got {diagonality!r}.")
    return 1.0 - float(step_size) * (2.0 * m - 1.0 - float(gamma))


def contraction_factor(source: FiniteChain | Context, kernel: Kernel, step_size: float = 1.0) -> Tensor:
    """The exact ‖I − αMA‖_∞: no sweep leaves more than this share of the largest error.

    Args:
        source: A process with S states (A = I − γP), or a context.
        kernel: κ = exp g of the score g; see ``icrl_agents.kernels``.
        step_size: α > 0.

    Returns:
        ``()``; of a batch of contexts ``(*batch,)``.

    Raises:
        TypeError: If ``source`` is neither.
    """
    operators = [update.error_operator(step_size) for update in expected_updates(source, kernel)]
    return _over_batch(source, [functional.pad(operator.abs().sum(-1), (0, 1)).amax() for operator in operators])


def spectral_radius(source: FiniteChain | Context, kernel: Kernel, step_size: float = 1.0) -> Tensor:
    """The largest |eigenvalue| of I − αMA on what the sweeps can reach: the geometric rate of the error.

    Arguments and result of ``contraction_factor``. A process with a state that is never visited in the long run has
    radius 1, since no TD error of that state is ever seen.
    """
    operators = [update.td_error_operator(step_size) for update in expected_updates(source, kernel)]
    return _over_batch(source, [largest_eigenvalue(operator) for operator in operators])


def _apart(matrix: Tensor) -> Tensor:
    """Where row and column i are 0, ``(*batch, S)``."""
    count = min(matrix.shape[-2:])
    return (matrix == 0).all(-1)[..., :count] & (matrix == 0).all(-2)[..., :count]


def _counted(mask: Tensor, diagonal: Tensor) -> Tensor:
    mask = as_tensor("mask", mask)
    if mask.dtype != torch.bool or mask.shape not in (diagonal.shape, diagonal.shape[-1:]):
        raise ValueError(
            f"mask: expected booleans of shape {tuple(diagonal.shape)}, got {mask.dtype} of shape {tuple(mask.shape)}."
        )
    return mask.expand_as(diagonal)


def _over_batch(source: FiniteChain | Context, numbers: list[Tensor]) -> Tensor:
    batch = source.mask.shape[:-1] if isinstance(source, Context) else ()
    return torch.stack(numbers).reshape(batch)
