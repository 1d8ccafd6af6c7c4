"""Saved Stable-Baselines3 models as policies (extra ``[sb3]``)."""

from __future__ import annotations

import importlib
import json
import zipfile
from pathlib import Path
from typing import Any

from icrl_agents.extras import import_extra
from icrl_agents.files import at_home

MARKS = {
    "evaluator": "InContextPPO",
    "clip_range": "PPO",
    "gae_lambda": "A2C",
    "exploration_fraction": "DQN",
    "target_entropy": "SAC",
    "policy_delay": "TD3",
}
"""What a saved model holds, and the class that loads it; DDPG is a TD3, and a model with ``clip_range`` also has
``gae_lambda``; of marks that one model has, the first counts."""


def _untrainable(progress_remaining: float) -> float:
    """The learning rate of a loaded model, asked for at 1 when it is set up and below that in training."""
    if progress_remaining < 1.0:
        raise ValueError(
            "load_model: the model is for prediction, without its learning rate and other settings of its training; "
            "to train it on, load it by its class, for instance PPO.load(path, env=env)."
        )
    return 0.0


_REPLACED = {
    "learning_rate": _untrainable,
    **dict.fromkeys(("lr_schedule", "clip_range", "exploration_schedule"), 0.0),
    "clip_range_vf": None,
    "buffer_size": 1,
    "replay_buffer_class": None,
    "replay_buffer_kwargs": {},
}
"""What prediction does not need: schedules of the training, which were pickled, and room for its transitions,
which for hindsight replay would need the environment."""


def load_model(path: str | Path) -> Any:  # noqa: ANN401 - a model of a library that need not be there
    """Returns a saved Stable-Baselines3 model, ready for ``FixedPolicy``, ``collect`` and whatever takes a policy.

    Stable-Baselines3's own loader unpickles parts of the file, and a pickle can run any code: load only files that
    you trust. The class is told by what the file holds; a model of another class you load yourself, and pass the model.
    It predicts, and refuses to be trained on. It gets observations as they are: what a ``VecNormalize`` made of them
    is not in the file.

    Args:
        path: What the model's ``save`` was given or wrote, by PPO, A2C, DQN, SAC, TD3, DDPG or InContextPPO.

    Raises:
        MissingExtraError: If Stable-Baselines3 is not installed.
        OSError: If the file cannot be read.
        ValueError: If it is no such model.
    """
    path, zipped = at_home(path), at_home(f"{path}.zip")  # save("m") writes m.zip
    path = zipped if zipped.exists() and not path.exists() else path
    name = _algorithm(path)
    library = import_extra("stable_baselines3", "sb3", "A Stable-Baselines3 model")
    if name == "InContextPPO":
        library = importlib.import_module("icrl_agents.integrations.sb3")
    try:
        return getattr(library, name).load(path, device="cpu", custom_objects=_REPLACED)
    except Exception as error:  # the loader fails in many ways on what it cannot unpickle
        raise ValueError(
            f"{path}: Stable-Baselines3 cannot load it as {name} ({type(error).__name__}: {error}); load it yourself "
            "and pass the model as policy."
        ) from error


def _algorithm(path: Path) -> str:
    """The class that saved a model, told without unpickling anything."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = json.loads(archive.read("data"))
    except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path}: is no model that Stable-Baselines3 saved, or damaged ({error}).") from None
    for mark, name in MARKS.items():
        if mark in names:
            return name
    raise ValueError(
        f"{path}: is no model of PPO, A2C, DQN, SAC, TD3, DDPG or InContextPPO; load it yourself and pass the model "
        "as policy."
    )
