"""The update of weighted softmax TD as matrices: in the population limit, and on a context (arXiv 2605.07333).

        v ← v + α M (r − A v)

In the population limit over S states, M(s, s′) = μ(s′) κ(s, s′) / Σ_u μ(u) κ(s, u) and A = I − γP. In a context, the
transitions that leave one state have one attention weight, so n transitions over D distinct states are exactly D
weighted ones: M is the total weight of each, and A and r are means over its visits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from icrl_agents.arrays import finite, floating, same_shape
from icrl_agents.attention import SoftmaxAttention, check_step_size
from icrl_agents.context import Context
from icrl_agents.diagnostics.finite_chain import FiniteChain, check_process
from icrl_agents.divergence import check_finite
from icrl_agents.evaluators.sweeps import check_num_sweeps
from icrl_agents.evaluators.systems import SMALLEST_RECIPROCAL_CONDITION, in_double, reciprocal_condition
from icrl_agents.kernels import Kernel


class ExpectedUpdate(NamedTuple):
    """The update v ← v + αM(r − Av) on D′ points, of which the first D are states that transitions leave, in float64.

    Args:
        states: The points, ``(D′, d)``; beyond the first D, final observations that were never left.
        attention: M, ``(*batch, D′, D)``.
        dynamics: A, ``(*batch, D, D′)``.
        rewards: r, ``(*batch, D)``.
    """

    states: Tensor
    attention: Tensor
    dynamics: Tensor
    rewards: Tensor

    def error_operator(self, step_size: float = 1.0) -> Tensor:
        """I − αMA, ``(*batch, D′, D′)``: the error of v after a sweep is this times the one before."""
        M, A = self.attention, self.dynamics
        return torch.eye(M.shape[-2], device=M.device).to(M) - _checked(step_size) * M @ A

    def td_error_operator(self, step_size: float = 1.0) -> Tensor:
        """I − αAM, ``(*batch, D, D)``: the mean TD error of each state after a sweep is this times the one before.

        It has the eigenvalues of ``error_operator`` but one of 1 for each point beyond the first D, where v never
        leaves what the sweeps can reach.
        """
        M, A = self.attention, self.dynamics
        return torch.eye(M.shape[-1], device=M.device).to(M) - _checked(step_size) * A @ M

    def sweep(self, num_sweeps: int, step_size: float = 1.0, start: Tensor | None = None) -> Tensor:
        """Values v after 0 … L sweeps from ``start (*batch, D′)``, default 0, ``(*batch, D′, L + 1)``.

        Raises:
            DivergenceError: If a value overflows, naming the sweep.
            TypeError: If ``start`` is no array of numbers.
            ValueError: If its shape is another or it is not finite.
        """
        alpha = _checked(step_size)
        v = self.attention.new_zeros(self.attention.shape[:-1])
        if start is not None:
            start = floating("start", start).to(v)
            same_shape("start", start, v.shape)
            finite("start", start)
            v = start
        history = [v]
        for _ in range(check_num_sweeps(num_sweeps)):
            errors = self.rewards - _apply(self.dynamics, v)
            v = v + alpha * _apply(self.attention, errors)
            history.append(v)
        check_finite(torch.stack(history, dim=-2))
        return torch.stack(history, dim=-1)

    def errors(self, num_sweeps: int, step_size: float = 1.0) -> Tensor:
        """Errors v_t − v_∞ after 0 … L sweeps from v = 0, ``(*batch, D′, L + 1)``.

        However small, they have no floor of rounding beside v: they are the values of the same update without rewards,
        started from −v_∞. Rounding of v_∞ stays a part of that start; it shows where all else contracts faster, as
        with a wide kernel where all rewards are equal, and shrinks in its turn.

        Raises:
            DivergenceError: As ``sweep``.
            ValueError: As ``limit``.
        """
        return self._replace(rewards=torch.zeros_like(self.rewards)).sweep(num_sweeps, step_size, -self.limit())

    def limit(self) -> Tensor:
        """Values v at which every state's mean TD error is 0, ``(*batch, D′)``: v = M w with A M w = r.

        Raises:
            ValueError: If A M is singular, so that the sweeps cannot bring every TD error to 0.
        """
        system = self.dynamics @ self.attention
        scale = self.attention.abs().amax((-2, -1))
        if not bool((reciprocal_condition(system, scale) >= SMALLEST_RECIPROCAL_CONDITION).all()):
            raise ValueError("kernel: expected one whose attention tells the states apart, got a singular A M.")
        return _apply(self.attention, torch.linalg.solve(system, self.rewards))


def expected_update(source: FiniteChain | Context, kernel: Kernel) -> ExpectedUpdate:
    """The update of weighted softmax TD on a finite process (its population limit) or on a context.

    Args:
        source: A process with S states, or a context without batch dimensions.
        kernel: κ = exp g of the score g; see ``icrl_agents.kernels``.

    Raises:
        TypeError: If ``source`` is neither.
        ValueError: If it is a batch of contexts, or a process's arrays disagree or are no distributions.
    """
    if isinstance(source, Context):
        if source.mask.ndim != 1:
            raise ValueError(f"source: expected a context without batch dimensions, got {source!r}.")
        return expected_updates(source, kernel)[0]
    P, rewards, features, mu, gamma = check_process("source", source)
    A = torch.eye(len(mu), device=features.device).to(features) - gamma * P
    return ExpectedUpdate(features, _population(features, mu, kernel), A, rewards)


def expected_updates(source: FiniteChain | Context, kernel: Kernel) -> list[ExpectedUpdate]:
    """``expected_update`` of each context of a batch, in order; of anything else, a list of one."""
    if not isinstance(source, Context):
        return [expected_update(source, kernel)]
    source, batch = in_double(source, kernel), source.mask.ndim - 1
    parts = (source.points, source.rewards, source.discounts, source.successors, source.mask)
    count = source.mask.shape[:batch].numel()
    flat = [part.reshape(count, *part.shape[batch:]) for part in parts]
    return [
        _of_context(points, rewards, discounts, successors, mask, kernel)
        for points, rewards, discounts, successors, mask in zip(*flat, strict=True)
    ]


def attention_matrix(source: FiniteChain | Context, kernel: Kernel) -> Tensor:
    """Attention of states to states: M(s, s′) = μ(s′) κ(s, s′) / Σ_u μ(u) κ(s, u) in the population limit.

    Args:
        source: A process with S states; or a context, of which each transition is its own key.
        kernel: κ = exp g of the score g; see ``icrl_agents.kernels``.

    Returns:
        ``(S, S)``; of a context ``(*batch, n, n)``, from the states of its transitions, zero in the padding. Rows sum
        to 1, or to 0 where κ reaches no state that is visited.

    Raises:
        TypeError: If ``source`` is neither.
        ValueError: If a process's arrays disagree or are no distributions.
    """
    if not isinstance(source, Context):
        chain = check_process("source", source)
        return _population(chain.features, chain.stationary_distribution, kernel)
    attention = SoftmaxAttention(kernel).bind(source.states, source.mask)
    return attention(attention.keys).masked_fill(~source.mask[..., None], 0.0)


def _population(features: Tensor, mu: Tensor, kernel: Kernel) -> Tensor:
    weights = SoftmaxAttention(kernel).bind(features, mu > 0)(features) * mu
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)


def _of_context(
    points: Tensor, rewards: Tensor, discounts: Tensor, successors: Tensor, mask: Tensor, kernel: Kernel
) -> ExpectedUpdate:
    """Groups equal points; the ones that are left come first."""
    n, finals = len(mask), int((successors >= len(mask)).sum())
    real = torch.cat([mask, torch.arange(len(points) - n, device=mask.device) < finals])
    distinct, group = torch.unique(points[real], dim=0, return_inverse=True)
    left = torch.zeros(len(distinct), dtype=torch.bool, device=mask.device)
    left[group[: int(mask.sum())]] = True
    order = torch.argsort((~left).to(torch.int8), stable=True)
    place = torch.zeros(len(points), dtype=torch.long, device=mask.device)
    place[real] = torch.argsort(order)[group]

    distinct, D = distinct[order], int(left.sum())
    one_hot = torch.eye(len(distinct), device=points.device).to(points)
    own, following = one_hot[place[:n][mask]], one_hot[place[successors[mask]]]
    mean = (own / own.sum(0).clamp(min=1)).mT[:D]
    A = mean @ (own - discounts[mask, None] * following)
    weights = SoftmaxAttention(kernel).bind(points[:n], mask)(distinct)
    return ExpectedUpdate(distinct, weights[:, mask] @ own[:, :D], A, mean @ rewards[mask])


def _checked(step_size: float) -> float:
    return float(check_step_size(step_size, auto=False))


def _apply(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector[..., None])[..., 0]
