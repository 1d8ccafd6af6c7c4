"""Callbacks that are told of a training, and leave its environment alone."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from icrl_agents.collection.copies import environments_of
from icrl_agents.control.actor import Actor


def tell(on_update: Callable[[int, Actor], None], steps: int, actor: Actor, env: Any) -> None:  # noqa: ANN401
    """Calls ``on_update``; raises ValueError if it resets ``env`` or steps it, or has moved its random streams."""

    def streams() -> str:
        found = env.np_random  # of a vector environment perhaps those of its copies
        return repr([state_of(each) for each in (found if isinstance(found, tuple) else (found,))])

    before = streams()
    with calls_of([env.unwrapped, *(each.unwrapped for each in environments_of(env))]) as calls:
        on_update(steps, actor)
    if calls or streams() != before:
        raise ValueError(
            "on_update: expected it to leave env alone, whose episode is running, but it has reset it or made steps; "
            "evaluate the actor in another environment."
        )


_LOCK = threading.Lock()
_LISTENING: list[tuple[list[Any], list[str]]] = []
"""What each training that tells its callback something watches, and the calls that it notes."""
_WATCHED: Counter[type] = Counter()
"""By how many of them a class is watched: trainings in several threads overlap in any order."""
_RESTORED: dict[type, contextlib.ExitStack] = {}


@contextlib.contextmanager
def calls_of(watched: list[Any]) -> Iterator[list[str]]:
    """Notes calls of ``reset`` and ``step`` of the environments ``watched``, without wrappers, while it lasts.

    Classes are asked, not their objects, so that a copy of one that is made meanwhile is one of its own.
    """
    listener, kinds = (watched, list[str]()), {type(each): None for each in watched}
    with _LOCK:
        _LISTENING.append(listener)
        for kind in kinds:
            _WATCHED[kind] += 1
            if _WATCHED[kind] == 1:
                _RESTORED[kind] = _watch(kind)
    try:
        yield listener[1]
    finally:
        with _LOCK:
            _LISTENING[:] = [each for each in _LISTENING if each is not listener]
            for kind in kinds:
                _WATCHED[kind] -= 1
                if _WATCHED[kind] == 0:
                    del _WATCHED[kind]
                    _RESTORED.pop(kind).close()


def _watch(kind: type) -> contextlib.ExitStack:
    """Has a class tell of calls of its ``reset`` and ``step``, until what it returns is closed."""
    restored = contextlib.ExitStack()
    for name in ("reset", "step"):
        own, original = vars(kind).get(name), getattr(kind, name)

        @functools.wraps(original)
        def noted(self: Any, *given: Any, _original: Any = original, **named: Any) -> Any:  # noqa: ANN401
            _note(self, _original.__name__)
            return _original(self, *given, **named)

        setattr(kind, name, noted)
        restored.callback(delattr, kind, name) if own is None else restored.callback(setattr, kind, name, own)
    return restored


def _note(env: Any, name: str) -> None:  # noqa: ANN401
    """Notes a call where ``env`` is watched: by its name here, so that a class sent to workers takes nothing along."""
    for watched, calls in tuple(_LISTENING):
        calls.extend(name for each in watched if each is env)


def state_of(stream: Any) -> Any:  # noqa: ANN401
    """Where a stream of NumPy's is, of an old or new kind; None of anything else."""
    if isinstance(stream, np.random.RandomState):
        return stream.get_state()
    return getattr(getattr(stream, "bit_generator", None), "state", None)
