"""Arguments spoilt at random: a clear error of our own, or finite numbers; never a bare crash, never NaN in silence."""

import math
import warnings
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from icrl_agents import constructions, evaluators, layers
from icrl_agents.divergence import DivergenceError
from icrl_agents.value_function import ValueFunction
from tests import calls, further_calls
from tests.calls import CONTEXT, KERNEL, POINTS, VALUE
from tests.properties import of

CALLS = calls.CALLS | further_calls.CALLS

SCALARS: dict[str, Any] = {
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "0": 0,
    "-1": -1,
    "-0.5": -0.5,
    "0.5": 0.5,
    "1.5": 1.5,
    "3": 3,
    "1e308": 1e308,
    "1e-320": 1e-320,
    "10**400": 10**400,
    "True": True,
    "None": None,
    "a word": "word",
    "no word": "",
    "bytes": b"auto",
    "complex": 1j,
    "Decimal": Decimal(1),
    "Fraction": Fraction(1, 2),
    "NumPy nan": np.float64(np.nan),
    "NumPy float16": np.float16(0.5),
    "NumPy bool": np.bool_(True),
    "NumPy int": np.int64(2),
    "object": object(),
    "type": dict,
    "empty dict": {},
    "empty list": [],
    "list": [1.0, 2.0],
    "ragged": [[1.0], [1.0, 2.0]],
    "nested None": [[None, 1.0]],
    "strings": ["a", "b"],
    "set": {1, 2},
    "generator": (x for x in ()),
    "lambda": lambda: 1.0,
    "two-place lambda": lambda x, y: 1.0,
    "context": CONTEXT,
    "kernel": KERNEL,
    "value": VALUE,
    "tensor ()": torch.tensor(0.5),
    "tensor (3,)": torch.ones(3),
    "tensor of ints": torch.arange(4),
    "0-d nan": torch.tensor(math.nan),
    "huge": np.full((5, 2), 1e200),
    "tiny": np.full((5, 2), 1e-200),
    "points": POINTS,
    "points, transposed": POINTS.T,
    "float32 points": torch.as_tensor(POINTS).float(),
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "records": np.zeros(3, dtype=[("a", float)]),
    "sparse": torch.eye(2).to_sparse(),
}
SPOILS = {
    "one nan": lambda a: put(a, math.nan),
    "one inf": lambda a: put(a, -math.inf),
    "one huge": lambda a: put(a, 1e300),
    "negative": lambda a: -a.astype(float),
    "a row less": lambda a: a[:-1],
    "no rows": lambda a: a[:0],
    "a batch axis": lambda a: a[None],
    "an axis more": lambda a: a[..., None],
    "no last axis": lambda a: a[..., 0],
    "transposed": lambda a: a.T,
    "halves": lambda a: a.astype(np.float16),
    "ints": lambda a: a.astype(int),
    "complex": lambda a: a.astype(complex),
    "booleans": lambda a: a.astype(bool),
    "objects": lambda a: a.astype(object),
    "strings": lambda a: a.astype(str),
    "long doubles": lambda a: a.astype(np.longdouble),
    "big-endian": lambda a: a.astype(">f8"),
    "a list": lambda a: a.tolist(),
    "masked": lambda a: np.ma.masked_array(a, mask=True),
    "read-only": lambda a: np.broadcast_to(a.flat[0], a.shape),
}


def put(array, number):
    array = array.astype(float)
    array[(0,) * array.ndim] = number
    return array


ERRORS = ("msve", "centred_msve", "relative_msve", "relative_centred_msve", "true_msve", "true_centred_msve")
"""Of values whose square is no number the error is none either, nor is one relative to targets that are all equal."""
BEYOND_FLOATS = "10**400"
COUNTS = ("num_sweeps", "num_layers", "loops", "landmarks", "sample", "num_steps", "count", "dim")
COUNTS += ("num_states", "num_features", "num_centers", "visits", "max_rounds", "copies", "episodes", "steps", "before")
COUNTS += ("states_per_episode", "continuations", "num_episodes", "max_episode_steps", "num_contexts", "context_length")
COUNTS += ("batches", "max_folds", "window", "epochs", "rollout_steps", "batch_size", "horizon")


def kinds(argument):
    """What may replace an argument: a number of sweeps that large is no mistake, but would take for ever."""
    return [kind for kind in (*SCALARS, *SPOILS) if kind != BEYOND_FLOATS or argument not in COUNTS]


@st.composite
def spoilt_calls(draw):
    """The name of a call, and what is to replace one or two of its arguments, by name."""
    name = draw(st.sampled_from(list(CALLS)))
    chosen = draw(st.lists(st.sampled_from(list(CALLS[name][1])), min_size=1, max_size=2, unique=True))
    return name, {argument: draw(st.sampled_from(kinds(argument))) for argument in chosen}


def spoil(valid: Any, how: str) -> Any:
    if how in SCALARS:
        return SCALARS[how]
    array = valid.numpy() if isinstance(valid, torch.Tensor) else valid
    array = array if isinstance(array, np.ndarray) else np.array([0.5, 0.5])
    return SPOILS[how](array)


def finite(result: Any) -> bool:
    if isinstance(result, torch.Tensor):
        return not result.is_floating_point() or bool(torch.isfinite(result).all())
    if isinstance(result, (list, tuple)):
        return all(map(finite, result))
    if isinstance(result, ValueFunction):
        return finite(result(POINTS))
    return not isinstance(result, (np.ndarray, float)) or bool(np.isfinite(result).all())


def attempt(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """What the call returns, or the error that it may raise; any other goes through."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(**arguments)
        except (ValueError, TypeError, DivergenceError) as error:
            return error


def call(name: str, how: Mapping[str, str]) -> None:
    """Makes the call with some arguments spoilt, and looks at what comes of it."""
    function, valid = CALLS[name]
    result = attempt(function, {**valid, **{argument: spoil(valid[argument], kind) for argument, kind in how.items()}})
    if isinstance(result, Exception):
        assert type(result) in (ValueError, TypeError, DivergenceError), repr(result)
        assert len(str(result)) > 20, repr(result)
    else:
        assert name in ERRORS or finite(result), result


@pytest.mark.parametrize("name", CALLS)
def test_a_call_with_nothing_spoilt_goes_through(name):
    function, arguments = CALLS[name]
    assert finite(function(**arguments))


@of(spoilt_calls(), ("kernel_diagonality", {"matrix": "one nan"}))
def test_what_does_not_fit_is_refused_or_has_finite_values(drawn):
    call(*drawn)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: evaluators.LinearTD(3, n),
        lambda n: evaluators.AverageRewardTD(3, 0.5, n),
        lambda n: evaluators.TDLambda(n, 3),
        lambda n: evaluators.LSTD(n),
        lambda n: evaluators.KernelLSTD(KERNEL, n),
        lambda n: evaluators.KernelTD(KERNEL, 3, n),
        lambda n: constructions.linear_td(2, 3, n),
        lambda n: constructions.average_reward_td(2, 3, 0.5, n),
    ],
)
def test_a_fraction_is_the_number_that_it_is(make):
    assert torch.equal(make(Fraction(1, 2)).fit(CONTEXT)(POINTS), make(0.5).fit(CONTEXT)(POINTS))


def test_numpy_integers_are_counts():
    assert torch.equal(
        evaluators.MonteCarlo(min_tail=np.int64(2)).fit(CONTEXT)(POINTS),
        evaluators.MonteCarlo(min_tail=2).fit(CONTEXT)(POINTS),
    )
    layer = constructions.weighted_softmax_td(KERNEL, 1).blocks[0]
    assert layers.export_multihead_attention(layer, np.int64(2)).attention.embed_dim == 7


def test_complex_kernels_are_refused():
    with pytest.raises(ValueError, match=r"kernel: expected real numbers, got torch\.complex128"):
        evaluators.KernelTD(lambda x, y: torch.exp(1j * (x @ y.mT)), 3).fit(CONTEXT)


def test_mixed_precision_is_refused_where_it_would_round():
    single = CONTEXT.to(dtype=torch.float32)
    value = evaluators.LSTD(0.1).fit(single)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for call in (lambda: evaluators.WeightedSoftmaxTD(KERNEL, 3).fit(single), lambda: value(POINTS.tolist())):
            with pytest.raises(TypeError, match=r"torch\.autocast would round torch\.float32 to torch\.bfloat16"):
                call()
        expected = evaluators.WeightedSoftmaxTD(KERNEL, 3).fit(CONTEXT)(POINTS)
    assert torch.equal(evaluators.WeightedSoftmaxTD(KERNEL, 3).fit(CONTEXT)(POINTS), expected)
