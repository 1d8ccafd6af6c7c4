"""Random streams that never coincide: an environment's own, a task's and a policy's.

``reset(seed=s)`` gives an environment the root stream of the seed sequence of ``s``. Tasks and policies use
children of such sequences under their own keys, so that even ``task_seed=0`` and ``reset(seed=0)`` are independent.
"""

import numpy as np

TASK_KEY = 0x7461736B  # "task" in ASCII
POLICY_KEY = 0x706F6C69  # "poli" in ASCII


def task_streams(task_seed: int, count: int) -> list[np.random.Generator]:
    """Return the ``count`` independent streams from which the parts of one task are drawn.

    One stream per part keeps the parts apart: asking for other rewards leaves the transitions as they were.
    """
    sequence = np.random.SeedSequence(task_seed, spawn_key=(TASK_KEY,))
    return [np.random.default_rng(child) for child in sequence.spawn(count)]


def policy_stream(seed: int | None) -> np.random.Generator:
    """Return the stream of a policy's own randomness; ``seed=None`` takes fresh entropy."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(POLICY_KEY,)))
