"""Measurements for TensorBoard, which is not among the dependencies."""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icrl_agents.pretraining.measurements import TrainingRow

SCALARS = ("loss", "diagonality", "value_error", "return_error", "weight_reward", "weight_target", "weight_value")
"""Columns of ``TrainingRow`` that are shown."""


def check_tensorboard() -> None:
    """Raises ValueError if the package tensorboard cannot be imported."""
    _writer_class()


@contextlib.contextmanager
def event_file(folder: Path | None, rows: Iterable[TrainingRow] = ()) -> Iterator[Callable[[TrainingRow], None]]:
    """Gives a function that adds a row to a file that ``tensorboard --logdir`` reads while training runs.

    Args:
        folder: Where the file is written; None writes nothing.
        rows: Those of a training that goes on, written at once; what it has written before is hidden.

    Raises:
        ValueError: If the package tensorboard cannot be imported.
    """
    if folder is None:
        yield lambda row: None
        return
    with _writer_class()(str(folder), purge_step=0) as writer:

        def write(row: TrainingRow) -> None:
            for name in SCALARS:
                if not math.isnan(getattr(row, name)):
                    writer.add_scalar(name, getattr(row, name), row.step)
            writer.flush()

        for row in rows:
            write(row)
        yield write


def _writer_class() -> Any:  # noqa: ANN401 - of a package that need not be there
    try:
        return importlib.import_module("torch.utils.tensorboard").SummaryWriter
    except ImportError as error:
        raise ValueError(f"tensorboard: the package cannot be imported ({error}); pip install tensorboard") from error
