"""Data-parallel training: the processes that torchrun starts share the rows of each step's batch."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import gc
import hashlib
import itertools
import json
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from icrl_agents.pretraining.batches import cut
from icrl_agents.pretraining.config import PretrainConfig
from icrl_agents.pretraining.losses import Loss
from icrl_agents.transformer import InContextTransformer

PATIENCE = 30.0
"""Seconds for which the processes wait for each other before they say so."""


def is_first() -> bool:
    """Whether this process writes and shows what comes out: the only one, or the first that torchrun has started."""
    return not _launched() or _group() == 0


def shared_loss(config: PretrainConfig, transformer: InContextTransformer, loss: Loss) -> Callable[[Any], Tensor]:
    """Returns the function from a step's batch to its loss, whose gradient is that of the whole batch.

    Under torchrun with W processes, each computes the loss of 1/W of the rows; torch's DistributedDataParallel averages
    the gradients as they are computed, over gloo. Loss and gradient are those of one process but for rounding.

    Args:
        config: What is trained.
        transformer: In training; its weights become those of the first process.
        loss: A mean over the rows of a batch.

    Raises:
        ValueError: If the rows do not divide by the number of processes, the loss is no mean over rows, or the device
            is not the processor.
    """
    if not _launched():
        return lambda batch: loss(transformer, batch)
    rank, size = _group(), dist.get_world_size()
    rows = config.tasks * config.contexts
    if rows % size:
        raise ValueError(f"tasks: expected tasks × contexts to divide by {size} processes, got {rows}.")
    if config.loss == "neu" and size > 1:
        raise ValueError("loss: expected a mean over contexts under torchrun, got 'neu', a product of two means.")
    if config.device != "cpu":
        raise ValueError(f"device: expected 'cpu' under torchrun, whose processes use gloo, got {config.device!r}.")
    parallel = DistributedDataParallel(_Objective(transformer, loss))

    def averaged(batch: Any) -> Tensor:  # noqa: ANN401 - as of Loss
        own = parallel(next(itertools.islice(cut(batch, rows // size), rank, None)))
        mean = own.detach().clone()
        dist.all_reduce(mean)
        return own + (mean / size - own.detach())

    return averaged


def check_agreement(config: PretrainConfig, step: int) -> None:
    """Raises ValueError if the processes do not train the same.

    Args:
        config: What this one trains.
        step: Where it begins: processes that found different states of training are at different ones.
    """
    if not _launched():
        return
    _group()
    settings = dataclasses.asdict(config)
    own = torch.tensor([step, *map(_number, settings.values())], device="cpu")
    each = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    with _told_if_it_lasts():
        dist.all_gather(each, own)
    if different := [name for i, name in enumerate(settings, 1) if len({int(numbers[i]) for numbers in each}) > 1]:
        raise ValueError(
            f"config: expected one configuration in all {len(each)} processes of torchrun, which share each batch, got "
            f"different ones of {', '.join(different)}; start trainings of their own without torchrun."
        )
    if len({int(numbers[0]) for numbers in each}) > 1:
        raise ValueError(f"folder: expected one that all processes share, got steps {[int(n[0]) for n in each]}.")


def _number(setting: Any) -> int:  # noqa: ANN401 - what JSON can hold
    """56 bits that tell one setting from another."""
    return int.from_bytes(hashlib.sha256(json.dumps(setting).encode()).digest()[:7], "big")


class _Objective(nn.Module):
    """A loss as a module, which is what DistributedDataParallel takes."""

    def __init__(self, transformer: InContextTransformer, loss: Loss) -> None:
        super().__init__()
        self.transformer, self._loss = transformer, loss

    def forward(self, batch: Any) -> Tensor:  # noqa: ANN401 - as of Loss
        return self._loss(self.transformer, batch)


def _launched() -> bool:
    return dist.is_available() and dist.is_torchelastic_launched()


def _group() -> int:
    """This process's rank; the group is joined when it is first asked for, and left when the process ends."""
    if not dist.is_initialized():
        with _told_if_it_lasts():
            dist.init_process_group("gloo")
        atexit.register(_leave)
    return dist.get_rank()


def _leave() -> None:
    """Ends the group's threads, for which nothing may hold it any more: a late one ends the interpreter by an abort."""
    gc.collect()  # of DistributedDataParallel, which is in cycles
    dist.destroy_process_group()


@contextlib.contextmanager
def _told_if_it_lasts() -> Iterator[None]:
    """Warns, where the processes wait for each other for long, that each has to come here; goes on waiting."""
    text = (
        f"pretrain: process {os.environ['RANK']} of {os.environ['WORLD_SIZE']} that torchrun has started waits for the "
        f"others since {PATIENCE:g} s; expected all of them to call pretrain, not the first alone, since they share "
        "each batch."
    )
    timer = threading.Timer(PATIENCE, warnings.warn, (text, UserWarning))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
