"""What a command prints: it outlives readers that leave, terminals without Unicode, and warnings of several lines."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast


@contextlib.contextmanager
def patient_output() -> Iterator[None]:
    """Has what is printed inside lost where its reader has left, as ``head`` does: the command goes on to its end."""
    with contextlib.ExitStack() as stack:
        for redirected, stream in ((contextlib.redirect_stdout, sys.stdout), (contextlib.redirect_stderr, sys.stderr)):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal without Unicode loses signs, not results
            stream = stream or stack.enter_context(_nowhere())
            stack.enter_context(redirected(cast(TextIO, _Patient(stream))))
        try:
            yield
        finally:
            print(end="", flush=True)


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Shows each warning as one line on stderr, beside progress bars."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        from tqdm import tqdm

        text = re.sub(r"\x1b\[[0-9;]*m", "", str(message))  # Gymnasium colours its warnings
        tqdm.write(f"icrl: {' '.join(text.split())}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


@contextlib.contextmanager
def _nowhere() -> Iterator[TextIO]:
    """Gives a stream to a command that was begun without one; it takes that one's number, in children too."""
    with Path(os.devnull).open("w", encoding="utf-8") as stream:
        os.set_inheritable(stream.fileno(), True)
        yield stream


def _is_device(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal, also one that has gone away, which ``isatty`` denies."""
    try:
        return stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


class _Patient:
    """A stream that takes everything once its reader has left."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = _is_device(stream)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes ``text``, and returns its length."""
        with self._guarded():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Sends on what is written."""
        with self._guarded():
            self._stream.flush()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())  # for what its buffer still holds
            hung_up = self._terminal and error.errno == errno.EIO
            if not (isinstance(error, BrokenPipeError) or hung_up):
                raise OSError(f"{self._stream.name}: cannot be written ({error.strerror}).") from error
