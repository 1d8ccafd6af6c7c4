"""Figures of the pretraining study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from icrl_agents.diagnostics.emergence import attention_by_layer
from icrl_agents.layers import LinearAttentionLayer
from icrl_agents.pretraining import PretrainResult
from icrl_agents.pretraining.batches import evaluation_batch
from icrl_agents.pretraining.model import construction, random_transformer
from icrl_agents.studies.pretrain.generalisation import GeneralisationRow
from icrl_agents.studies.pretrain.statistics import bootstrap_band
from icrl_agents.studies.pretrain.summary import DIVERGED
from icrl_agents.studies.results import write_figure
from icrl_agents.transformer import InContextTransformer

COLOURS = ("#0b6fb8", "#d97706", "#15803d", "#7c3aed")
SNAPSHOTS = 4
LEGEND: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "framealpha": 1.0, "fontsize": 8}
"""Of a legend that no line strikes through."""
LABELS = {"num_states": "states S", "context_length": "context length n", "num_layers": "layers L"}

Curves = dict[str, str]
SOFTMAX_PANELS: tuple[tuple[str, Curves], ...] = (
    ("value weights", {"weight_reward": "on R", "weight_target": "on u", "weight_value": "on v"}),
    ("mean kernel diagonality", {"diagonality": "pretrained"}),
    ("relative value error", {"value_error": "pretrained", "construction_error": "constructed, same depth"}),
    (
        "distance to the construction",
        {"value_row_distance": "row v of V", "value_distance": "V", "attention_distance": "A"},
    ),
)
LINEAR_PANELS: tuple[tuple[str, Curves], ...] = (
    ("relative value difference to the construction", {"value_difference": "value difference"}),
    (
        "similarity to the construction",
        {"implicit_weight_similarity": "implicit weights", "sensitivity_similarity": "sensitivity"},
    ),
    ("relative value error", {"value_error": "pretrained", "construction_error": "constructed, same depth"}),
    ("distance to the construction", {"value_distance": "P", "attention_distance": "Q"}),
)
RETURN_PANEL: tuple[str, Curves] = (
    "relative error against Monte-Carlo returns",
    {"return_error": "pretrained", "construction_return_error": "constructed, RBF kernel"},
)


def training_figure(results: Sequence[PretrainResult], path: Path) -> None:
    """Measurements along training: interquartile means over seeds with 95 % bootstrap bands."""
    panels = LINEAR_PANELS if results[0].config.form == "linear" else SOFTMAX_PANELS
    if results[0].config.chain == "cartpole":
        panels = [RETURN_PANEL if title == "relative value error" else (title, own) for title, own in panels]
    figure, axes = _grid(1, len(panels), width=3.6, height=3.0)
    steps = [row.step for row in results[0].rows]
    for axis, (title, curves) in zip(axes[0], panels, strict=True):
        for colour, (name, label) in zip(COLOURS, curves.items(), strict=False):
            samples = np.array([[getattr(row, name) for row in result.rows] for result in results])
            _draw_band(axis, steps, samples, colour, label)
        axis.set(title=title, xlabel="step", xlim=(0, steps[-1]))
        if title.startswith("relative"):
            axis.set_yscale("log")
        elif title == "value weights":
            axis.axhline(0.0, color="black", linewidth=0.6)
        else:
            axis.set_ylim(top=1.02)
        axis.grid(alpha=0.25, linewidth=0.5)
        if len(curves) > 1:
            axis.legend(**LEGEND)
    write_figure(figure, path)


def attention_figure(result: PretrainResult, path: Path) -> None:
    """Attention of states to states on one held-out task, or P and Q, over training beside the construction.

    The task is the one whose context visits most states.
    """
    chosen = (np.linspace(0, 1, SNAPSHOTS + 1) ** 2 * (len(result.rows) - 1)).round().astype(int)
    transformers = [_restored(result, index) for index in chosen] + [construction(result.config)]
    titles = [f"step {result.rows[index].step}" for index in chosen] + ["construction"]
    pictures = [_pictures(transformer, result) for transformer in transformers]
    figure, axes = _grid(len(pictures[0]), len(pictures), width=2.1, height=2.2)
    for column, (title, matrices) in enumerate(zip(titles, pictures, strict=True)):
        for row, (name, matrix) in enumerate(matrices.items()):
            axis = axes[row, column]
            largest = float(np.abs(matrix).max())
            scale: dict[str, Any] = {"vmin": -largest, "vmax": largest, "cmap": "RdBu_r"}
            if name.startswith("layer"):
                scale = {"vmin": 0.0, "vmax": max(other[name].max() for other in pictures), "cmap": "viridis"}
            image = axis.imshow(matrix, **scale)
            axis.set(xticks=[], yticks=[], title=title if row == 0 else "")
            if column == 0:
                axis.set_ylabel(name)
            if name.startswith("layer") and column == len(pictures) - 1:
                figure.colorbar(image, ax=axis, shrink=0.8, label="attention weight")
    write_figure(figure, path)


def generalisation_figure(rows: Sequence[GeneralisationRow], path: Path) -> None:
    """Value errors on fresh tasks against each number that differs from training, which is marked."""
    changes = list(dict.fromkeys(row.changed for row in rows))
    figure, axes = _grid(1, len(changes), width=3.8, height=3.0, shared=True)
    for axis, changed in zip(axes[0], changes, strict=True):
        own = [row for row in rows if row.changed == changed]
        values = sorted({row.value for row in own})
        for colour, name, label in zip(
            COLOURS, ("error", "construction_error"), ("pretrained", "constructed, same depth"), strict=False
        ):
            by_seed = {seed: {row.value: getattr(row, name) for row in own if row.seed == seed} for seed in _seeds(own)}
            samples = np.array([[errors[value] for value in values] for errors in by_seed.values()])
            samples = np.where(samples < DIVERGED, samples, np.nan)
            _draw_band(axis, values, samples, colour, label, marker="o")
        axis.axvline(own[0].trained, color="black", linewidth=0.8, linestyle=":", label="trained with")
        axis.set(xlabel=LABELS[changed], xscale="log", yscale="log")
        axis.set_xticks(values, [str(value) for value in values])
        axis.xaxis.minorticks_off()
        axis.grid(alpha=0.25, linewidth=0.5)
    truth = "exact values" if rows[0].measure == "value" else "Monte-Carlo returns"
    axes[0, 0].set_ylabel(f"relative error against {truth}")
    axes[0, 0].legend(**LEGEND)
    write_figure(figure, path)


def _pictures(transformer: InContextTransformer, result: PretrainResult) -> dict[str, np.ndarray]:
    block = transformer.blocks[0]
    if isinstance(block, LinearAttentionLayer):
        named = {"P": block.P, "Q": block.Q}
        heads = range(len(block.P))
        return {
            f"{n}{h + 1 if len(heads) > 1 else ''}": W[h].numpy(force=True) for h in heads for n, W in named.items()
        }
    contexts = evaluation_batch(result.config).contexts
    task = int((contexts.counts > 0).sum(-1).argmax())
    contexts = contexts.rows(slice(task, task + 1))
    with torch.no_grad():
        matrices = attention_by_layer(transformer, contexts)
    same = result.config.parametrisation == "minimal" and result.config.tied
    layers = [0] if same else [0, len(matrices) - 1]
    return {f"layer {layer + 1}": matrices[layer][0].numpy(force=True) for layer in layers}


def _restored(result: PretrainResult, index: int) -> InContextTransformer:
    transformer = random_transformer(result.config)
    transformer.load_state_dict(result.snapshots[index])
    return transformer


def _draw_band(
    axis: Axes, x: Sequence[int], samples: np.ndarray, colour: str, label: str, marker: str | None = None
) -> None:
    band = bootstrap_band([samples], np.random.default_rng(0))
    axis.margins(x=0.03)
    axis.plot(x, band.centre, color=colour, linewidth=1.5, label=label, marker=marker, markersize=3)
    if len(samples) > 1:
        axis.fill_between(x, band.low, band.high, color=colour, alpha=0.2, linewidth=0)


def _seeds(rows: Sequence[GeneralisationRow]) -> list[int]:
    return list(dict.fromkeys(row.seed for row in rows))


def _grid(rows: int, columns: int, *, width: float, height: float, shared: bool = False) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(width * columns, height * rows + 0.3), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, sharey=shared)
