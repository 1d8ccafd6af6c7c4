"""Ground truth on disk: computed once, written whole or not at all, read without running anything."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from icrl_agents.arrays import check_kind
from icrl_agents.files import DAMAGE, at_home, check_writable, write_atomically
from icrl_agents.ground_truth.values import GroundTruth

FORMAT = 2
"""Raised whenever the same description would give other values, so that no stale ones are reused."""


def kept_truth(path: str | Path, description: Mapping[str, Any], compute: Callable[[], GroundTruth]) -> GroundTruth:
    """Returns the ground truth in ``path``, or computes it and keeps it there.

    Args:
        path: An ``.npz`` file; its folder is made if it is missing.
        description: Everything that the values depend on, ready for JSON: environment, seeds, numbers. Versions of
            the libraries are added to it.
        compute: Called where the file is missing, damaged or of another description; of the latter two it is replaced,
            which is told by a warning.

    Raises:
        TypeError: If JSON cannot hold the description, or ``compute`` gives no ground truth.
        ValueError: If the file is no ground truth.
        OSError: If the folder cannot be written, which is found out before anything is computed.
    """
    path, described = at_home(path), _described(description)
    try:
        return _load(path, described)
    except FileNotFoundError:
        pass
    except DAMAGE as error:
        if _is_another(path):
            raise ValueError(
                f"{path}: expected a ground truth, or no file yet, got another file ({error}), which would be lost; "
                "take another path, or remove it."
            ) from None
        warnings.warn(f"{path}: not used ({error}); computing it again, and replacing the file.", stacklevel=2)
    check_writable(path.parent)
    truth = compute()
    check_kind("what compute returns", truth, GroundTruth)
    _save(path, described, truth)
    return truth


def _described(description: Mapping[str, Any]) -> str:
    versions = {name: version(name) for name in ("gymnasium", "metaworld", "mujoco", "numpy")}
    described = {"format": FORMAT, "versions": versions, "description": dict(description)}
    try:
        return json.dumps(described, sort_keys=True)
    except TypeError as error:
        raise TypeError(f"description: expected strings, numbers and lists, as JSON has them: {error}.") from None


def _save(path: Path, described: str, truth: GroundTruth) -> None:
    buffer = io.BytesIO()
    np.savez(
        buffer,
        allow_pickle=False,
        description=np.array(described),
        observations=truth.observations,
        returns=truth.returns,
        gamma=np.array(truth.gamma),
        horizon=np.array(truth.horizon),
    )
    write_atomically(path, buffer.getvalue())


def _is_another(path: Path) -> bool:
    """Whether a file that could not be used never was a ground truth; of one that is damaged, a name is left."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return bool(content.strip(b"\0")) and b"description.npy" not in content  # zeros are what a power cut leaves


def _load(path: Path, described: str) -> GroundTruth:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        if str(arrays["description"]) != described:
            raise ValueError("it holds other states or other versions")
        observations, returns = arrays["observations"], arrays["returns"]
        if returns.ndim != 2 or observations.ndim != 2 or len(returns) != len(observations):
            raise ValueError("its arrays do not fit each other")
        return GroundTruth(observations, returns, float(arrays["gamma"]), int(arrays["horizon"]))
