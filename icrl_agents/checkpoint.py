"""Checkpoints of in-context transformers: weights as safetensors, structure as JSON; nothing is ever unpickled.

A checksum over both files is kept in the structure, so that a damaged, edited or mixed-up pair is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from icrl_agents.blocks import check_mixture
from icrl_agents.files import at_home, check_writable, unfinished, write_together
from icrl_agents.structure import built, described
from icrl_agents.transformer import InContextTransformer

WEIGHTS, CONFIG = "model.safetensors", "config.json"
FORMAT = 1
_TRIES = 20


def save(transformer: InContextTransformer, folder: str | Path) -> None:
    """Writes a transformer into ``folder``, made if it is missing; a checkpoint there is replaced, whole or not at all.

    A block in several places is one again when it is read; of weights that others share, each has a copy.

    Raises:
        OSError: If the folder cannot be written, or others do so again and again at the same time.
        ValueError: If the transformer could not be rebuilt: it or a kernel is of a class of one's own, it has a weight
            that is none of its layers', or one that is not finite or out of range; or if the folder has the
            ``config.json`` of something else, such as a study's. Nothing is written then.
    """
    folder = at_home(folder)
    _check_replaceable(folder)
    if (kind := type(transformer)) is not InContextTransformer:
        raise ValueError(f"transformer: a {kind.__name__} would be read as an InContextTransformer; save state_dict().")
    check_mixture(blocks := list(transformer.blocks))
    config = {
        "format": FORMAT,
        "icrl": version("icrl"),
        "loops": transformer.loops,
        "blocks": described(blocks),
    }
    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in transformer.state_dict().items()}
    for name in (each for each in tensors if each.endswith(".length_scale")):
        if bool((tensors[name] < 0).any()):
            raise ValueError(
                f"{name}: expected a positive finite number, got {tensors[name].tolist()}, as where training has gone "
                "too far; the kernel does not depend on its sign, so take length_scale.abs_() before."
            )
    _check_numbers("transformer", tensors)
    rebuilt = _build(folder / CONFIG, config, tensors).state_dict()
    if further := [name for name in tensors if name not in rebuilt]:
        raise ValueError(f"transformer: has {', '.join(further)} besides weights of its layers; save state_dict().")
    weights = safetensors.torch.save(tensors)
    config["sha256"] = _digest(weights, config)
    check_writable(folder)
    for _ in range(_TRIES):
        write_together({folder / WEIGHTS: weights, folder / CONFIG: json.dumps(config, indent=2).encode()})
        with contextlib.suppress(ValueError):  # of a pair of which somebody else has just moved the other half there
            with contextlib.suppress(OSError):  # or has taken it elsewhere
                _read(folder)
            return
    raise OSError(f"{folder}: is written into by others at the same time; save in another folder.")


def load(folder: str | Path) -> InContextTransformer:
    """Reads a transformer from ``folder``; see ``InContextTransformer.from_pretrained``."""
    folder = at_home(folder)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name}: not found; expected a folder that save_pretrained wrote.")
    tensors, config = _read(folder)
    _check_numbers(str(folder / WEIGHTS), tensors)
    transformer = _build(folder / CONFIG, config, tensors)
    _check_shapes(folder / WEIGHTS, transformer.state_dict(), tensors)
    transformer.load_state_dict(tensors, assign=True)
    return transformer


def _check_replaceable(folder: Path) -> None:
    """Raises ValueError if there are weights or a configuration, but no transformer's, which would be lost."""
    path = folder / WEIGHTS
    with contextlib.suppress(OSError, safetensors.SafetensorError):  # there are none, or damaged ones
        with safetensors.safe_open(path, framework="pt") as file:
            names = list(file.keys())
        if not all(name.startswith("blocks.") for name in names):
            raise ValueError(f"{path}: is not of a transformer, and would be lost; save in another folder.")
    path = folder / CONFIG
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):  # there is none, or a damaged one
        return
    if isinstance(found, dict) and not {"format", "blocks"} & found.keys():
        raise ValueError(f"{path}: is not of a transformer, and would be lost; save the transformer in another folder.")


def _digest(weights: bytes, config: Mapping[str, Any]) -> str:
    """SHA-256 of the weights and of the structure, without the entry that holds it."""
    structure = json.dumps({name: value for name, value in config.items() if name != "sha256"}, sort_keys=True)
    return hashlib.sha256(weights + structure.encode()).hexdigest()


def _read(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and their structure, which a process that was killed may have left unmoved.

    Read once more where they do not match, until nobody has replaced either of them meanwhile.
    """
    before, found = None, (b"", b"")
    while found != before:
        before, found = found, ((folder / WEIGHTS).read_bytes(), (folder / CONFIG).read_bytes())
        try:
            tensors = safetensors.torch.load(found[0])
        except safetensors.SafetensorError as error:
            raise ValueError(f"{folder / WEIGHTS}: not a whole safetensors file ({error}); save it again.") from error
        for config in (_structure(folder / CONFIG, found[1]), *_unmoved(folder / CONFIG)):
            if config.get("sha256") == _digest(found[0], config):
                return tensors, config
    raise ValueError(
        f"{folder / CONFIG}: its checksum is not that of {WEIGHTS} and itself, so one of the two was changed after it "
        "was saved; save the transformer again."
    )


def _unmoved(path: Path) -> Iterator[dict[str, Any]]:
    for partial in unfinished(path):
        with contextlib.suppress(OSError, ValueError):
            yield _structure(partial, partial.read_bytes())


def _structure(path: Path, content: bytes) -> dict[str, Any]:
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a whole JSON file ({error}); save the transformer again.") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format") if isinstance(config, dict) else None
        raise ValueError(f"{path}: expected a transformer in format {FORMAT}, which this version reads, got {found!r}.")
    return config


def _build(path: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> InContextTransformer:
    try:
        return InContextTransformer(built(config["blocks"], tensors), config["loops"])
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: no transformer can be built from this structure and its weights ({error!r})."
        ) from error


def _check_numbers(where: str, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
            raise ValueError(f"{where}: expected {name} to be floating, got {tensor.dtype}.")
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{where}: expected {name} to be finite, got NaN or inf.")


def _check_shapes(path: Path, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    wanted, seen = ({name: tuple(t.shape) for name, t in tensors.items()} for tensors in (expected, found))
    for name in [*wanted, *seen]:
        if wanted.get(name) != seen.get(name):
            raise ValueError(f"{path}: expected {name} of shape {wanted.get(name)}, got {seen.get(name)}.")
