"""Finite processes, of one's own too, as what a diagnosis is made of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from icrl_agents.arrays import as_tensor, reals
from icrl_envs import arguments
from icrl_envs.arrays import chain_arrays

_ROWS, _ROUNDED_ROWS = 1e-8, 1e-5
"""How far from 1 the sum of a distribution may be, in float64 and in a narrower type."""


class FiniteChain(Protocol):
    """What is asked of a process with S states, for instance an ``icrl_envs.FiniteProcess``."""

    @property
    def transition_matrix(self) -> Any:  # noqa: ANN401 - anything array-like, here and below
        """P, ``(S, S)``."""
        ...

    @property
    def rewards(self) -> Any:  # noqa: ANN401
        """The expected reward r, ``(S,)``."""
        ...

    @property
    def features(self) -> Any:  # noqa: ANN401
        """Φ, ``(S, d)``."""
        ...

    @property
    def gamma(self) -> float:
        """γ in [0, 1]."""
        ...

    def stationary_distribution(self) -> Any:  # noqa: ANN401
        """μ, ``(S,)``."""
        ...


class CheckedChain(NamedTuple):
    """The parts of a ``FiniteChain``, in float64, and γ."""

    transition_matrix: Tensor
    rewards: Tensor
    features: Tensor
    stationary_distribution: Tensor
    gamma: float


def check_process(name: str, source: Any) -> CheckedChain:  # noqa: ANN401 - checked here
    """Returns the parts of a finite process, with gradients if they have any; μ need not be stationary.

    Raises:
        TypeError: If ``source`` is no such process, or a part no array of real numbers.
        ValueError: If a shape disagrees with the features', a number is not finite, a row of P or μ is no distribution,
            or γ is outside [0, 1].
    """
    *arrays, distribution, _ = CheckedChain._fields
    missing = [part for part in (*arrays, "gamma") if not hasattr(source, part)]
    if missing or not callable(getattr(source, distribution, None)):
        raise TypeError(
            f"{name}: expected {'a Context or ' if name == 'source' else ''}a finite process with features and "
            "stationary_distribution(), transition_matrix, rewards and gamma, such as env.unwrapped.process of a "
            f"chain, got {type(source).__name__}."
        )
    given = {part: getattr(source, part) for part in arrays} | {distribution: source.stationary_distribution()}
    parts = {part: as_tensor(part, array) for part, array in given.items()}
    numbers = SimpleNamespace(**{part: reals(part, array).cpu().numpy() for part, array in parts.items()})
    narrow = any(array.is_floating_point() and array.dtype != torch.float64 for array in parts.values())
    chain_arrays(numbers, batch_axes=0, start=distribution, tolerance=_ROUNDED_ROWS if narrow else _ROWS)
    gamma = arguments.real("gamma", source.gamma, 0.0, 1.0)
    return CheckedChain(**{part: array.to(torch.float64) for part, array in parts.items()}, gamma=gamma)
