"""Random numbers of environments that their seed does not decide."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv

from icrl_agents.collection.copies import environments_of
from icrl_agents.episode import Episode

LARGEST_SEED = 2**64
"""Beyond what anyone gives; the entropy that a generator without a seed takes has 128 bits."""

Held = dict[tuple[int, str], tuple[np.random.Generator, Any]]
"""Generators by the copy and attribute that holds them, and where each is."""


def held_streams(env: Any, *, of_spaces: bool = False) -> Held:  # noqa: ANN401 - of any kind
    """Generators that ``env`` and its copies hold now, of which ``reset(seed=...)`` is to replace those that matter.

    Of workers it is their ``np_random``, where no seed was given to it.

    Args:
        env: An environment or vector environment.
        of_spaces: Whether those of its spaces count, too, where no seed was given to them.
    """
    inner, found = env.unwrapped, dict[tuple[int, str], Any]()
    if isinstance(inner, AsyncVectorEnv):
        streams = zip(inner.np_random, inner.np_random_seed, strict=True)
        found = {(i, "np_random"): stream for i, (stream, seed) in enumerate(streams) if (seed or 0) >= LARGEST_SEED}
    else:
        for i, own in enumerate((inner, *(each.unwrapped for each in environments_of(env)))):
            getattr(own, "np_random", None)  # begins now, where there was none: whether reset replaces it is seen then
            found |= {(i, name.removeprefix("_")): each for name, each in vars(own).items()}
            for name in ("action_space", "observation_space") if of_spaces else ():
                stream = getattr(own, name).np_random
                if _is_unseeded(stream):
                    found[i, name] = stream
    return {
        key: (each, each.bit_generator.state) for key, each in found.items() if isinstance(each, np.random.Generator)
    }


def warn_of_unseeded_draws(env: Any, before: Held, seed: int | None, stacklevel: int) -> None:  # noqa: ANN401
    """Warns if ``env`` has drawn from a generator that ``reset(seed=...)`` has left as it was.

    Args:
        env: As of ``held_streams``.
        before: What that gave before the reset.
        seed: As of ``warn_of_global_draws``.
        stacklevel: As of ``warn_of_global_draws``.
    """
    workers = isinstance(env.unwrapped, AsyncVectorEnv)
    now = held_streams(env, of_spaces=True) if seed is not None else {}
    kept = (key for key, (stream, _) in now.items() if key in before and (workers or stream is before[key][0]))
    name = next((key[1] for key in kept if _went_on(before[key][1], now[key][1])), None)
    if name is not None:
        warnings.warn(
            f"seed: {seed} does not decide the result, since the environment draws from its {name}, which its reset "
            "does not seed, or the policy does; let the environment draw from self.np_random after "
            "super().reset(seed=seed) in its reset, and the policy from the rng that it is given.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


def _is_unseeded(stream: Any) -> bool:  # noqa: ANN401 - a generator of NumPy's
    entropy = getattr(getattr(getattr(stream, "bit_generator", None), "seed_seq", None), "entropy", None)
    return isinstance(entropy, int) and entropy >= LARGEST_SEED


def _went_on(before: Any, after: Any) -> bool:  # noqa: ANN401 - states of bit generators
    """Whether one is behind the other in the sequence of one seed, which of NumPy's default kind is seen."""
    if not (before["bit_generator"] == after["bit_generator"] == "PCG64"):
        return False
    return before["state"]["inc"] == after["state"]["inc"] and before["state"]["state"] != after["state"]["state"]


def warn_of_equal_workers(env: Any, by_copy: Sequence[Sequence[Episode]], seed: int | None, stacklevel: int) -> None:  # noqa: ANN401
    """Warns if all copies in workers did the same in all episodes, though each has a seed of its own.

    Workers begin with the global generators of the process that started them, and what they draw is not seen here.

    Args:
        env: An environment or vector environment.
        by_copy: Episodes of each copy, of which the numbers may differ by one; no single step tells.
        seed: As of ``warn_of_global_draws``.
        stacklevel: As of ``warn_of_global_draws``.
    """
    known = [episodes for episodes in by_copy if episodes]
    workers = isinstance(env.unwrapped, AsyncVectorEnv)
    if not workers or seed is None or len(known) < 2 or sum(map(len, known[0])) < 2:
        return
    if all(
        np.array_equal(one.observations, other.observations) and np.array_equal(one.rewards, other.rewards)
        for episodes in known[1:]
        for one, other in zip(known[0], episodes, strict=False)
    ):
        warnings.warn(
            f"env: {len(known)} copies did all the same, though each has a seed of its own: environment and policy are "
            "deterministic, and one copy is enough, or the environment ignores its seed, as where it draws from "
            "a global generator instead of self.np_random.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )
