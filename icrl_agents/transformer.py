"""The in-context transformer: a stack of layers that is itself an evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from icrl_agents.blocks import Layer, check_blocks, check_mixture, check_patched, is_weighted, prompt_of
from icrl_agents.checked import Checked, CheckedModule
from icrl_agents.columns import columns
from icrl_agents.context import Context, check_context
from icrl_agents.divergence import DivergenceError
from icrl_agents.error_dynamics import check_layers
from icrl_agents.judgement import judge
from icrl_agents.value_function import Basis, Evaluator, ValueFunction, as_queries
from icrl_agents.weighted_context import weighted


def check_count(name: str, count: Any) -> int:  # noqa: ANN401
    """Returns ``count`` if it is an integer ≥ 0; raises ValueError naming the argument otherwise."""
    if isinstance(count, bool) or not isinstance(count, Integral) or count < 0:
        raise ValueError(f"{name}: expected an integer ≥ 0, got {count!r}.")
    return int(count)


class InContextTransformer(CheckedModule):
    """A transformer that turns a context into a value function in its forward pass, without a weight update.

    ``blocks`` are applied in order, ``loops`` times over: one block looped L times is a tied transformer, L blocks
    with one loop a sequential one. The context decides the floating type of the computation, to which weights are
    cast: they are stored in float64, and a transformer moved to float32 has merely rounded weights.

    Args:
        blocks: Layers, all reading the same kind of prompt.
        loops: How often the blocks are applied.
        reference: The algorithm that the layers implement, if they were constructed from one. It shares no weight with
            them, and is not saved with them.

    Raises:
        TypeError: If a block is no layer.
        ValueError: If there is no block, the blocks read different prompts, some write into the features that others
            read once for all, or ``loops`` is not an integer ≥ 0.

    Example:
        >>> from icrl_agents.constructions import weighted_softmax_td
        >>> from icrl_agents.kernels import Identity
        >>> context = Context([[0.0]], [1.0], [0.9], [[0.0]])
        >>> weighted_softmax_td(Identity(), num_layers=2).fit(context)([[0.0]])
        tensor([1.9000], dtype=torch.float64)
    """

    loops = Checked(check_count)

    def __init__(self, blocks: Sequence[nn.Module], loops: int = 1, reference: Evaluator | None = None) -> None:
        super().__init__()
        check_blocks(blocks)
        self.blocks = nn.ModuleList(blocks)
        self.loops = loops
        self._reference = (reference,)  # in which no module is one of this one's

    @property
    def reference(self) -> Evaluator | None:
        """The algorithm that the layers implement, if they were constructed from one."""
        return self._reference[0]

    @property
    def num_layers(self) -> int:
        """Depth L: number of layers applied."""
        return len(self.blocks) * self.loops

    def extra_repr(self) -> str:
        """How often the blocks are applied."""
        return f"loops={self.loops}"

    def hidden_states(self, context: Context, queries: Any = None) -> Iterator[Tensor]:  # noqa: ANN401
        """Yields the tokens after 0, 1, …, L layers, ``(*batch, columns, rows)``.

        Args:
            context: The context, dimension d.
            queries: ``(*batch, m, d)`` or ``(m, d)``; default none, where linear layers have unit vectors.

        Raises:
            TypeError: If the queries are not float32 or float64, or float64 where the context is float32.
            ValueError: If their shape does not fit the context, or one of them is not finite.
        """
        check_context(context)
        queries = None if queries is None else _queries(context, queries)
        return self._run(context, *self._start(context, queries, self._bind(context)))

    def forward(self, context: Context, queries: Any) -> Tensor:  # noqa: ANN401
        """Values that the full forward pass reads out of the query columns.

        Equal to ``fit(context)(queries)``, which runs the context through the layers once for all queries, and with the
        same warnings and errors where a looped layer of TD diverges.

        Args:
            context: The context, dimension d.
            queries: ``(*batch, m, d)`` or ``(m, d)``.

        Returns:
            ``(*batch, m)``.

        Raises:
            TypeError: As ``hidden_states``.
            ValueError: As ``hidden_states``.
            DivergenceError: If a value is not finite, or as ``fit``, unless weights are trained.
        """
        queries = _queries(context, queries)
        distinct = self._distinct(context)
        tokens, weights = self._start(distinct, queries, self._bind(distinct))
        *_, before, tokens = tokens, *self._run(distinct, tokens, weights)
        values = self._layers[0].read_out(tokens)
        if not bool(torch.isfinite(values).all()):
            raise DivergenceError("values are not finite: the layers diverge on this context; fit names the first one.")
        errors = self._layers[0].read_out(before.detach())  # of a linear prompt's keys, but for their sign
        if prompt_of(self.blocks[0]).startswith("memory"):
            errors = distinct.td_errors(errors[..., : distinct.points.shape[-2]])
        judge(self, context, queries, values, errors[..., : len(distinct)], distinct.rewards)
        return values[..., values.shape[-1] - queries.shape[-2] :]

    def fit(self, context: Context) -> ValueFunction:
        """Returns the value function that the layers infer from ``context``, at every depth.

        Raises:
            DivergenceError: If values leave the finite or the possible numbers, naming the first such layer.
        """
        check_context(context)
        if not all(getattr(layer, "expands", True) for layer in self._layers):
            return self._fit_columns(context)
        layers, distinct = self._layers, self._distinct(context)
        bases = self._bind(distinct)
        tokens, weights = self._start(distinct, None, bases)
        before, increments, averages = tokens, [[] for _ in layers], []
        for depth, following in enumerate(self._run(distinct, tokens, weights)):
            before, tokens = tokens, following
            check_patched(layers, weights, depth, before, tokens, distinct)
            for i, (layer, steps) in enumerate(zip(layers, increments, strict=True)):
                if depth == 0:
                    steps.append(torch.zeros_like(layer.messages(tokens, distinct)))
                if depth < self.num_layers:
                    steps.append(layer.messages(tokens, distinct) if depth % len(layers) == i else steps[0])
            if prompt_of(layers[0]) == "average_reward":
                averages.append(cast(Any, layers[0]).average_reward(tokens))
        coefficients = [torch.stack(steps, dim=-2).cumsum(-2) for steps in increments]
        check_layers(layers, context, coefficients, weights, layers[0].read_out(before))
        average = torch.stack(averages, dim=-1) if averages else None
        return ValueFunction(bases, coefficients, context, average_rewards=average)

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes ``model.safetensors`` (weights) and ``config.json`` (structure) into ``folder``, made if missing.

        A block in several places is one again when it is read; of weights that other blocks share, each has a copy.

        Raises:
            OSError: If the folder cannot be written.
            ValueError: If a kernel is a plain callable, which has no weights to save, a weight is not finite, or the
                folder's ``config.json`` is of something else.
        """
        from icrl_agents.checkpoint import save

        save(self, folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> InContextTransformer:
        """Reads what ``save_pretrained`` wrote: bit-equal weights of the same floating types, frozen, on the CPU.

        Raises:
            FileNotFoundError: If one of the two files is missing.
            ValueError: If they are damaged, edited or do not fit each other, naming the file.
        """
        from icrl_agents.checkpoint import load

        return load(folder)

    def _fit_columns(self, context: Context) -> ValueFunction:
        """The value function of layers without an expansion: queries run through them as columns."""
        check_mixture(list(self.blocks))
        depths = torch.eye(self.num_layers + 1, dtype=context.dtype, device=context.device)
        basis = columns(self, context)
        return ValueFunction([basis], [depths.expand(*context.points.shape[:-2], *depths.shape)], context)

    @property
    def _layers(self) -> list[Layer]:
        return [cast(Layer, block) for block in self.blocks]

    def _distinct(self, context: Context) -> Context:
        """The context, its equal states kept once where all layers can read it so and that pays."""
        return cast(Context, weighted(context)) if all(map(is_weighted, self.blocks)) else context

    def _bind(self, context: Context) -> list[Basis]:
        return [layer.bind(context) for layer in self._layers]

    def _start(self, context: Context, queries: Tensor | None, bases: Sequence[Basis]) -> tuple[Tensor, list[Tensor]]:
        """The tokens before the first layer, and each block's weights, which never change."""
        check_mixture(list(self.blocks))  # again, since weights may have been trained
        tokens = self._layers[0].tokens(context, context.points[..., :0, :] if queries is None else queries)
        return tokens, [layer.attend(basis, tokens) for layer, basis in zip(self._layers, bases, strict=True)]

    def _run(self, context: Context, tokens: Tensor, weights: Sequence[Tensor]) -> Iterator[Tensor]:
        yield tokens
        for _ in range(self.loops):
            for layer, weight in zip(self._layers, weights, strict=True):
                tokens = layer(tokens, context, weight)
                yield tokens


def _queries(context: Context, queries: Any) -> Tensor:  # noqa: ANN401
    """The queries of a forward pass, checked against the context's batch."""
    check_context(context)
    queries = as_queries("queries", queries, context)
    batch, leading = context.points.shape[:-2], queries.shape[:-2]
    fits = queries.ndim >= 2 and len(leading) <= len(batch)
    if not fits or any(q not in (1, c) for q, c in zip(reversed(leading), reversed(batch), strict=False)):
        expected = " or ".join(dict.fromkeys(str((*b, "m", context.dim)).replace("'", "") for b in ((), tuple(batch))))
        raise ValueError(f"queries: expected shape {expected}, got {tuple(queries.shape)}.")
    return queries
