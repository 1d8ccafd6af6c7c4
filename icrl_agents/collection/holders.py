"""Who steps an environment: what resets it last, such as a collection, until something else does."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

_HOLDERS: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""By the identity of the environment below all wrappers, which lives as long as its holder does."""


def take(env: Any, holder: object) -> None:  # noqa: ANN401 - an environment or vector environment
    """Makes ``holder`` the one that steps ``env``."""
    _HOLDERS[id(env.unwrapped)] = holder


def check_held(env: Any, holder: object) -> None:  # noqa: ANN401
    """Raises ValueError if something else has reset ``env`` since ``holder`` has taken it."""
    if _HOLDERS.get(id(env.unwrapped)) is not holder:
        raise ValueError(
            "env: another collection has reset it while this one was running, in another thread or in the policy; make "
            "an environment of its own for each."
        )
