"""Checkpoints of in-context transformers: weights as safetensors, structure as JSON; nothing is ever unpickled."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from icrl_agents import kernels
from icrl_agents.attention import KernelAttention, SoftmaxAttention
from icrl_agents.layers import DualHeadLayer, LinearAttentionLayer, TemporalShiftLayer
from icrl_agents.transformer import InContextTransformer

WEIGHTS, CONFIG = "model.safetensors", "config.json"
FORMAT = 1
_KERNELS = {
    kernel.__name__: kernel
    for kernel in (
        kernels.RBF,
        kernels.Laplace,
        kernels.Identity,
        kernels.DotProduct,
        kernels.Exponential,
        kernels.Linear,
        kernels.ReLU,
    )
}


def save(transformer: InContextTransformer, folder: Path) -> None:
    """Writes a transformer into ``folder``, weights first; an existing checkpoint there is replaced.

    Raises:
        ValueError: If a kernel is not one of ``icrl_agents.kernels``, so that it could not be rebuilt.
    """
    config = {
        "format": FORMAT,
        "icrl": version("icrl"),
        "loops": transformer.loops,
        "blocks": [_describe_layer(block) for block in transformer.blocks],
    }
    tensors = {name: tensor.contiguous() for name, tensor in transformer.state_dict().items()}
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / WEIGHTS, safetensors.torch.save(tensors))
    _replace(folder / CONFIG, json.dumps(config, indent=2).encode())


def load(folder: Path) -> InContextTransformer:
    """Reads a transformer from ``folder``; see ``InContextTransformer.from_pretrained``."""
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name}: not found; expected a folder that save_pretrained wrote.")
    try:
        tensors = safetensors.torch.load((folder / WEIGHTS).read_bytes())
    except safetensors.SafetensorError as error:
        raise ValueError(f"{folder / WEIGHTS}: not a whole safetensors file ({error}); save it again.") from error
    try:
        config = json.loads((folder / CONFIG).read_text())
        if config["format"] != FORMAT:
            raise ValueError(f"format {config['format']} is not {FORMAT}")
        blocks = [_build_layer(spec, f"blocks.{i}", tensors) for i, spec in enumerate(config["blocks"])]
        transformer = InContextTransformer(blocks, config["loops"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / CONFIG}: does not describe the weights beside it ({error!r}).") from error
    _check_tensors(folder, transformer.state_dict(), tensors)
    transformer.load_state_dict(tensors)
    return transformer


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    partial.replace(path)


def _describe_layer(layer: nn.Module) -> dict[str, Any]:
    if isinstance(layer, LinearAttentionLayer):
        return {"type": type(layer).__name__, **layer.settings()}
    if type(layer) in (TemporalShiftLayer, DualHeadLayer):
        return {"type": type(layer).__name__, "attention": _describe_attention(layer.attention)}
    raise ValueError(f"blocks: a {type(layer).__name__} cannot be saved; expected a layer of icrl_agents.layers.")


def _describe_attention(attention: SoftmaxAttention | KernelAttention) -> dict[str, Any]:
    kernel = type(attention.kernel).__name__
    if _KERNELS.get(kernel) is not type(attention.kernel):
        raise ValueError(
            f"kernel: {attention.kernel!r} is a callable of yours and cannot be saved; expected one of {list(_KERNELS)}."
        )
    described: dict[str, Any] = {"type": type(attention).__name__, "kernel": kernel}
    if isinstance(attention, KernelAttention):
        described["step_size"] = attention.step_size
    return described


def _build_layer(spec: dict[str, Any], prefix: str, tensors: dict[str, Tensor]) -> nn.Module:
    own = {name.removeprefix(prefix + "."): tensor for name, tensor in tensors.items() if name.startswith(prefix + ".")}
    if spec["type"] == "LinearAttentionLayer":
        return LinearAttentionLayer.from_settings(spec, own)
    attention = _build_attention(spec["attention"], own)
    if spec["type"] == "DualHeadLayer":
        return DualHeadLayer(attention, own["value_weights"], own["target_weights"])
    if spec["type"] == "TemporalShiftLayer":
        return TemporalShiftLayer(attention, own["value_weights"])
    raise ValueError(f"unknown layer {spec['type']!r}")


def _build_attention(spec: dict[str, Any], own: dict[str, Tensor]) -> SoftmaxAttention | KernelAttention:
    kernel_class = _KERNELS[spec["kernel"]]
    weight = {name.removeprefix("attention.kernel."): t for name, t in own.items() if name.startswith("attention.k")}
    if issubclass(kernel_class, kernels.RBF | kernels.Laplace):
        kernel: nn.Module = kernel_class(weight.get("length_scale", "median"))
    else:
        kernel = kernel_class(**weight)
    if spec["type"] == "SoftmaxAttention":
        return SoftmaxAttention(kernel)
    if spec["type"] == "KernelAttention":
        return KernelAttention(kernel, spec["step_size"])
    raise ValueError(f"unknown attention {spec['type']!r}")


def _check_tensors(folder: Path, expected: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    shapes, seen = ({name: tuple(t.shape) for name, t in tensors.items()} for tensors in (expected, found))
    if shapes != seen:
        raise ValueError(f"{folder / WEIGHTS}: expected tensors {shapes}, got {seen}.")
    for name, tensor in found.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{folder / WEIGHTS}: {name} is not finite.")
