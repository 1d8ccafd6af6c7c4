"""Cells in which the evaluators that serve all domains fail, with what tells why."""

from __future__ import annotations

import math
import textwrap

from icrl_agents.studies.transfer.evaluation import ADAPTIVE, TRANSFORMERS
from icrl_agents.studies.transfer.summary import Summary, aligned

JUDGED = (TRANSFORMERS[0], ADAPTIVE)
"""The softmax transformer and the adaptive mixture."""
LARGEST_TD_SHARE = 0.4
"""A cell fails where more of the TD loss of v = 0 is left than this share."""
LARGEST_ERROR = 0.5
"""Or where the centred value error is larger than this; any constant scores 1."""


def failures(summary: Summary) -> list[tuple[str, str]]:
    """Returns domain and noise of the cells in which one of the judged evaluators fails.

    Where nothing varies there is nothing to fail at: relative errors that are not defined count as none. An evaluator
    that has no values fails.
    """
    cells = [(domain, noise) for domain in summary.domains for noise in summary.noise]
    return [cell for cell in cells if _unsolved(summary, *cell) or _too_large(summary, *cell)]


def failures_table(summary: Summary) -> str:
    """One line per failure: what the evaluators leave, and how far the returns vary that they saw and had to tell."""
    failed = failures(summary)
    lines = [["domain", "noise", *(f"TD loss, {name}" for name in JUDGED), *(f"centred, {name}" for name in JUDGED)]]
    lines[0] += [f"true, {name}" for name in JUDGED if summary.has_truth] + ["sd of returns seen", "to tell"]
    for domain, noise in failed:
        shares, errors = zip(*_errors(summary, domain, noise), strict=True)
        judged = JUDGED if summary.has_truth else ()
        true = [summary.true_error(domain, noise, name, summary.last_depth(name)).mean for name in judged]
        seen, unseen = summary.deviations(domain, noise)
        numbers = (*shares, *errors, *true, seen, unseen)
        lines.append([domain, noise, *("–" if math.isnan(number) else f"{number:.2f}" for number in numbers)])
    cells = len(summary.domains) * len(summary.noise)
    title = (
        f"Failures, {len(failed)} of {cells} cells: more than {LARGEST_TD_SHARE:g} of the TD loss of v = 0 left, or "
        f"centred error above {LARGEST_ERROR:g}."
    )
    if not failed:
        return title
    return f"{title}\n{textwrap.indent(aligned([lines[0], None, *lines[1:]], words=2), '  ')}"


def _unsolved(summary: Summary, domain: str, noise: str) -> bool:
    losses = (summary.td_loss(domain, noise, name, summary.last_depth(name)).mean for name in JUDGED)
    return any(map(math.isnan, losses))


def _too_large(summary: Summary, domain: str, noise: str) -> bool:
    errors = _errors(summary, domain, noise)
    return any(share > LARGEST_TD_SHARE or error > LARGEST_ERROR for share, error in errors)


def _errors(summary: Summary, domain: str, noise: str) -> list[tuple[float, float]]:
    """Share of the TD loss left and centred error of each judged evaluator."""
    return [
        (
            summary.relative_td_loss(domain, noise, name, summary.last_depth(name)).mean,
            summary.centred_error(domain, noise, name, summary.last_depth(name)).mean,
        )
        for name in JUDGED
    ]
