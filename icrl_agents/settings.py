"""Settings that may come out of an array."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_python(settings: Any) -> None:  # noqa: ANN401 - a frozen dataclass instance
    """Makes numbers of NumPy's among its fields, and in their tuples, those of Python: torch and JSON ask for them."""
    for name, value in list(vars(settings).items()):
        if isinstance(value, np.generic):
            object.__setattr__(settings, name, value.item())
        elif type(value) is tuple and any(isinstance(each, np.generic) for each in value):
            kept = tuple(each.item() if isinstance(each, np.generic) else each for each in value)
            object.__setattr__(settings, name, kept)
