"""Callbacks that are told of a training, and leave its environment alone."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from icrl_agents.collection.copies import environments_of
from icrl_agents.control.actor import Actor


def tell(on_update: Callable[[int, Actor], None], steps: int, actor: Actor, env: Any) -> None:  # noqa: ANN401
    """Calls ``on_update``; raises ValueError if it resets ``env`` or steps it, or has moved its random streams."""

    def streams() -> str:
        found = env.np_random  # of a vector environment perhaps those of its copies
        return repr([_state(each) for each in (found if isinstance(found, tuple) else (found,))])

    before = streams()
    with _calls_of(env) as calls:
        on_update(steps, actor)
    if calls or streams() != before:
        raise ValueError(
            "on_update: expected it to leave env alone, whose episode is running, but it has reset it or made steps; "
            "evaluate the actor in another environment."
        )


@contextlib.contextmanager
def _calls_of(env: Any) -> Iterator[list[str]]:  # noqa: ANN401
    """Notes calls of ``reset`` and ``step`` that reach ``env`` below its wrappers, or a copy in it, while it lasts.

    Classes are asked, not their objects, so that a copy of ``env`` that is made meanwhile is one of its own.
    """
    watched, calls = [env.unwrapped, *(each.unwrapped for each in environments_of(env))], list[str]()
    with contextlib.ExitStack() as undone:
        for kind, name in itertools.product({type(each): None for each in watched}, ("reset", "step")):
            own, original = vars(kind).get(name), getattr(kind, name)

            @functools.wraps(original)
            def noted(self: Any, *given: Any, _original: Any = original, **named: Any) -> Any:  # noqa: ANN401
                calls.extend(_original.__name__ for each in watched if each is self)
                return _original(self, *given, **named)

            setattr(kind, name, noted)
            undone.callback(delattr, kind, name) if own is None else undone.callback(setattr, kind, name, own)
        yield calls


def _state(stream: Any) -> Any:  # noqa: ANN401
    """Where a stream of NumPy's is, of an old or new kind; None of anything else."""
    if isinstance(stream, np.random.RandomState):
        return stream.get_state()
    return getattr(getattr(stream, "bit_generator", None), "state", None)
