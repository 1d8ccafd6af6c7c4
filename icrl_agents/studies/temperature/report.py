"""What the study prints: best length scales, similarity of domains, and the constant offset."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from icrl_agents.studies.temperature.evaluation import RIDGE
from icrl_agents.studies.temperature.offset import offset
from icrl_agents.studies.temperature.similarity import Similarity, similarity
from icrl_agents.studies.temperature.summary import RETURN_ERROR, TD_LOSS, Measure, Optimum, Summary

MARKS = "≤, ≥: at an end of the bank. –, ∞: overflows or diverges."


def report(summary: Summary) -> str:
    """All tables."""
    parts = [_optima(summary, measure) for measure in dict.fromkeys((TD_LOSS, summary.value_error, RETURN_ERROR))]
    parts += [_matrix(summary, method, measure) for method, measure in matrices(summary)]
    return "\n\n".join([*parts, _offsets(summary), MARKS])


def matrices(summary: Summary) -> list[tuple[str, Measure]]:
    """Method and measure of each similarity matrix: temperatures of each method, then projections onto the RKHS."""
    return [*((method, TD_LOSS) for method in summary.methods), (RIDGE, summary.value_error)]


def _optima(summary: Summary, measure: Measure) -> str:
    """Best length scale by domain and noise, for each method and kernel."""
    pairs = [(method, kernel) for method in summary.methods for kernel in summary.kernels]
    lines = [["domain", "noise", *(f"{method} {kernel}" for method, kernel in pairs)]]
    for domain in summary.domains:
        for name, levels in [*((level, [level]) for level in summary.noise), ("all", summary.noise)]:
            cells = [(domain, level) for level in levels]
            found = [summary.optimum(cells, method, kernel, measure) for method, kernel in pairs]
            lines.append([domain, name, *(_told(each) for each in found)])
    title = f"Best length scale by {measure.title}: ℓ [95 % interval], then the least loss relative to that of "
    reference = "v = 0" if measure is TD_LOSS else "a constant"
    return f"{title}{reference}; {len(summary.seeds)} seed(s)\n{_aligned(lines)}"


def _told(found: Optimum) -> str:
    """The optimum and its loss."""
    return str(found) if np.isinf(found.least) else f"{found} {found.least:.2g}"


def _matrix(summary: Summary, method: str, measure: Measure) -> str:
    """One similarity matrix, with what each domain chooses."""
    found = similarity(summary, method, measure, summary.kernels)
    lines = [["chosen in", "kernel", "ℓ", *summary.domains]]
    for i, (domain, (kernel, scale)) in enumerate(zip(summary.domains, found.chosen, strict=True)):
        lines.append([domain, kernel, _number(scale, "g"), *(entry(found, i, j) for j in range(len(summary.domains)))])
    what = "projection onto the RKHS by ridge regression" if method == RIDGE else f"{method} TD"
    title = f"{what}: {measure.title} in a domain (column) with the kernel chosen in another (row), over its own choice"
    return f"{title}\n{_aligned(lines)}"


def entry(found: Similarity, i: int, j: int) -> str:
    """A ratio and its interval; ∞ where the other domain's choice overflows or diverges here."""
    if i == j and not np.isnan(found.ratios[i, j]):
        return "1"
    if np.isposinf(found.ratios[i, j]):
        return "∞"
    return _ratio(float(found.ratios[i, j]), float(found.low[i, j]), float(found.high[i, j]))


def _offsets(summary: Summary) -> str:
    """The offset by method, kernel and depth."""
    head = ["method", "kernel", "ℓ", "L", "|offset|", "corrected", "plain", "corrected", "centred", "corrected / plain"]
    lines = [[*head, "TD loss, corrected / plain", "worse cells"]]
    for method in summary.methods:
        for kernel in summary.kernels:
            for depth in summary.depths:
                found = offset(summary, method, kernel, depth)
                numbers = [_number(number, ".3g") for number in (*found.sizes, *found.errors)]
                ratios = [_ratio(*each) for each in (found.ratio, found.losses)]
                scale = f"{found.length_scale:g}"
                lines.append([method, kernel, scale, str(depth), *numbers, *ratios, _number(found.worse, ".0%")])
    title = "The constant offset: its size relative to √(mean G²); plain value errors relative to mean G²"
    return f"{title}\n{_aligned(lines)}"


def _number(value: float, form: str) -> str:
    return format(value, form) if np.isfinite(value) else "–"


def _ratio(mean: float, low: float, high: float) -> str:
    interval = f" [{low:.2f}, {high:.2f}]" if np.isfinite(low) else ""
    return _number(mean, ".2f") + interval


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
