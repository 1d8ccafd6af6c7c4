"""Linear attention over a prompt of transitions: one layer is one sweep of linear TD and its relatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from icrl_agents.arrays import constant
from icrl_agents.checked import Checked, CheckedModule, one_of
from icrl_agents.context import Context
from icrl_agents.eligibility import (
    check_lambda,
    eligibility_traces,
    features,
    largest_reach,
    num_transitions,
    stable_step_size,
)
from icrl_agents.magnitudes import check_squares, widened
from icrl_agents.prompt import average_reward_tokens, linear_tokens
from icrl_agents.value_function import Basis

Prompt = Literal["discounted", "average_reward"]
Scaling = Literal["none", "values", "errors"]
_PROMPTS = {"discounted": linear_tokens, "average_reward": average_reward_tokens}
_SCALINGS = ("none", "values", "errors")


class LinearAttentionLayer(CheckedModule):
    """Linear attention with H heads, one per pair (P_h, Q_h) (arXiv 2405.13861).

        Z ← Z + Σ_h LinAttn(Z; P_h, Q_h),   LinAttn(Z; P, Q) = (1/n) P Z M (Zᵀ Q Z)

    The mask M keeps queries and padding from being keys; M_ki = Π_{i≤j<k} γ_j λ inside each trajectory, the identity
    at λ = 0. Neither M nor Zᵀ Q Z is formed: Z M Zᵀ is ``(D, D)``, so a layer costs O(n D²). What ``scaling`` asks is
    found once, from all pairs of distinct columns.

    Whatever P and Q, each layer maps a query column z to (I + A) z, where A depends on the keys alone. So the value
    is linear in the query's features, and ``fit`` reads its weights off the unit vectors.

    Args:
        P: What is sent, shape ``(D, D)`` or ``(H, D, D)``; D = 2d + 1, or 2d + 2 for the average-reward prompt.
        Q: Which keys a column listens to, shape of ``P``.
        prompt: ``"discounted"``, columns [φ; γφ′; R], or ``"average_reward"``, columns [φ; φ′; 1; R].
        trace_decay: λ in [0, 1].
        scaling: ``"none"``; or the features of the prompt are multiplied by √α, which is to take the step size α, for
            the largest α = n / max_k Σ_i |·| at which no TD error moves the values (``"values"``) or the TD errors
            (``"errors"``) of the context's states by more than itself. The first layer's scaling counts, since it
            makes the prompt.

    Raises:
        ValueError: If an argument is out of range or shapes disagree.
    """

    prompt: Checked[Prompt] = Checked(one_of(_PROMPTS))
    scaling: Checked[Scaling] = Checked(one_of(_SCALINGS))
    trace_decay = Checked(lambda _, value: check_lambda(value))

    def __init__(
        self,
        P: Tensor,
        Q: Tensor,
        *,
        prompt: Prompt = "discounted",
        trace_decay: float = 0.0,
        scaling: Scaling = "none",
    ) -> None:
        super().__init__()
        self.prompt, self.scaling, self.trace_decay = prompt, scaling, trace_decay
        self.P, self.Q = _heads("P", P), _heads("Q", Q)
        if self.P.shape != self.Q.shape:
            raise ValueError(f"Q: expected the shape of P, {tuple(self.P.shape)}, got {tuple(self.Q.shape)}.")
        if (self.P.shape[-1] - self._extra_rows) % 2:
            raise ValueError(f"P: expected D = 2d + {self._extra_rows} for this prompt, got D = {self.P.shape[-1]}.")

    @property
    def dim(self) -> int:
        """State dimension d."""
        return (self.P.shape[-1] - self._extra_rows) // 2

    def tokens(self, context: Context, queries: Tensor) -> Tensor:
        """The prompt of this layer, ``(*batch, n + m, D)``.

        Without queries (m = 0), ``probes`` stand in: the value of the i-th unit vector is the weight w_i.
        """
        if context.dim != self.dim:
            raise ValueError(f"context: expected dimension {self.dim}, that of the weights, got {context.dim}.")
        check_squares("context", context.points)
        columns = _PROMPTS[self.prompt](context, queries)
        if queries.shape[-2] == 0:
            columns = torch.cat([columns, self.probes(columns)], dim=-2)
        if self.scaling == "none":
            return columns
        scale = columns.new_ones((*columns.shape[:-2], 1, columns.shape[-1]))
        scale[..., : 2 * self.dim] = self._step_size(columns, context).sqrt()[..., None, None]
        return columns * scale

    def probes(self, tokens: Tensor) -> Tensor:
        """Unit columns whose values are the weights w and, in an average-reward prompt, one more for r̄."""
        rows = list(range(self.dim)) + [2 * self.dim] * (self.prompt == "average_reward")
        probes = torch.eye(tokens.shape[-1], dtype=tokens.dtype, device=tokens.device)[rows]
        return probes.expand(*tokens.shape[:-2], *probes.shape)

    def bind(self, context: Context) -> Basis:
        """The basis of the value function: the features themselves, for every context."""
        return features

    def attend(self, bound: Basis, tokens: Tensor) -> Tensor:
        """Nothing: the scores Zᵀ Q Z are never formed."""
        return tokens.new_zeros(())

    def messages(self, tokens: Tensor, context: Context) -> Tensor:
        """The increment of the weights w, ``(*batch, d)``; ``tokens`` must hold the probes."""
        n = len(context)
        probes = tokens[..., n : n + self.dim, :]
        return self.read_out(probes @ self._map(tokens, context).mT)

    def forward(self, tokens: Tensor, context: Context, weights: Tensor) -> Tensor:
        """Returns the tokens after the layer, ``(*batch, columns, D)``."""
        return tokens + tokens @ self._map(tokens, context).mT

    def read_out(self, tokens: Tensor) -> Tensor:
        """Minus the last row, ``(*batch, columns)``: the values of the queries, minus the TD errors of the keys."""
        return -tokens[..., -1]

    def average_reward(self, tokens: Tensor) -> Tensor:
        """r̄ in tokens that hold the probes of an average-reward prompt, ``(*batch,)``."""
        return self.read_out(tokens)[..., -1]

    @property
    def is_sweep(self) -> bool:
        """Whether the layer is a sweep of linear TD: what it sends is TD errors, and it reads φ − γφ′ alone."""
        only, d = torch.zeros_like(self.P), self.dim
        only[:, -1, -1] = self.P[:, -1, -1].detach()
        read = self._read().detach()
        of_differences = torch.equal(read[:, :d], -read[:, d : 2 * d]) and not bool(read[:, -1].any())
        return self.prompt == "discounted" and of_differences and torch.equal(self.P, only)

    @torch.no_grad()
    def operators(self, context: Context) -> Tensor:
        """B of the sweep w ← B w + b that the layer is, if it is one, for each of a flat batch, ``(B, d, d)``."""
        d, tokens = self.dim, self.tokens(context, context.points[..., :0, :])
        keys = widened(self._keys(tokens, context))
        moments = (keys[..., :d] - keys[..., d : 2 * d]).mT @ eligibility_traces(context, keys, self.trace_decay)
        sent = moments @ self._read().to(keys)[:, :d] / num_transitions(context)[..., None, None]
        return (torch.eye(d, device=sent.device).to(sent) + sent.mT).reshape(-1, d, d)

    def settings(self) -> dict[str, Any]:
        """Everything but P and Q, as ``from_settings`` takes it."""
        return {"prompt": self.prompt, "trace_decay": self.trace_decay, "scaling": self.scaling}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Self:
        """Returns the layer with these ``settings`` and the ``weights`` P and Q."""
        named = {name: settings[name] for name in ("prompt", "trace_decay", "scaling")}
        return cls(weights["P"], weights["Q"], **named)

    def extra_repr(self) -> str:
        """The settings."""
        return ", ".join(f"{name}={value!r}" for name, value in self.settings().items())

    @property
    def _extra_rows(self) -> int:
        return 2 if self.prompt == "average_reward" else 1

    def _read(self) -> Tensor:
        """Σ_h P_h Q_h of the entries of P at its last row and column, ``(D, D)``."""
        return (self.P[:, -1, -1, None, None] * self.Q).sum(0)

    def _map(self, tokens: Tensor, context: Context) -> Tensor:
        """A = (1/n) Σ_h P_h Z M Zᵀ Q_h, ``(*batch, D, D)``; where φ and γφ′ are close, little is left of Z M Zᵀ."""
        keys = widened(self._keys(tokens, context))
        moments = keys.mT @ eligibility_traces(context, keys, self.trace_decay)  # Z M Zᵀ
        heads = self.P.to(moments) @ moments[..., None, :, :] @ self.Q.to(moments)
        return (heads.sum(-3) / num_transitions(context)[..., None, None]).to(tokens)

    def _step_size(self, tokens: Tensor, context: Context) -> Tensor:
        """α of ``scaling``, ``(*batch,)``: how far the last row of each key reaches the last row of the columns."""
        keys = widened(self._keys(tokens, context))
        readers = keys.clone()
        if self.scaling == "values":
            readers[..., self.dim :] = 0.0
        traces = eligibility_traces(context, keys, self.trace_decay)
        heads, terms = self._read().to(keys).mT, None
        if self.scaling == "errors":  # what reads x_k takes γ_k x′_k away from it
            terms = largest_reach(readers.abs() @ heads.abs(), traces.abs())
        return stable_step_size(context, readers @ heads, traces, terms).to(tokens)

    def _keys(self, tokens: Tensor, context: Context) -> Tensor:
        return tokens[..., : len(context), :].masked_fill(~context.mask[..., None], 0.0)


def _heads(name: str, weights: Tensor) -> nn.Parameter:
    tensor = constant(name, weights)
    tensor = tensor[None] if tensor.ndim == 2 else tensor
    if tensor.ndim != 3 or tensor.shape[-1] != tensor.shape[-2] or tensor.numel() == 0:
        raise ValueError(f"{name}: expected shape (D, D) or (H, D, D), got {tuple(tensor.shape)}.")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name}: expected finite weights, got NaN or inf.")
    return nn.Parameter(tensor, requires_grad=False)
