"""The structure of a transformer's blocks as JSON holds it, and the blocks that are built from it and from weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from icrl_agents import kernels
from icrl_agents.attention import KernelAttention, SoftmaxAttention
from icrl_agents.layers import (
    DualHeadLayer,
    FullAttentionLayer,
    LinearAttentionLayer,
    MultiheadLayer,
    TemporalShiftLayer,
)

_WITH_SETTINGS = {layer.__name__: layer for layer in (LinearAttentionLayer, FullAttentionLayer)}
_KERNELS: dict[str, Callable[..., nn.Module]] = {
    kernel.__name__: kernel
    for kernel in (
        kernels.RBF,
        kernels.Laplace,
        kernels.ProductLaplace,
        kernels.Identity,
        kernels.DotProduct,
        kernels.Exponential,
        kernels.Linear,
        kernels.ReLU,
    )
}


def described(blocks: Sequence[nn.Module]) -> list[dict[str, Any]]:
    """What each block is, but for its weights; of one that is there before, where.

    Raises:
        ValueError: If a block or a kernel in it is of a class of one's own.
    """
    first = {id(block): i for i, block in reversed(list(enumerate(blocks)))}
    return [
        _describe_layer(block) if first[id(block)] == i else {"same_as": first[id(block)]}
        for i, block in enumerate(blocks)
    ]


def built(specs: Sequence[dict[str, Any]], tensors: Mapping[str, Tensor]) -> list[nn.Module]:
    """The blocks that ``described`` has described, with weights by their names in a transformer.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: If they are not.
    """
    blocks: list[nn.Module] = []
    for i, spec in enumerate(specs):
        blocks.append(blocks[spec["same_as"]] if "same_as" in spec else _build_layer(spec, f"blocks.{i}", tensors))
    return blocks


def _describe_layer(layer: nn.Module) -> dict[str, Any]:
    if isinstance(layer, (LinearAttentionLayer, FullAttentionLayer)) and type(layer) in _WITH_SETTINGS.values():
        return {"type": type(layer).__name__, **layer.settings()}
    if isinstance(layer, TemporalShiftLayer) and type(layer) in (TemporalShiftLayer, DualHeadLayer):
        return {"type": type(layer).__name__, "attention": _describe_attention(layer.attention)}
    kinds = ", ".join([*_WITH_SETTINGS, "TemporalShiftLayer", "DualHeadLayer"])
    hint = "; save the layer that it was exported from, or its state_dict()" * isinstance(layer, MultiheadLayer)
    raise ValueError(f"blocks: a {type(layer).__name__} cannot be saved; expected one of {kinds}{hint}.")


def _describe_attention(attention: SoftmaxAttention | KernelAttention) -> dict[str, Any]:
    if type(attention) not in (SoftmaxAttention, KernelAttention):
        raise ValueError(
            f"attention: a {type(attention).__name__} cannot be saved; expected one of icrl_agents.attention."
        )
    kernel = type(attention.kernel).__name__
    if _KERNELS.get(kernel) is not type(attention.kernel):
        raise ValueError(
            f"kernel: {attention.kernel!r} is a callable of yours and cannot be saved; expected one of "
            f"{', '.join(_KERNELS)}."
        )
    described: dict[str, Any] = {"type": type(attention).__name__, "kernel": kernel}
    if getattr(attention.kernel, "length_scale", 0) is None:
        described["length_scale"] = "median"
    if isinstance(attention, KernelAttention):
        described["step_size"] = attention.step_size
    return described


def _build_layer(spec: dict[str, Any], prefix: str, tensors: Mapping[str, Tensor]) -> nn.Module:
    own = {name.removeprefix(prefix + "."): tensor for name, tensor in tensors.items() if name.startswith(prefix + ".")}
    if spec["type"] in _WITH_SETTINGS:
        return _WITH_SETTINGS[spec["type"]].from_settings(spec, own)
    attention = _build_attention(spec["attention"], own)
    if spec["type"] == "DualHeadLayer":
        return DualHeadLayer(attention, own["value_weights"], own["target_weights"])
    if spec["type"] == "TemporalShiftLayer":
        return TemporalShiftLayer(attention, own["value_weights"])
    raise ValueError(f"unknown layer {spec['type']!r}")


def _build_attention(spec: dict[str, Any], own: dict[str, Tensor]) -> SoftmaxAttention | KernelAttention:
    kernel_class = _KERNELS[spec["kernel"]]
    weight = {name.removeprefix("attention.kernel."): t for name, t in own.items() if name.startswith("attention.k")}
    settings = {"length_scale": "median"} if spec.get("length_scale") == "median" else {}
    kernel = kernel_class(**settings, **weight)
    if spec["type"] == "SoftmaxAttention":
        return SoftmaxAttention(kernel)
    if spec["type"] == "KernelAttention":
        return KernelAttention(kernel, spec["step_size"])
    raise ValueError(f"unknown attention {spec['type']!r}")
