"""What changes nothing, and what scales: symmetries of the softmax transformer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from icrl_agents import constructions
from icrl_agents.context import Context
from icrl_agents.studies.verify.config import VerifyConfig
from icrl_agents.studies.verify.constructions import DEPTH, SCORES, SOFTMAX
from icrl_agents.studies.verify.rows import EXACT, Row, largest
from icrl_agents.studies.verify.samples import Sample, largest_error, samples


def check_invariances(config: VerifyConfig) -> Iterator[Row]:
    """Yields a row per symmetry."""
    found = samples(config.first_seed, config.device)
    rng = np.random.default_rng(config.first_seed)
    changes = {
        "the order of the transitions changes nothing": lambda n: rng.permutation(n),
        "repeating the whole context changes nothing": lambda n: np.tile(np.arange(n), 3),
    }
    for claim, chosen in changes.items():
        errors = [_error(s, _taken(s.context, chosen(len(s.context))), name) for s in found for name in SCORES]
        yield _row(claim, found, largest(errors))
    scaled = [_error(s, _scaled(s.context, 3.0), name, factor=3.0) for s in found for name in SCORES]
    yield _row("v is linear in the rewards: 3R gives 3v", found, largest(scaled))
    yield _row("γ = 0, one layer: kernel regression on the rewards", found, largest(_regression(s) for s in found))


def _row(claim: str, found: tuple[Sample, ...], error: float) -> Row:
    on = f"softmax transformer, 5 scores, {len(found)} contexts"
    return Row(claim=claim, source=SOFTMAX, on=on, measured=error, at_most=EXACT)


def _taken(context: Context, index: np.ndarray) -> Context:
    rows = (context.states, context.rewards, context.discounts, context.next_states)
    chosen = torch.as_tensor(index, device=context.device)
    return Context(*(row[chosen] for row in rows), contiguous=torch.zeros_like(context.mask[chosen]))


def _scaled(context: Context, factor: float) -> Context:
    return Context(context.states, factor * context.rewards, context.discounts, context.next_states)


def _error(sample: Sample, changed: Context, name: str, factor: float = 1.0) -> float:
    transformer = constructions.weighted_softmax_td(SCORES[name][0](changed.dim), DEPTH)
    found, expected = (transformer.fit(context).by_depth(sample.queries) for context in (changed, sample.context))
    return largest_error(found, factor * expected)


def _regression(sample: Sample) -> float:
    context = Context(
        sample.context.states, sample.context.rewards, torch.zeros_like(sample.context.rewards), sample.context.states
    )
    errors = []
    for kernel, score in SCORES.values():
        g = score(sample.queries, sample.transitions.x)
        kappa = np.exp(g - np.maximum(g.max(-1, keepdims=True), -1e300))
        expected = kappa @ sample.transitions.rewards / np.maximum(kappa.sum(-1), 1e-300)
        found = constructions.weighted_softmax_td(kernel(context.dim), 1).fit(context)(sample.queries)
        errors.append(largest_error(found, expected))
    return largest(errors)
