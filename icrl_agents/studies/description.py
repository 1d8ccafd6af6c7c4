"""What a run is: everything that is needed to repeat it, and everything that its rows depend on."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

NOT_RESULTS = ("out", "cache", "workers", "executor", "ray_address", "tensorboard", "from_", "tolerance", "trust")
"""Settings that decide where and how a run is computed, and not what comes out."""
_PACKAGES = ("icrl", "gymnasium", "metaworld", "mujoco", "numpy", "scipy", "torch")
LEARNER = "stable-baselines3"
"""Decides results where policies are learned, or saved ones read."""


def describe(config: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass instance
    """Study, settings, versions and command of a run, ready for JSON; of a training, how many processes share it."""
    shared = _study(config) == "pretrain" and "TORCHELASTIC_RUN_ID" in os.environ  # by torchrun
    return {
        "study": _study(config),
        "settings": json.loads(json.dumps(dataclasses.asdict(config), default=str)),
        "versions": versions(config),
        "command": command(config),
        **({"processes": int(os.environ["WORLD_SIZE"])} if shared else {}),
    }


def versions(config: Any) -> dict[str, str]:  # noqa: ANN401 - a dataclass instance
    """Versions of Python, of the libraries that decide a run's results, and of this package's source.

    Where the policy is a saved model, its content has a version too.
    """
    policy = str(getattr(config, "policy", ""))
    saved = policy.endswith(".zip")
    found = installed((LEARNER,) if saved or _study(config) == "control" else ())
    return found | ({"policy": hashlib.sha256(Path(policy).read_bytes()).hexdigest()[:16]} if saved else {})


def installed(others: Sequence[str] = ()) -> dict[str, str]:
    """Versions of Python, of libraries, ``others`` among them, and of this package's source, in this process."""
    names = (*_PACKAGES, *others)
    return {"python": platform.python_version(), **{name: _version(name) for name in names}, "source": source_digest()}


def identity(config: Any) -> str:  # noqa: ANN401 - a dataclass instance
    """Everything that decides the rows of a run: its study, settings and versions, as JSON."""
    described = describe(config)
    settings = {name: value for name, value in described["settings"].items() if name not in NOT_RESULTS}
    return json.dumps([described["study"], settings, described["versions"]], sort_keys=True)


def command(config: Any) -> list[str]:  # noqa: ANN401 - a dataclass instance
    """The command line of a configuration: its study, and every option off its default."""
    words = ["icrl", _study(config)]
    for field in dataclasses.fields(config):
        value, option = getattr(config, field.name), field.name.rstrip("_").replace("_", "-")
        if value == field.default:
            continue
        given = list(map(str, value if isinstance(value, (tuple, list)) else [value]))
        if isinstance(field.default, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += given if "Positional" in str(field.type) else [f"--{option}", *given]
    return words


@functools.cache
def source_digest(*folders: str) -> str:
    """A hash of the source of both packages: rows of changed code are not taken for those of the code as it is.

    Args:
        folders: Parts of the packages, such as ``"icrl_envs/metaworld"``; default all.
    """
    digest, root = hashlib.sha256(), Path(__file__).parents[2]
    for folder in folders or ("icrl_agents", "icrl_envs"):
        for path in sorted(filter(Path.is_file, (root / folder).rglob("*.py"))):  # not the links that editors leave
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _study(config: Any) -> str:  # noqa: ANN401 - a dataclass instance
    """The study that the configuration's module belongs to."""
    return type(config).__module__.split(".")[-2]


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"
