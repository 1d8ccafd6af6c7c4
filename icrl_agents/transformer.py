"""The in-context transformer: a stack of layers that is itself an evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from icrl_agents.context import Context
from icrl_agents.value_function import Basis, Evaluator, ValueFunction


class Layer(Protocol):
    """What the transformer asks of a layer; see ``icrl_agents.layers``."""

    def tokens(self, context: Context, queries: Tensor) -> Tensor:
        """The prompt that the layer reads."""
        ...

    def bind(self, context: Context) -> Basis:
        """The basis in which a query's value is expanded, for this context."""
        ...

    def attend(self, bound: Any, tokens: Tensor) -> Tensor:  # noqa: ANN401 - what its own ``bind`` returned
        """What ``forward`` needs and what never changes from layer to layer."""
        ...

    def messages(self, tokens: Tensor, context: Context) -> Tensor:
        """The layer's increment of the coefficients in its basis."""
        ...

    def __call__(self, tokens: Tensor, context: Context, weights: Tensor) -> Tensor:
        """The tokens after the layer."""
        ...

    def read_out(self, tokens: Tensor) -> Tensor:
        """Values of every column."""
        ...


class InContextTransformer(nn.Module):
    """A transformer that turns a context into a value function in its forward pass, without a weight update.

    ``blocks`` are applied in order, ``loops`` times over: one block looped L times is a tied transformer, L blocks
    with one loop a sequential one.

    Args:
        blocks: Layers, all reading the same kind of prompt.
        loops: How often the blocks are applied.
        reference: The algorithm that the layers implement, if they were constructed from one.

    Raises:
        ValueError: If there is no block or ``loops`` is not a non-negative integer.
    """

    def __init__(self, blocks: Sequence[nn.Module], loops: int = 1, reference: Evaluator | None = None) -> None:
        super().__init__()
        if len(blocks) == 0:
            raise ValueError("blocks: expected at least one layer, got none.")
        if isinstance(loops, bool) or not isinstance(loops, int) or loops < 0:
            raise ValueError(f"loops: expected an integer ≥ 0, got {loops!r}.")
        self.blocks = nn.ModuleList(blocks)
        self.loops = loops
        self.reference = reference

    @property
    def num_layers(self) -> int:
        """Depth L: number of layers applied."""
        return len(self.blocks) * self.loops

    def hidden_states(self, context: Context, queries: Tensor | None = None) -> Iterator[Tensor]:
        """Yields the tokens after 0, 1, …, L layers, ``(*batch, columns, rows)``.

        Args:
            context: The context, dimension d.
            queries: ``(*batch, m, d)``; default none.
        """
        return self._run(context, queries, self._bind(context))

    def forward(self, context: Context, queries: Tensor) -> Tensor:
        """Values that the full forward pass reads out of the query columns.

        Equal to ``fit(context)(queries)``, which runs the context through the layers once for all queries.

        Args:
            context: The context, dimension d.
            queries: ``(*batch, m, d)``.

        Returns:
            ``(*batch, m)``.
        """
        *_, tokens = self.hidden_states(context, queries)
        values = self._layers[0].read_out(tokens)
        return values[..., values.shape[-1] - queries.shape[-2] :]

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function that the layers infer from ``context``, at every depth."""
        bases = self._bind(context)
        increments: list[list[Tensor]] = [[] for _ in bases]
        for depth, tokens in enumerate(self._run(context, None, bases)):
            for i, layer in enumerate(self._layers):
                message = layer.messages(tokens, context)
                if depth == 0:
                    increments[i].append(torch.zeros_like(message))
                if depth < self.num_layers:
                    increments[i].append(message if depth % len(bases) == i else torch.zeros_like(message))
        return ValueFunction(bases, [torch.stack(steps, dim=-2).cumsum(-2) for steps in increments], context)

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes ``model.safetensors`` (weights) and ``config.json`` (structure) into ``folder``.

        Raises:
            ValueError: If a kernel is a plain callable, which has no weights to save.
        """
        from icrl_agents.checkpoint import save

        save(self, Path(folder))

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> InContextTransformer:
        """Reads what ``save_pretrained`` wrote.

        Raises:
            FileNotFoundError: If one of the two files is missing.
            ValueError: If they are damaged or do not fit each other.
        """
        from icrl_agents.checkpoint import load

        return load(Path(folder))

    @property
    def _layers(self) -> list[Layer]:
        return [cast(Layer, block) for block in self.blocks]

    def _bind(self, context: Context) -> list[Basis]:
        return [layer.bind(context) for layer in self._layers]

    def _run(self, context: Context, queries: Tensor | None, bases: Sequence[Basis]) -> Iterator[Tensor]:
        layers = self._layers
        tokens = layers[0].tokens(context, context.points[..., :0, :] if queries is None else queries)
        weights = [layer.attend(basis, tokens) for layer, basis in zip(layers, bases, strict=True)]
        yield tokens
        for _ in range(self.loops):
            for layer, weight in zip(layers, weights, strict=True):
                tokens = layer(tokens, context, weight)
                yield tokens
