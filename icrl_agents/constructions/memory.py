"""Transformers over a memory prompt: softmax and kernel TD."""

from __future__ import annotations

from typing import Literal

from torch import nn

from icrl_agents.attention import KernelAttention, SoftmaxAttention, StepSize, check_step_size
from icrl_agents.evaluators import KernelTD, WeightedSoftmaxTD
from icrl_agents.kernels import Kernel
from icrl_agents.layers.memory import TD_SIGNS, DualHeadLayer, TemporalShiftLayer
from icrl_agents.pure import deep_copied
from icrl_agents.transformer import InContextTransformer, check_count

Form = Literal["dual_head", "temporal_shift"]


def weighted_softmax_td(
    kernel: Kernel, num_layers: int, step_size: float = 1.0, *, form: Form = "temporal_shift"
) -> InContextTransformer:
    """Softmax transformer whose layer ℓ is sweep ℓ of weighted softmax TD (arXiv 2605.07333, construction).

    Args:
        kernel: κ = exp g of the score g; see ``icrl_agents.kernels``. One that is a module is copied: train the
            transformer's ``parameters()``, not the kernel's.
        num_layers: L ≥ 0.
        step_size: α > 0, the scale of the value weights α(+1, +1, −1).
        form: ``"dual_head"``, or ``"temporal_shift"`` for one head and the Temporal Shift Module.

    Raises:
        ValueError: If an argument is out of range.
    """
    num_layers = check_count("num_layers", num_layers)
    reference = WeightedSoftmaxTD(kernel, num_layers, step_size)
    alpha = float(check_step_size(step_size, auto=False))
    weights = tuple(alpha * sign for sign in TD_SIGNS)
    return InContextTransformer([_layer(SoftmaxAttention(_own(kernel)), weights, form)], num_layers, reference)


def kernel_td(
    kernel: Kernel, num_layers: int, step_size: StepSize = "auto", *, form: Form = "temporal_shift"
) -> InContextTransformer:
    """Non-linear transformer whose layer ℓ is sweep ℓ of kernel TD (arXiv 2605.09727, construction).

    Args:
        kernel: κ, the nonlinearity of the attention scores; see ``icrl_agents.kernels``. Copied as by
            ``weighted_softmax_td``.
        num_layers: L ≥ 0.
        step_size: α > 0, or ``"auto"`` for 1 / max_j Σ_i |κ(x_i, x_j)| of each context. It is a setting and no weight:
            ``load_state_dict`` does not bring another one along, ``save_pretrained`` keeps it.
        form: ``"dual_head"``, or ``"temporal_shift"`` for one head and the Temporal Shift Module.

    Raises:
        ValueError: If an argument is out of range.
    """
    num_layers = check_count("num_layers", num_layers)
    reference = KernelTD(kernel, num_layers, step_size)
    attention = KernelAttention(_own(kernel), step_size)
    return InContextTransformer([_layer(attention, TD_SIGNS, form)], num_layers, reference)


def _own(kernel: Kernel) -> Kernel:
    """A copy of a kernel that has weights: they become weights of this transformer alone."""
    return deep_copied(kernel, {}) if isinstance(kernel, nn.Module) else kernel


def _layer(attention: SoftmaxAttention | KernelAttention, weights: tuple[float, ...], form: Form) -> TemporalShiftLayer:
    if form == "temporal_shift":
        return TemporalShiftLayer(attention, weights)
    if form == "dual_head":
        return DualHeadLayer(attention, weights, weights)
    raise ValueError(f"form: expected 'dual_head' or 'temporal_shift', got {form!r}.")
