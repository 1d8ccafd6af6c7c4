"""Messages of the argument checks."""

import math

import numpy as np
import pytest

from icrl_envs import arguments


def test_good_values_come_back_as_python_numbers():
    assert arguments.choice("noise", "mid", ("high", "mid", "low")) == "mid"
    assert type(arguments.integer("n", np.int32(3), 2)) is int
    assert type(arguments.real("x", np.float32(0.5), 0.0, 1.0)) is float
    assert arguments.real("x", 1, 0.0, 1.0) == 1.0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: arguments.choice("noise", "hgh", ("high", "low")), ValueError, "noise must be one of 'high', 'low'"),
        (lambda: arguments.choice("noise", "hgh", ("high", "low")), ValueError, r"Did you mean 'high'\?$"),
        (lambda: arguments.choice("noise", "xyz", ("high", "low")), ValueError, "got 'xyz'.$"),
        (lambda: arguments.choice("noise", 3, ("high", "low")), TypeError, "noise .* got 3 of type int"),
        (lambda: arguments.integer("n", 1, 2), ValueError, "n must be an integer ≥ 2; got 1"),
        (lambda: arguments.integer("n", 9, 2, 8), ValueError, r"n must be an integer in \[2, 8\]; got 9"),
        (lambda: arguments.integer("n", True, 0), TypeError, "n .* of type bool"),
        (lambda: arguments.integer("n", 2.0, 0), TypeError, "n .* of type float"),
        (lambda: arguments.real("x", "1", 0), TypeError, "x .* of type str"),
        (lambda: arguments.real("x", False, 0), TypeError, "x .* of type bool"),
        (lambda: arguments.real("x", math.nan, 0), ValueError, "x .* got nan"),
        (lambda: arguments.real("x", math.inf, 0), ValueError, r"x must be a finite number in \[0, inf\); got inf"),
        (lambda: arguments.real("x", 0.0, 0, low_open=True), ValueError, r"in \(0, inf\); got 0.0"),
        (lambda: arguments.discount(-0.1), ValueError, r"gamma must be .* \[0, 1\)"),
        (lambda: arguments.reset_task_seed([1]), TypeError, "options must be a dictionary"),
        (lambda: arguments.reset_task_seed({"seed": 1}), ValueError, "options"),
        (lambda: arguments.reset_task_seed({"task_seed": "1"}), TypeError, "task_seed"),
    ],
)
def test_bad_values_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
