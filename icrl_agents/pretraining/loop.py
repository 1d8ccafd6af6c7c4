"""The training loop, which can be stopped at any step and resumed with the same result."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from icrl_agents.files import at_home, check_writable
from icrl_agents.locks import locked_folder
from icrl_agents.machine import check_device, one_thread
from icrl_agents.pretraining.batches import batches
from icrl_agents.pretraining.config import PretrainConfig
from icrl_agents.pretraining.distributed import check_agreement, is_first, shared_loss
from icrl_agents.pretraining.events import check_tensorboard, event_file
from icrl_agents.pretraining.losses import loss_of
from icrl_agents.pretraining.measurements import Measurements, TrainingRow
from icrl_agents.pretraining.model import loops_of, random_transformer
from icrl_agents.pretraining.progress import TrainingState, load_state, save_state
from icrl_agents.transformer import InContextTransformer
from icrl_agents.value_function import DivergenceError
from icrl_envs import arguments


@dataclass(frozen=True, eq=False)
class PretrainResult:
    """What pretraining gives.

    Args:
        config: Its configuration.
        transformer: The trained transformer; its weights are frozen.
        losses: Loss of each step, ``(steps,)``.
        rows: Measurements on held-out tasks along training.
        snapshots: Weights at each row, by name.
    """

    config: PretrainConfig
    transformer: InContextTransformer
    losses: torch.Tensor
    rows: list[TrainingRow]
    snapshots: list[dict[str, torch.Tensor]]


@torch.inference_mode(False)
@torch.enable_grad()
def pretrain(
    config: PretrainConfig,
    *,
    folder: str | Path | None = None,
    until: int | None = None,
    save_every: int = 1000,
    progress: bool = False,
    tensorboard: bool = False,
) -> PretrainResult:
    """Trains a transformer from small random weights on contexts of fresh random tasks.

    Nothing but ``config`` decides the result: it does not depend on global random states, nor on how often training
    was interrupted. Devices differ by rounding alone, and a state that was kept on one is resumed on any other.
    Processes that torchrun has started share the rows of each batch; each has to call this, and the first
    of them writes.

    Args:
        config: What is trained on what.
        folder: Where the state of training is kept; a state that is found there is resumed. None keeps nothing.
        until: Step at which to stop for now, to go on from ``folder`` another time; None is the last one.
        save_every: Steps after which the state is written.
        progress: Whether a progress bar is shown, with loss, diagonality and error; it is written to stderr.
        tensorboard: Whether the measurements are also written into ``folder`` as TensorBoard events.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is out of range; if the folder holds the state of another configuration, or a damaged
            one, or another training is writing there; if processes of torchrun have different configurations; if the
            device is not there; or if ``tensorboard`` is asked for without a folder or without the package of that
            name.
        OSError: If the folder cannot be written; nothing is trained then.
        DivergenceError: If the loss or a gradient is not finite, naming the step.

    Example:
        >>> config = PretrainConfig(num_states=4, context_length=20, num_layers=3, steps=2, tasks=8)
        >>> pretrain(config).losses.shape
        torch.Size([2])
    """
    path = _checked(folder, until, save_every, tensorboard)
    check_device(config.device)
    with _kept(path if is_first() else None):
        return _trained(config, path, until, save_every, progress, tensorboard)


@contextlib.contextmanager
def _kept(folder: Path | None) -> Iterator[None]:
    """Makes ``folder``, if any, and keeps it to this training until it is left."""
    if folder is None:
        yield
        return
    check_writable(folder)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked_folder(folder))
        except BlockingIOError:
            raise ValueError(
                f"folder: another training is writing into {folder}; wait for it, or choose another folder."
            ) from None
        yield


def _trained(
    config: PretrainConfig, path: Path | None, until: int | None, save_every: int, progress: bool, tensorboard: bool
) -> PretrainResult:
    transformer = random_transformer(config)
    optimiser = torch.optim.Adam(
        transformer.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    state = TrainingState(config, transformer, optimiser)
    if path is not None:
        load_state(state, path)
    check_agreement(config, len(state.losses))
    loss = shared_loss(config, transformer, loss_of(config))
    measure, full_depth = Measurements(config), transformer.loops
    last = config.steps if until is None else min(until, config.steps)
    steps = range(len(state.losses), last)
    with (
        one_thread(),
        event_file(path if tensorboard and is_first() else None, tuple(state.rows)) as write,
        tqdm(total=last, initial=steps.start, disable=not (progress and is_first()), file=sys.stderr) as bar,
    ):
        for step, batch in zip(steps, batches(config, steps.start), strict=False):
            if step % config.evaluate_every == 0:
                write(_record(state, measure, step, bar))
            transformer.loops = loops_of(config, step)
            _take_step(state, loss(batch), step)
            transformer.loops = full_depth
            bar.update()
            if path is not None and is_first() and (step + 1) % save_every == 0:
                save_state(state, path)
        if last == config.steps and (not state.rows or state.rows[-1].step < last):
            write(_record(state, measure, last, bar))
    if path is not None and is_first():
        save_state(state, path)
    transformer.requires_grad_(False)
    return PretrainResult(
        config, transformer, torch.tensor(state.losses, dtype=torch.float64, device="cpu"), state.rows, state.snapshots
    )


def _checked(folder: str | Path | None, until: int | None, save_every: int, tensorboard: bool) -> Path | None:
    arguments.integer("save_every", save_every, 1)
    if until is not None:
        arguments.integer("until", until, 0)
    if folder is not None and not isinstance(folder, (str, Path)):
        raise TypeError(f"folder: expected a path or None, got {folder!r}.")
    if tensorboard:
        check_tensorboard()
        if folder is None:
            raise ValueError("folder: expected one for tensorboard=True, got None.")
    return None if folder is None else at_home(folder)


def _take_step(state: TrainingState, loss: torch.Tensor, step: int) -> None:
    parameters = state.optimiser.param_groups[0]["params"]
    for parameter in parameters:
        parameter.grad = None
    loss.backward()
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = math.hypot(*(gradient.norm().item() for gradient in gradients))
    if not math.isfinite(norm + loss.item()):
        raise DivergenceError(
            f"the loss or its gradient is not finite at step {step}; take a smaller learning_rate or fewer layers."
        )
    if norm > state.config.max_norm:
        for gradient in gradients:
            gradient.mul_(state.config.max_norm / norm)
    if state.config.decay:
        state.optimiser.param_groups[0]["lr"] = state.config.learning_rate * (1.0 - step / state.config.steps)
    state.optimiser.step()
    state.losses.append(loss.item())


def _record(state: TrainingState, measure: Measurements, step: int, bar: tqdm) -> TrainingRow:
    loss = sum(state.losses[-100:]) / max(len(state.losses[-100:]), 1) if state.losses else float("nan")
    row = measure(state.transformer, step, loss)
    state.rows.append(row)
    state.snapshots.append({name: weight.detach().clone() for name, weight in state.transformer.state_dict().items()})
    error = row.return_error if state.config.chain == "cartpole" else row.value_error
    shown = {"loss": loss, "diagonality": row.diagonality, "error": error}
    bar.set_postfix_str(", ".join(f"{name} {number:.3g}" for name, number in shown.items() if not math.isnan(number)))
    return row
