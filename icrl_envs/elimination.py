"""Stationary distributions and values of finite chains by elimination of one state after the other.

Nothing is ever subtracted (Grassmann, Taksar and Heyman's method), so that every digit is kept in chains that hardly
ever leave a group of states, where a general solver loses all of them.
"""

from __future__ import annotations

import numpy as np

ILL_CONDITIONED = 1e6
"""From this condition number on, a general solver is not trusted: of 16 digits it may lose 6."""
DOUBTFUL = 1e-7
"""Of a probability below this share of the condition number a general solver may leave fewer than 9 digits."""


@np.errstate(under="ignore")  # products of probabilities, which may vanish
def eliminated_stationary(transition_matrix: np.ndarray) -> np.ndarray:
    """Return stationary distributions μ, ``(N, S)``, to the last digits and exactly 0 at states of no closed class.

    Args:
        transition_matrix: P, ``(N, S, S)``, each with one closed class.
    """
    order = np.argsort(~recurrent_states(transition_matrix), axis=-1, kind="stable")
    elimination = _eliminated(transition_matrix, order)
    mu = np.empty(order.shape)
    np.put_along_axis(mu, order, elimination.stationary(), axis=-1)
    return mu


@np.errstate(under="ignore")  # products of probabilities, which may vanish
def eliminated_differential(transition_matrix: np.ndarray, centred: np.ndarray, stationary: np.ndarray) -> np.ndarray:
    """Return solutions h, ``(N, S)``, of h = b + Ph; any constant may be added to them.

    Rare states are eliminated first, so that what h is there costs the others no digits.

    Args:
        transition_matrix: P, ``(N, S, S)``, each with one closed class.
        centred: b, ``(N, S)``, of mean 0 under the stationary distribution.
        stationary: μ, ``(N, S)``.
    """
    order = np.argsort(-stationary, axis=-1, kind="stable")
    h = np.empty(order.shape)
    solution = _eliminated(transition_matrix, order).solve(
        np.take_along_axis(centred, order, axis=-1), first=np.zeros(len(order))
    )
    np.put_along_axis(h, order, solution, axis=-1)
    return h


def _eliminated(transition_matrix: np.ndarray, order: np.ndarray) -> Elimination:
    """Return the chains, their states in ``order (N, S)``, of which the first is recurrent and stays to the last."""
    rows = np.take_along_axis(transition_matrix, order[..., None], axis=-2)
    return Elimination(np.take_along_axis(rows, order[:, None], axis=-1), np.zeros(order.shape))


def recurrent_states(transition_matrix: np.ndarray) -> np.ndarray:
    """Return which states ``(N, S)`` can be reached from every state: the closed class, if there is only one.

    Args:
        transition_matrix: P, ``(N, S, S)``.
    """
    S = transition_matrix.shape[-1]
    reached = ((transition_matrix > 0) | np.eye(S, dtype=bool)).astype(np.float32)
    for _ in range((S - 1).bit_length()):  # paths of 1, 2, 4, … steps
        reached = (reached @ reached > 0).astype(np.float32)
    return (reached > 0).min(axis=-2)


class Elimination:
    """The equations (I − P) x = b of N chains, their states eliminated one by one, from the last to the first.

    Args:
        transition_matrix: P, ``(N, S, S)``; its diagonal is not read but follows from the rest.
        leaving: ``(N, S)``, the probability of leaving the chain for good, which with a row's others sums to 1.
    """

    def __init__(self, transition_matrix: np.ndarray, leaving: np.ndarray) -> None:
        """Eliminate the states: what passes through one becomes a part of the transitions between those that stay."""
        P, leaving = transition_matrix.copy(), leaving.copy()
        self._away = np.empty(leaving.shape)  # Σ over the states before and ``leaving``
        for n in reversed(range(leaving.shape[-1])):
            self._away[:, n] = P[:, n, :n].sum(axis=-1) + leaving[:, n]
            if n > 0:
                P[:, n, :n] /= self._away[:, n, None]
                leaving[:, n] /= self._away[:, n]
                P[:, :n, :n] += P[:, :n, n, None] * P[:, n, None, :n]
                leaving[:, :n] += P[:, :n, n] * leaving[:, n, None]
        self._P = P

    def stationary(self) -> np.ndarray:
        """Return μ, ``(N, S)``, with μᵀP = μᵀ, where state 0 is recurrent and no chain is ever left."""
        mu = np.zeros_like(self._away)
        mu[:, 0] = 1.0
        for n in range(1, len(mu.T)):  # scaled at once, as the ratio of two probabilities may overflow
            mu[:, n] = (mu[:, :n] * self._P[:, :n, n]).sum(axis=-1)
            mu[:, :n] *= self._away[:, n, None]
            mu[:, : n + 1] /= mu[:, : n + 1].sum(axis=-1, keepdims=True)
        return mu

    def solve(self, right: np.ndarray, first: np.ndarray | None = None) -> np.ndarray:
        """Return x, ``(N, S)``.

        Args:
            right: b, ``(N, S)``.
            first: x of state 0, ``(N,)``, where it is not determined because no chain is ever left.
        """
        b, x = right.copy(), np.empty(right.shape)
        for n in reversed(range(1, b.shape[-1])):
            b[:, n] /= self._away[:, n]
            b[:, :n] += self._P[:, :n, n] * b[:, n, None]
        x[:, 0] = b[:, 0] / self._away[:, 0] if first is None else first
        for n in range(1, b.shape[-1]):
            x[:, n] = b[:, n] + (self._P[:, n, :n] * x[:, :n]).sum(axis=-1)
        return x
