"""The forms of the layer are one: dual head, Temporal Shift Module, and standard multi-head attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import torch

from icrl_agents import constructions, kernels
from icrl_agents.context import Context
from icrl_agents.layers import TemporalShiftLayer, export_multihead_attention, lifted_features, lifted_score
from icrl_agents.layers.lifting import context_lift
from icrl_agents.prompt import MEMORY
from icrl_agents.studies.verify.config import VerifyConfig
from icrl_agents.studies.verify.constructions import DEPTH, SCORES, SOFTMAX
from icrl_agents.studies.verify.rows import EXACT, Row, largest
from icrl_agents.studies.verify.samples import Sample, largest_error, samples
from icrl_agents.transformer import InContextTransformer

SCALE = 0.7
OFFSET = 1_000.0
"""Distance of the states from the origin at which the lifted features are checked: they must be centred."""


def check_attention(config: VerifyConfig) -> Iterator[Row]:
    """Yields a row per pair of forms."""
    found = samples(config.first_seed, config.device)
    pairs = [_forms(build(s.context.dim), s.context, s) for s in found for build, _ in SCORES.values()]
    yield Row(
        claim="dual head = Temporal Shift Module, every entry of every layer",
        source=SOFTMAX,
        on=f"5 scores, {len(found)} contexts, layers 0–{DEPTH}",
        measured=largest(pairs),
        at_most=EXACT,
    )
    exported = ("bilinear", "exponential", "RBF")
    batches = [(Context.stack([a.context, b.context], side), a) for a, b, side in _padded(found)]
    cases = [(context, s) for context, s in [*((s.context, s) for s in found), *batches]]
    yield Row(
        claim="temporal-shift layer = torch.nn.MultiheadAttention with exported weights",
        source=SOFTMAX,
        on=f"3 scores, {len(found)} contexts, {len(batches)} padded batches, layers 0–{DEPTH}",
        measured=largest(
            _standard(SCORES[name][0](s.context.dim), context, s) for context, s in cases for name in exported
        ),
        at_most=EXACT,
    )
    yield Row(
        claim="RBF attention = bilinear attention on lifted features",
        source=SOFTMAX,
        on=f"{len(found)} contexts moved {OFFSET:,.0f} from the origin, with and without normaliser",
        measured=largest(_lifted(s, softmax=softmax) for s in found for softmax in (True, False)),
        at_most=EXACT,
    )


def _padded(found: tuple[Sample, ...]) -> Iterator[tuple[Sample, Sample, str]]:
    """Both samples of each environment, which have different lengths."""
    for k, (one, several) in enumerate(zip(found[::2], found[1::2], strict=True)):
        yield one, several, "left" if k % 2 else "right"


def _forms(kernel: kernels.Kernel, context: Context, sample: Sample) -> float:
    dual, shift = (
        constructions.weighted_softmax_td(kernel, DEPTH, form=form) for form in ("dual_head", "temporal_shift")
    )
    return _largest(dual, shift, context, sample, lambda tokens: tokens)


def _standard(kernel: kernels.Kernel, context: Context, sample: Sample) -> float:
    ours = constructions.weighted_softmax_td(kernel, DEPTH)
    standard = InContextTransformer(
        [export_multihead_attention(cast(TemporalShiftLayer, ours.blocks[0]), context.dim)], DEPTH
    )
    queries = torch.as_tensor(sample.queries).to(context.points)
    fitted = largest_error(standard.fit(context).by_depth(queries), ours.fit(context).by_depth(queries))
    return largest([fitted, _largest(standard, ours, context, sample, lambda tokens: tokens[..., -MEMORY:])])


def _largest(
    one: InContextTransformer,
    other: InContextTransformer,
    context: Context,
    sample: Sample,
    rows: Callable[[torch.Tensor], torch.Tensor],
) -> float:
    """The largest difference of the tokens after 0 … L layers."""
    queries = torch.as_tensor(sample.queries).to(context.points)
    layers = zip(one.hidden_states(context, queries), other.hidden_states(context, queries), strict=True)
    return largest(largest_error(rows(a), rows(b)) for a, b in layers)


def _lifted(sample: Sample, *, softmax: bool) -> float:
    build = constructions.weighted_softmax_td if softmax else constructions.kernel_td
    context, kernel = _moved(sample.context, OFFSET), kernels.RBF(SCALE)
    scale, centre = context_lift(context, kernel)
    queries = torch.as_tensor(sample.queries).to(context.points) + OFFSET
    expected = build(kernel, DEPTH).fit(context).by_depth(queries)
    features = [lifted_features(x, scale, centre) for x in (context.states, context.next_states, queries)]
    over = Context(features[0], context.rewards, context.discounts, features[1], contiguous=context.contiguous)
    bilinear = build(kernels.DotProduct(lifted_score(context.dim, symmetric=not softmax)), DEPTH)
    return largest_error(bilinear.fit(over).by_depth(features[2]), expected)


def _moved(context: Context, offset: float) -> Context:
    moved = (context.states + offset, context.rewards, context.discounts, context.next_states + offset)
    return Context(*moved, contiguous=context.contiguous)
