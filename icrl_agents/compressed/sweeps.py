"""Sweeps of softmax TD over sliding windows at once, and their gradient, written out.

Windows of a few states are small: an array operation costs its call rather than its arithmetic. NumPy's calls cost
less than half of torch's, and a gradient that is written out needs no graph.
"""

from __future__ import annotations

import numpy as np

from icrl_agents.compressed.windows import SlidingWindows
from icrl_agents.divergence import DivergenceError


class SharedSweeps:
    """v ← v + (m E) / (c E),  m = w_R c R + w_u Γv + w_v c v,  from v = 0, for all windows at once.

    E(s′, s) = exp g(s, s′) with the key s′ first, c the counts of a window and Γ its flows: the transitions from a
    point act as one, whose weight is their number. So the normaliser c E of each window is a product with the
    scores that all windows share, and no window has an attention matrix of its own.

    Args:
        scores: g(s, s′) of queries s to keys s′, ``(B, M, M)``.
        weights: Value weights on (R, u, v).
        windows: W windows along each of B trajectories, on the processor.

    Raises:
        DivergenceError: If the scores of all states that a window visits are so far below another's that none counts.
    """

    def __init__(self, scores: np.ndarray, weights: list[float], windows: SlidingWindows) -> None:
        self._counts, self._flows = windows.counts.numpy(), windows.flows.numpy()
        self._exp = np.exp(scores - scores.max(-1, keepdims=True))  # (s, s′)
        normaliser = self._counts @ self._exp.mT
        if normaliser.min(initial=1.0) < np.finfo(normaliser.dtype).tiny:  # of which digits are missing, and 1/0 is inf
            raise DivergenceError(
                "scores: those of all states of a window underflow beside another's; expected numbers within 700."
            )
        self._inverse = 1.0 / normaliser
        self._paid = self._counts * windows.rewards.numpy()[:, None]
        self._weights = weights
        self._sweeps: list[tuple[np.ndarray, ...]] = []

    def values(self, loops: int) -> np.ndarray:
        """Returns v after ``loops`` ≥ 1 sweeps, ``(B, W, M)``."""
        w_R, w_u, w_v = self._weights
        E = self._exp.mT
        self._sweeps.clear()  # of a call before this one
        first = m = w_R * self._paid
        v = routed = counted = np.zeros_like(m)
        for t in range(loops):
            if t:
                routed, counted = (self._flows @ v[..., None])[..., 0], self._counts * v
                m = first + w_u * routed + w_v * counted
            received = (m @ E) * self._inverse
            self._sweeps.append((routed, counted, m, received))
            v = v + received
        return v

    def gradients(self, grad: np.ndarray) -> tuple[np.ndarray, list[float]]:
        """Returns the gradients of the scores, ``(B, M, M)``, and of the weights, from that of the last ``values``."""
        (_, w_u, w_v), to_w = self._weights, [0.0, 0.0, 0.0]
        to_normaliser, to_exp = np.zeros_like(grad), np.zeros_like(self._exp)
        for t, (routed, counted, m, received) in reversed(list(enumerate(self._sweeps))):
            scaled = grad * self._inverse
            to_exp += scaled.mT @ m
            to_normaliser -= scaled * received
            to_m = scaled @ self._exp
            for i, part in enumerate((self._paid, routed, counted)):
                to_w[i] += float(np.vdot(to_m, part))
            if t:
                back = (to_m[..., None, :] @ self._flows)[..., 0, :]
                grad = grad + w_u * back + w_v * (self._counts * to_m)
        return (to_exp + to_normaliser.mT @ self._counts) * self._exp, to_w
