"""The state of an unfinished training: one safetensors file whose header holds JSON; nothing is ever unpickled."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from icrl_agents.files import check_writable, write_atomically
from icrl_agents.pretraining.config import PretrainConfig
from icrl_agents.pretraining.measurements import TrainingRow
from icrl_agents.transformer import InContextTransformer

STATE = "training.safetensors"
_FORMAT = "2"


@dataclass(eq=False)
class TrainingState:
    """Everything that the next step depends on; tasks and contexts depend on the step's number alone.

    Args:
        config: The configuration.
        transformer: The transformer in training.
        optimiser: Its optimiser.
        losses: Loss of each step so far.
        rows: Measurements so far.
        snapshots: Weights at each row.
    """

    config: PretrainConfig
    transformer: InContextTransformer
    optimiser: torch.optim.Adam
    losses: list[float] = field(default_factory=list)
    rows: list[TrainingRow] = field(default_factory=list)
    snapshots: list[dict[str, torch.Tensor]] = field(default_factory=list)


def save_state(state: TrainingState, folder: Path) -> None:
    """Writes the state into ``folder``, made if missing, whole or not at all."""
    tensors = {"losses": torch.tensor(state.losses, dtype=torch.float64, device="cpu")}
    for name, parameter in state.transformer.named_parameters():
        tensors[f"weight.{name}"] = parameter.detach()
        for key, value in state.optimiser.state[parameter].items():
            tensors[f"adam.{key}.{name}"] = value
        for i, snapshot in enumerate(state.snapshots):
            tensors[f"row.{i}.{name}"] = snapshot[name]
    header = {
        "format": _FORMAT,
        "config": json.dumps(dataclasses.asdict(state.config)),
        "rows": json.dumps([dataclasses.asdict(row) for row in state.rows]),
    }
    tensors = {name: tensor.cpu().contiguous().clone() for name, tensor in tensors.items()}
    content = safetensors.torch.save(tensors, metadata={**header, "sha256": _digest(header, tensors)})
    check_writable(folder)
    write_atomically(folder / STATE, content)


def load_state(state: TrainingState, folder: Path) -> None:
    """Brings ``state`` to the one in ``folder``, if there is one, from whatever device.

    Raises:
        ValueError: If it belongs to another configuration, or is damaged.
    """
    path = folder / STATE
    if not path.exists():
        return
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header, tensors = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header.pop("sha256") != _digest(header, tensors):
            raise RuntimeError("its checksum is not that of its content")
        if header["format"] != _FORMAT:
            raise RuntimeError(f"it is of format {header['format']}, this version goes on with {_FORMAT}")
        saved, rows = json.loads(header["config"]), json.loads(header["rows"])
        _check_config(path, saved, state.config)
        _restore(state, tensors, [TrainingRow(**row) for row in rows])
    except (safetensors.SafetensorError, KeyError, TypeError, RuntimeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path}: not a whole state of training ({error}); remove it to start from the first step."
        ) from error


def _digest(header: Mapping[str, str], tensors: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 of all that a state holds."""
    digest = hashlib.sha256(json.dumps(sorted(header.items())).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _restore(state: TrainingState, tensors: dict[str, torch.Tensor], rows: list[TrainingRow]) -> None:
    with torch.no_grad():
        for name, parameter in state.transformer.named_parameters():
            parameter.copy_(tensors[f"weight.{name}"])
            keys = [key for key in tensors if key.startswith("adam.") and key.endswith(f".{name}")]
            state.optimiser.state[parameter] = {key.split(".")[1]: tensors[key].to(parameter.device) for key in keys}
    state.losses = tensors["losses"].tolist()
    state.rows = rows
    names = [name for name, _ in state.transformer.named_parameters()]
    state.snapshots = [{name: tensors[f"row.{i}.{name}"] for name in names} for i in range(len(rows))]


def _check_config(path: Path, saved: dict[str, Any], config: PretrainConfig) -> None:
    here = json.loads(json.dumps(dataclasses.asdict(config)))
    for name in [*here, *saved]:
        if name != "device" and saved.get(name) != here.get(name):
            raise ValueError(
                f"folder: {path} holds the training of another configuration, whose {name} is {saved.get(name)!r} "
                f"and not {here.get(name)!r}; choose another folder."
            )
