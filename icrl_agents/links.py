"""Which transitions continue the one before, their state its next state, and which equal states rounding hides."""

from __future__ import annotations

import torch
from torch import Tensor

from icrl_agents.distinct import group_rows
from icrl_agents.notices import warn

ROUNDING = 64
"""Units in the last place of a row's largest number, within which encoders give back one and the same observation."""


def equal_links(x: Tensor, x_next: Tensor, valid: Tensor) -> Tensor:
    """Where ``next_states[k]`` equals ``states[k + 1]``, and both are there, ``(*batch, n)``."""
    linked = torch.zeros_like(valid)
    linked[..., :-1] = (x_next[..., :-1, :] == x[..., 1:, :]).all(-1) & valid[..., :-1] & valid[..., 1:]
    return linked


def are_rows_of_one(x: Tensor, x_next: Tensor) -> bool:
    """Whether both are views of one tensor, ``x_next`` a row ahead of ``x``: equal rows are one row of it."""
    one_base = x._base is not None and x._base is x_next._base and x.stride() == x_next.stride()
    return one_base and x_next.storage_offset() == x.storage_offset() + x.stride(-2)


def near_links(x: Tensor, x_next: Tensor, among: Tensor, *, columns: bool) -> Tensor:
    """Where ``next_states[k]`` is ``states[k + 1]`` but for rounding, ``(*batch, n)``, of those in ``among``.

    Numbers in float64 that float32 holds too were rounded to it, as were ones that are the others in it; whole ones
    were not rounded.

    Args:
        x: x_k, ``(*batch, n, d)``.
        x_next: x′_k, as large.
        among: The transitions that may be, each followed by another one, ``(*batch, n)``.
        columns: Whether a number may differ by no more than its column's largest one allows, too.
    """
    near, asked = torch.zeros_like(among), among[..., :-1]
    before, after = x_next.detach()[..., :-1, :][asked], x.detach()[..., 1:, :][asked]
    scale = torch.maximum(before.abs(), after.abs()).amax(-1, keepdim=True)
    if columns:
        largest = x.detach().abs().amax(-2, keepdim=True)
        scale = torch.minimum(scale, largest.expand_as(x)[..., 1:, :][asked])
    gaps = (before - after).abs()
    near[..., :-1][asked] = (gaps <= ROUNDING * torch.finfo(torch.float32).eps * scale).all(-1)
    kept = near[..., :-1][asked]  # few, as a rule
    before, after, gaps, scale = before[kept], after[kept], gaps[kept], scale[kept].expand_as(gaps[kept])
    narrow = (before.float() == before) & (after.float() == after)
    unit = torch.where(narrow, torch.finfo(torch.float32).eps, torch.finfo(x.dtype).eps)
    one_narrow = (before.float() == after) | (after.float() == before)
    whole = (before.round() == before) & (after.round() == after) & (gaps > 0)
    near[near.clone()] = (((gaps <= ROUNDING * unit * scale) | one_narrow) & ~whole).all(-1)
    return near


def warn_of_rounding(x: Tensor, x_next: Tensor, unlinked: Tensor, linked: Tensor) -> bool:
    """Warns where transitions of ``unlinked (*batch, n)`` seem not to continue, which rounding alone hides: whether.

    Beside ``linked`` ones, a next row that is the first one again is a restart, near whatever state an episode ended.
    """
    near = near_links(x, x_next, unlinked, columns=True) if bool(unlinked.any()) else unlinked
    if bool(near.any()):
        restarted = linked.any(-1, keepdim=True) & (x == x[..., :1, :]).all(-1).roll(-1, -1)
        near = near & ~restarted
    count = int(near.sum())
    if count:
        warn(
            f"next_states: {count} differ from the state in the next row by rounding alone, as where an encoder is "
            "asked for both apart, and are taken for others: returns and traces end there. Encode each observation "
            "once, as for Context.from_episodes, or say which transitions continue by contiguous=.",
            RuntimeWarning,
            stacklevel=3,
        )
    return count > 0


def warn_of_flags(equal: Tensor, discounts: Tensor, valid: Tensor) -> None:
    """Warns where discounts seem to be flags of ends, the wrong way round.

    So where transitions that end are continued by the next row, ``equal (*batch, n)``, in most cases, and those that
    bootstrap never.
    """
    ended, going = equal & (discounts == 0), valid & (discounts > 0)
    count = int(ended.sum())
    if count > 2 and count > int(going.sum()) > 0 and not bool((going & equal).any()):
        warn(
            f"discounts: 0 in {count} transitions that the next row continues, and above 0 in none: flags of ends, it "
            "seems; a discount is γ * (1 - terminated).",
            RuntimeWarning,
            stacklevel=3,
        )


def warn_of_two_types(points: Tensor) -> None:
    """Warns where states in ``points (*batch, p, d)`` equal others once those are rounded to float32, as these were.

    What float32 holds counts as rounded to it if its fraction is longer than half precision holds, so that neither
    0.5 nor a whole number does.
    """
    if points.dtype != torch.float64 or points.shape[-2] == 0:
        return
    x = points.detach().flatten(0, -3) if points.ndim > 2 else points.detach()[None]
    narrow = x.float().to(x) == x
    mixed = narrow.any(-2) & ~narrow.all(-2)
    if not bool(mixed.any()):
        return
    rounded = narrow & mixed[:, None] & (x.half().to(x) != x) & (x.round() != x)
    among = (rounded.any(-2) & mixed).any(-1)  # the contexts that hold numbers of both kinds
    if not bool(among.any()):
        return
    groups = group_rows(x[among].float())
    index = groups.group[..., None].expand_as(x[among])
    kinds = [
        torch.zeros_like(x[among]).scatter_reduce(-2, index, kind.to(x), "amax")
        for kind in (rounded[among], ~narrow[among])
    ]
    count = int((kinds[0] * kinds[1]).any(-1).sum())
    if count:
        warn(
            f"states: {count} are there in double precision and rounded to float32 as well, so that one state counts "
            "as two: as where an environment's reset and step, or episodes, give observations of two types; give all "
            "of one, with .astype(numpy.float32).",
            RuntimeWarning,
            stacklevel=3,
        )
