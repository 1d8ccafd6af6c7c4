"""The table of the pretraining study."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from icrl_agents.pretraining import PretrainResult, TrainingRow
from icrl_agents.studies.pretrain.generalisation import GeneralisationRow
from icrl_agents.studies.pretrain.statistics import interquartile_mean

DIVERGED = 1e3
"""Relative value errors from here on are called divergence."""
_NAMES = {"num_states": "states", "context_length": "transitions", "num_layers": "layers"}


def table(results: Sequence[PretrainResult], tests: Sequence[GeneralisationRow]) -> str:
    """One line per seed with the last measurements, the rate of signs, and one line per generalisation test."""
    linear = results[0].config.form == "linear"
    lines = [_linear_header() if linear else _softmax_header()]
    if tests[0].measure == "return":
        lines[0] = lines[0].replace(" value error", "return error")
    lines += [_linear_line(result) if linear else _softmax_line(result) for result in results]
    if not linear:
        hits = sum(result.rows[-1].has_td_signs for result in results)
        lines.append(f"signs (+,+,−) in {hits} of {len(results)} seeds")
    measured = "error against Monte-Carlo returns" if tests[0].measure == "return" else "relative value error"
    lines.append(f"\n{measured} on fresh tasks, interquartile mean over seeds (constructed transformer)")
    for changed in dict.fromkeys(row.changed for row in tests):
        lines.append(f"{_NAMES[changed]:>12}: " + "  ".join(_cells(tests, changed)))
    return "\n".join(lines)


def _softmax_header() -> str:
    return "seed   (w_R, w_u, w_v)        diagonality     value error  constructed  dist. row v  dist. V  dist. A"


def _softmax_line(result: PretrainResult) -> str:
    first, last = result.rows[0], result.rows[-1]
    weights = f"({last.weight_reward:+.2f}, {last.weight_target:+.2f}, {last.weight_value:+.2f})"
    return (
        f"{last.seed:>4}   {weights:<22} {first.diagonality:.2f} → {last.diagonality:.2f}     {_error(last)[0]:>11.3f}"
        f"  {_error(last)[1]:>11.3f}  {last.value_row_distance:>11.2f}  {last.value_distance:>7.2f}"
        f"  {last.attention_distance:>7.2f}"
    )


def _linear_header() -> str:
    return "seed  value error  constructed  value difference  weight similarity  sensitivity  dist. P  dist. Q"


def _linear_line(result: PretrainResult) -> str:
    last = result.rows[-1]
    return (
        f"{last.seed:>4}  {_error(last)[0]:>11.3f}  {_error(last)[1]:>11.3f}  {last.value_difference:>16.4f}"
        f"  {last.implicit_weight_similarity:>17.3f}  {last.sensitivity_similarity:>11.3f}  {last.value_distance:>7.2f}"
        f"  {last.attention_distance:>7.2f}"
    )


def _error(row: TrainingRow) -> tuple[float, float]:
    """Of the pretrained and of the constructed transformer, against whichever truth is known."""
    if math.isnan(row.value_error):
        return row.return_error, row.construction_return_error
    return row.value_error, row.construction_error


def _cells(tests: Sequence[GeneralisationRow], changed: str) -> list[str]:
    cells = []
    for value in sorted({row.value for row in tests if row.changed == changed}):
        rows = [row for row in tests if row.changed == changed and row.value == value]
        errors = interquartile_mean(np.array([[row.error, row.construction_error] for row in rows]))
        mark = "*" if value == rows[0].trained else ""
        found, constructed = (f"{error:.3g}" if error < DIVERGED else "diverges" for error in errors)
        cells.append(f"{value}{mark}: {found} ({constructed})")
    return cells
