"""The study's tables, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from icrl_agents.studies.matrix.evaluation import CLOSED, CONSTRUCTED, LINEAR, SOFTMAX
from icrl_agents.studies.matrix.summary import LIMIT, OPPONENTS, Summary


def matrix(summary: Summary, measure: str) -> str:
    """Source × target at full depth, one block of lines per noise level, constructed weights last."""
    header = [f"{measure}: weights from", "noise", *summary.domains]
    lines = [
        [source, noise, *(str(summary.ratio(measure, source, target, noise)) for target in summary.domains)]
        for noise in summary.noise
        for source in (*summary.domains, CONSTRUCTED)
    ]
    return markdown(header, lines)


def comparison(summary: Summary, measure: str) -> str:
    """By target and noise: transferred weights, softmax against linear; then those constructed, and LSTD."""
    header = [f"{measure}: target", "noise", *(f"{model}, {summary.transfer}" for model in (SOFTMAX, LINEAR))]
    header += ["softmax, constructed", "linear, constructed", CLOSED]
    lines: list[list[str]] = []
    for target in summary.domains:
        for noise in summary.noise:
            found = [summary.transferred(measure, target, noise, model) for model in (SOFTMAX, LINEAR)]
            models = (SOFTMAX, LINEAR, CLOSED)
            found += [summary.ratio(measure, CONSTRUCTED, target, noise, model) for model in models]
            lines.append([target, noise, *map(str, found)])
    return markdown(header, lines)


def wins(summary: Summary) -> str:
    """In how many cells the softmax transformer's centred value error is below that of each linear model."""
    lines = []
    for opponent in OPPONENTS:
        better, certain, cells = summary.wins(opponent)
        lines.append([opponent, f"{better} of {cells}", str(certain)])
    better, cells = summary.wins_over_best()
    lines.append(["the best of them in each cell, in hindsight", f"{better} of {cells}", ""])
    return markdown(["softmax, pretrained, against", "centred value error lower in", "interval below 1 in"], lines)


def failures(summary: Summary) -> str:
    """The cells whose TD loss is not below the limit; none is said in a line."""
    found = summary.failures()
    if not found:
        return f"TD loss at full depth is below {LIMIT:.0%} of that at depth 0 in all {len(summary.cells)} cells."
    lines = [[*cell, str(ratio), cause] for cell, ratio, cause in found]
    return markdown(["source", "target", "noise", f"TD loss, not below {LIMIT}", "cause"], lines)


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are as wide as their widest entry."""
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
    rows = [header, ["-" * width for width in widths], *lines]
    return "\n".join(
        "| " + " | ".join(entry.ljust(width) for entry, width in zip(row, widths, strict=True)) + " |" for row in rows
    )
