"""Each construction is its algorithm: after every layer, on every column and on held-out states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
import torch

from icrl_agents import constructions, kernels
from icrl_agents.constructions.memory import Form
from icrl_agents.divergence import DivergenceError
from icrl_agents.studies.verify import plain
from icrl_agents.studies.verify.config import VerifyConfig
from icrl_agents.studies.verify.rows import EXACT, Row, largest
from icrl_agents.studies.verify.samples import ENVIRONMENTS, Sample, largest_error, samples
from icrl_agents.transformer import InContextTransformer, Layer

DEPTH = 40
SOFTMAX, KERNEL, LINEAR = "2605.07333", "2605.09727", "2405.13861"

Build = Callable[[Sample], InContextTransformer]
Algorithm = Callable[[Sample], np.ndarray]
OfDim = Callable[[int], kernels.Kernel]


def bilinear(dim: int) -> torch.Tensor:
    """Some matrix ``(d, d)`` that is not symmetric."""
    i = torch.arange(dim, dtype=torch.float64)
    return torch.eye(dim, dtype=torch.float64) + 0.3 * torch.sin(3 * i[:, None] + i)


SCORES: dict[str, tuple[OfDim, plain.Score]] = {
    "RBF": (lambda d: kernels.RBF(0.7), lambda x, y: -plain.squared_distance(x / 0.7, y / 0.7) / 2),
    "Laplace": (lambda d: kernels.Laplace(0.5), lambda x, y: -np.sqrt(plain.squared_distance(x, y)) / 0.5),
    "exponential": (lambda d: kernels.Exponential(0.8), lambda x, y: x @ y.T / 0.8),
    "bilinear": (
        lambda d: kernels.DotProduct(bilinear(d)),
        lambda x, y: x @ bilinear(x.shape[1]).numpy() @ y.T,
    ),
    "indicator": (
        lambda d: kernels.Identity(),
        lambda x, y: np.where(plain.squared_distance(x, y) == 0, 0.0, -np.inf),
    ),
}
KERNELS = {
    **{name: (build, lambda x, y, g=score: np.exp(g(x, y))) for name, (build, score) in SCORES.items()},
    "linear": (lambda d: kernels.Linear(), lambda x, y: x @ y.T),
    "ReLU": (lambda d: kernels.ReLU(), lambda x, y: np.maximum(x @ y.T, 0.0)),
}


def check_constructions(config: VerifyConfig) -> Iterator[Row]:
    """Yields a row per construction and form."""
    forms: tuple[Form, ...] = ("dual_head", "temporal_shift")
    for form in forms:
        title = form.replace("_", "-")
        softmax = [_softmax(form, kernel, score) for kernel, score in SCORES.values()]
        yield _row(config, f"{title} softmax transformer = weighted softmax TD", SOFTMAX, softmax, "5 scores")
        kernel = [_kernel(form, kernel, kappa) for kernel, kappa in KERNELS.values()]
        yield _row(config, f"{title} non-linear transformer = kernel TD", KERNEL, kernel, "7 kernels")
    yield from _linear_rows(config)


def _softmax(form: Form, kernel: OfDim, score: plain.Score) -> tuple[Build, Algorithm]:
    return (
        lambda s: constructions.weighted_softmax_td(kernel(s.context.dim), DEPTH, 0.8, form=form),
        lambda s: plain.softmax_td(s.transitions, score, s.queries, DEPTH, 0.8),
    )


def _kernel(form: Form, kernel: OfDim, kappa: plain.Score) -> tuple[Build, Algorithm]:
    return (
        lambda s: constructions.kernel_td(kernel(s.context.dim), DEPTH, form=form),
        lambda s: plain.kernel_td(s.transitions, kappa, s.queries, DEPTH),
    )


def _linear_rows(config: VerifyConfig) -> Iterator[Row]:
    family: dict[str, tuple[Build, Algorithm]] = {
        "TD(0)": (
            lambda s: constructions.linear_td(s.context.dim, DEPTH),
            lambda s: plain.linear_td(s.transitions, s.queries, DEPTH),
        ),
        "TD(λ)": (
            lambda s: constructions.td_lambda(s.context.dim, DEPTH, 0.7),
            lambda s: plain.linear_td(s.transitions, s.queries, DEPTH, 0.7),
        ),
        "residual gradient": (
            lambda s: constructions.residual_gradient(s.context.dim, DEPTH),
            lambda s: plain.residual_gradient(s.transitions, s.queries, DEPTH),
        ),
        "average-reward TD": (
            lambda s: constructions.average_reward_td(s.context.dim, DEPTH),
            lambda s: plain.average_reward_td(s.transitions, s.queries, DEPTH),
        ),
    }
    for name, pair in family.items():
        continuing = name == "average-reward TD"
        yield _row(config, f"linear transformer = {name}", LINEAR, [pair], "features", continuing=continuing)


def _row(
    config: VerifyConfig,
    claim: str,
    source: str,
    cases: list[tuple[Build, Algorithm]],
    what: str,
    *,
    continuing: bool = False,
) -> Row:
    found = samples(config.first_seed, config.device, continuing=continuing)
    error = largest(_error(build(sample), algorithm(sample), sample) for sample in found for build, algorithm in cases)
    on = f"{what}, {len(found)} contexts of {len(ENVIRONMENTS)} environments, layers 0–{DEPTH}"
    return Row(claim=claim, source=source, on=on, measured=error, at_most=EXACT)


def _error(transformer: InContextTransformer, expected: np.ndarray, sample: Sample) -> float:
    """Of what the forward pass reads out of the query columns, and of the fitted value function.

    Where the algorithm itself diverges the latter is refused, and the former must diverge with it, layer by layer.
    """
    everywhere = torch.cat([sample.context.states, torch.as_tensor(sample.queries).to(sample.context.points)])
    read_out = cast(Layer, transformer.blocks[0]).read_out
    columns = [read_out(tokens)[-len(everywhere) :] for tokens in transformer.hidden_states(sample.context, everywhere)]
    error = largest_error(torch.stack(columns), expected)
    try:
        fitted = transformer.fit(sample.context).by_depth(everywhere).mT
    except DivergenceError:
        bound = float(sample.context.rewards.abs().max() / (1.0 - sample.context.discounts.max()))
        return (
            error if np.abs(expected).max() > bound else float("inf")
        )  # of a layer that is not the sweep it should be
    return largest([error, largest_error(fitted, expected)])
