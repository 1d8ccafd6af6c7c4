"""Matrices too large to hold: products with them, block of rows by block of rows, made and dropped on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from icrl_agents.arrays import differentiated
from icrl_agents.magnitudes import widened

LARGEST_MATRIX = 2**31
"""Bytes of the largest matrix that is held; products with larger ones make their rows anew each time."""
BLOCK = 2**19
"""Bytes of a block of rows: small enough for a processor's cache, large enough for its vector units. What a block of
twice the size leaves behind is as much as the C library gives back to the system, which clears it anew each time."""
LONGEST_SUM = 2**14
"""Terms that a product in float32 sums at once: of n of one sign it may lose n/2 units in the last place."""
FEWEST_ROWS = 8
"""Rows of a block at least. With more, 100,000 columns make blocks so large that the same happens to each of them."""

Rows = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class BlockwiseMatrix:
    """The matrix ``rows(queries)``, ``(*batch, m, n)``, of which no more than a block exists at a time.

    Args:
        rows: ``(*batch, b, d) -> (*batch, b, n)``, each row a function of its own query.
        queries: ``(*batch, m, d)``.
        columns: n, times the number of matrices in a batch.
    """

    rows: Rows
    queries: Tensor
    columns: int

    def __matmul__(self, right: Tensor) -> Tensor:
        """The product with ``right (*batch, n, c)``, ``(*batch, m, c)``.

        Where a gradient is asked for, blocks are made once more on the way back instead of being kept.
        """

        def product(queries: Tensor) -> Tensor:
            return _product(self.rows, queries, right)

        def whole() -> Tensor:
            if fits(self.queries, self.columns):
                return product(self.queries)
            blocks = row_blocks(self.queries, self.columns)
            made = [
                cast(Tensor, checkpoint(_product, self.rows, block, right, use_reentrant=False)) for block in blocks
            ]
            return torch.cat(made, -2)

        return _stacked(product, self.queries, self.columns, whole)


def row_blocks(queries: Tensor, columns: int) -> Iterator[Tensor]:
    """Splits ``queries (*batch, m, d)`` into blocks of about ``BLOCK`` bytes, of rows of ``columns`` numbers."""
    return iter(queries.split(max(FEWEST_ROWS, BLOCK // (queries.element_size() * max(1, columns))), -2))


def fits(queries: Tensor, columns: int) -> bool:
    """Whether a matrix of this size is held."""
    return _bytes(queries, columns) <= LARGEST_MATRIX


def matrix(rows: Rows, queries: Tensor, columns: int) -> Tensor | BlockwiseMatrix:
    """The matrix ``rows(queries)`` if it fits, to be multiplied with ``@`` either way; arguments as above."""
    if not fits(queries, columns):
        return BlockwiseMatrix(rows, queries, columns)
    return _stacked(rows, queries, columns, lambda: rows(queries))


def _product(rows: Rows, queries: Tensor, right: Tensor) -> Tensor:
    weights = rows(queries)
    if right.shape[-2] <= LONGEST_SUM or right.dtype == torch.float64:
        return weights @ right
    parts = zip(weights.split(LONGEST_SUM, -1), right.split(LONGEST_SUM, -2), strict=True)
    return torch.stack([widened(left @ part) for left, part in parts]).sum(0).to(right)


def _bytes(queries: Tensor, columns: int) -> int:
    return queries.shape[-2] * columns * queries.element_size()


def _stacked(rows: Rows, queries: Tensor, columns: int, whole: Callable[[], Tensor]) -> Tensor:
    """``rows`` of each block, one below the other; ``whole()`` instead where a gradient is asked for."""
    if _bytes(queries, columns) <= BLOCK:
        return whole()
    found, done = None, 0
    for block in row_blocks(queries, columns):
        made = rows(block)
        if differentiated(made):
            return whole()
        if found is None:
            found = made.new_empty((*made.shape[:-2], queries.shape[-2], made.shape[-1]))
        found[..., done : done + made.shape[-2], :] = made
        done += made.shape[-2]
    return whole() if found is None else found
