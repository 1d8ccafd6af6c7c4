"""Kernels with their formulas, algorithms over them, and any evaluator at all, at random."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from icrl_agents import constructions, kernels
from icrl_agents.evaluators import (
    LSTD,
    KernelLSTD,
    KernelTD,
    LinearTD,
    MonteCarlo,
    ResidualGradient,
    TabularTD,
    TDLambda,
    WeightedSoftmaxTD,
)
from icrl_agents.kernels import Kernel
from tests import oracles
from tests.strategies import Sample, generators, samples

forms = st.sampled_from(["temporal_shift", "dual_head"])


@dataclass(frozen=True)
class Chosen:
    """A kernel, and of a context's states its score log κ as a plain function; κ itself if it may not be normalised."""

    kernel: Kernel
    score: Callable[[list[list[float]]], Callable[[Any, Any], float]]
    softmax: bool = True

    def kappa(self, states):
        """κ as a plain function."""
        return oracles.exp_of(self.score(states)) if self.softmax else self.score(states)


def manhattan(length_scale):
    return lambda x, y: -sum(abs(a - b) for a, b in zip(x, y, strict=True)) / length_scale


def quadratic(x, y):
    return 1.0 + (x @ y.mT).square()


def matrix(dim):
    """Some matrix (d, d) that is not symmetric."""
    return [[(i == j) + 0.3 * math.sin(3 * i + j) for j in range(dim)] for i in range(dim)]


def bilinear(dim):
    B = torch.tensor(matrix(dim), dtype=torch.float64)
    return Chosen(kernels.DotProduct(B), lambda states: oracles.bilinear(matrix(dim)))


RADIAL = {kernels.RBF: oracles.rbf, kernels.Laplace: oracles.laplace, kernels.ProductLaplace: manhattan}
PLAIN = {
    "DotProduct": bilinear,
    "Exponential": lambda dim: Chosen(kernels.Exponential(0.8), lambda states: oracles.exponential(0.8)),
    "Identity": lambda dim: Chosen(kernels.Identity(), lambda states: oracles.indicator),
    "callable": lambda dim: Chosen(quadratic, lambda states: oracles.quadratic),
    "Linear": lambda dim: Chosen(kernels.Linear(), lambda states: oracles.dot, softmax=False),
    "ReLU": lambda dim: Chosen(kernels.ReLU(), lambda states: oracles.rectified_dot, softmax=False),
}


@st.composite
def radial(draw, dim):
    """A kernel of a distance: with one width, one for each dimension, or that of each context."""
    cls, kind = draw(st.sampled_from(list(RADIAL))), draw(st.sampled_from(["number", "tensor", "median"]))
    formula, width = RADIAL[cls], 10.0 ** draw(st.floats(-1.5, 1.5))
    if kind == "median":
        return Chosen(cls("median"), lambda states: formula(oracles.median_distance(states)))
    if kind == "number":
        return Chosen(cls(width), lambda states: formula(width))
    widths = [width * (1 + i) for i in range(dim)]

    def score(x, y):
        return formula(1.0)(*([a / w for a, w in zip(z, widths, strict=True)] for z in (x, y)))

    return Chosen(cls(torch.tensor(widths, dtype=torch.float64)), lambda states: score)


def chosen_kernels(dim, left_out=()):
    """Any kernel on states of ``dim`` dimensions."""
    plain = [make for name, make in PLAIN.items() if name not in left_out]
    return st.one_of(radial(dim), st.sampled_from(plain).map(lambda make: make(dim)))


@dataclass(frozen=True)
class Scenario:
    """A context, an algorithm of the kernel family, and states to ask about."""

    sample: Sample
    chosen: Chosen
    softmax: bool
    step_size: Any
    sweeps: int
    queries: np.ndarray

    @property
    def context(self):
        return self.sample.context

    def evaluator(self, sweeps=None, **settings):
        algorithm = WeightedSoftmaxTD if self.softmax else KernelTD
        return algorithm(self.chosen.kernel, self.sweeps if sweeps is None else sweeps, self.step_size, **settings)

    def transformer(self, form="temporal_shift"):
        build = constructions.weighted_softmax_td if self.softmax else constructions.kernel_td
        return build(self.chosen.kernel, self.sweeps, self.step_size, form=form)

    @property
    def everywhere(self):
        """The queries and every state of the context."""
        return torch.as_tensor(np.concatenate([self.queries, self.sample.states]))

    def expected(self):
        """v_ℓ everywhere by plain loops, ``(m + n, L+1)``."""
        rows = self.sample.rows
        states, algorithm = [x for x, *_ in rows], oracles.softmax_td if self.softmax else oracles.kernel_td
        formula = (self.chosen.score if self.softmax else self.chosen.kappa)(states)
        step = 1.0 if not self.softmax and not any(formula(x, y) for x in states for y in states) else self.step_size
        return torch.tensor(algorithm(rows, formula, self.sweeps, self.everywhere.tolist(), step), dtype=torch.float64)


@st.composite
def scenarios(draw, least=0, left_out=(), sampled=samples):
    """Scenarios of every kind of context and kernel."""
    sample = draw(sampled(least))
    chosen = draw(chosen_kernels(sample.dim, left_out))
    softmax = chosen.softmax and draw(st.booleans())
    step = draw(st.sampled_from([1.0, 0.3] if softmax else ["auto", 0.05]))
    queries = np.concatenate([sample.states[:1], draw(generators).normal(size=(3, sample.dim))])
    return Scenario(sample, chosen, softmax, step, draw(st.integers(0, 5)), queries)


@st.composite
def evaluators(draw, dim, *, traces=True):
    """Any evaluator on states of ``dim`` dimensions; without ``traces``, of those that do not ask what follows what."""
    chosen, L, form = draw(chosen_kernels(dim)), draw(st.integers(0, 5)), draw(forms)
    kernel, ridge = chosen.kernel, draw(st.sampled_from([0.1, 3.0]))
    options = [
        lambda: KernelTD(kernel, L),
        lambda: TabularTD(L, 0.7),
        lambda: LinearTD(L),
        lambda: ResidualGradient(L),
        lambda: LSTD(ridge),
        lambda: KernelLSTD(kernel, ridge),
        lambda: constructions.kernel_td(kernel, L, form=form),
        lambda: constructions.linear_td(dim, L),
        lambda: constructions.residual_gradient(dim, L),
    ]
    if traces:
        options += [lambda: TDLambda(0.7, L), lambda: constructions.td_lambda(dim, L, 0.7), MonteCarlo]
    if chosen.softmax:
        options += [
            lambda: WeightedSoftmaxTD(kernel, L),
            lambda: constructions.weighted_softmax_td(kernel, L, 0.5, form=form),
            lambda: KernelLSTD(kernel, ridge, normalise=True),
        ]
        options += [lambda: MonteCarlo(kernel)] * traces
    return draw(st.sampled_from(options))()


def rewards_of(sample):
    return float(np.abs(sample.rewards).max(initial=0.0))


@st.composite
def fits(draw, least=0, sampled=samples, **options):
    """A sample, an evaluator of any kind for it, and a source of numbers."""
    sample = draw(sampled(least))
    return sample, draw(evaluators(sample.dim, **options)), draw(generators)
