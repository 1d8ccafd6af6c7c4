"""Which rows of a table are equal: found by hashing, in time linear in the table, and then verified."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_CHUNK = 65_536
_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


class Groups(NamedTuple):
    """Equal rows of a table ``(*batch, p, d)``, as groups in the order of their first row.

    Args:
        group: The group of each row, ``(*batch, p)``.
        first: The first row of each group, ``(*batch, G)``; 0 beyond a table's own number of groups.
        counts: Number of groups of each table, ``(*batch,)``; the largest is G.
    """

    group: Tensor
    first: Tensor
    counts: Tensor


def group_rows(rows: Tensor) -> Groups:
    """Groups the equal rows of each table ``(*batch, p, d)``, finite, float32 or float64, p ≥ 1."""
    batch, (p, d) = rows.shape[:-2], rows.shape[-2:]
    flat = rows.detach().reshape(-1, d)
    groups = group_labels(_hashes(flat).reshape(-1, p))
    if bool((groups.counts < p).any()) and not _verified(flat, groups):
        groups = group_labels(torch.unique(flat, dim=0, return_inverse=True)[1].reshape(-1, p))
    return Groups(groups.group.reshape(*batch, p), groups.first.reshape(*batch, -1), groups.counts.reshape(batch))


def group_labels(labels: Tensor) -> Groups:
    """Groups equal labels of each line of ``labels (B, p)``, integers."""
    p = labels.shape[-1]
    values, order = labels.sort(dim=-1, stable=True)
    differs = values[:, 1:] != values[:, :-1]
    if bool(differs.all()):
        own = torch.arange(p, device=labels.device).expand_as(labels)
        return Groups(own, own, torch.full_like(own[:, 0], p))
    run = torch.nn.functional.pad(differs, (1, 0)).cumsum(-1)
    counts = run[:, -1] + 1
    first = order.new_full((len(labels), int(counts.max())), p).scatter_reduce_(-1, run, order, "amin")
    first, place = first.sort(dim=-1)
    places = torch.arange(place.shape[-1], device=place.device).expand_as(place)
    rank = torch.empty_like(place).scatter_(-1, place, places)
    group = torch.empty_like(order).scatter_(-1, order, rank.gather(-1, run))
    return Groups(group, first.masked_fill(first == p, 0), counts)


def distinct_rows(rows: Tensor) -> Tensor:
    """The distinct rows of ``rows (p, d)``, in lexicographic order."""
    return torch.unique(rows[group_rows(rows).first] if len(rows) else rows, dim=0)


def fill_rows(rows: Tensor, read: Tensor) -> Tensor:
    """Rows ``(*batch, p, d)`` where those that are not ``read (*batch, p)`` are copies of one that is.

    So whatever a kernel does with padding, it does with a state of the context too.
    """
    if bool(read.all()) or not bool(read.any()):
        return rows
    flat, valid = rows.reshape(-1, *rows.shape[-2:]), read.reshape(-1, read.shape[-1])
    own = flat[torch.arange(len(flat), device=flat.device), valid.to(torch.int8).argmax(-1)]
    substitute = torch.where(valid.any(-1, keepdim=True), own, flat[valid][0])
    return torch.where(valid[..., None], flat, substitute[:, None]).reshape(rows.shape)


def _hashes(rows: Tensor) -> Tensor:
    """A 64-bit hash of each row ``(p, d)``; 0.0 and −0.0 are one number."""
    factors = odd_factors(rows.shape[-1]).to(rows.device)

    def mixed(chunk: Tensor) -> Tensor:
        bits = (chunk + 0.0).view(_BITS[chunk.dtype]).to(torch.int64)
        bits = (bits ^ (bits >> 32)) * factors[0]
        return ((bits ^ (bits >> 29)) * factors[1]).sum(-1)

    return torch.cat([mixed(chunk) for chunk in rows.split(_CHUNK)])


def odd_factors(d: int) -> Tensor:
    """Odd factors of a hash, ``(2, d)``, on the processor."""
    return torch.from_numpy(_odd_factors(d))


@cache
def _odd_factors(d: int) -> np.ndarray:
    """Those in NumPy, whose draws and arrays no transformation of torch's takes for its own."""
    return 2 * np.random.default_rng(0x1C21).integers(2**62, size=(2, d)) + 1


def _verified(rows: Tensor, groups: Groups) -> bool:
    """Whether every row of ``rows (B·p, d)`` equals the first one of its group."""
    B, p = groups.group.shape
    offsets = p * torch.arange(B, device=rows.device)[:, None]
    first = (groups.first.gather(-1, groups.group) + offsets).flatten()
    chunks = zip(rows.split(_CHUNK), first.split(_CHUNK), strict=True)
    return all(bool((chunk == rows[index]).all()) for chunk, index in chunks)
