"""The goals of MetaWorld's own benchmark, drawn without touching the global random generator."""

import functools

import numpy as np
from numpy.typing import NDArray

from icrl_envs.metaworld.simulator import build_simulator, draw_goal

GOALS_PER_SET = 50
MAX_TASK_SEED = 2**32 - 2
"""The largest seed whose test set, which is the train set of the next seed, still has a seed of 32 bits."""

SPLITS = ("train", "test", "all")


@functools.lru_cache(maxsize=256)
def train_goals(domain: str, task_seed: int) -> NDArray[np.float64]:
    """Return the goals of ``metaworld.ML1(domain, seed=task_seed).train_tasks``, byte for byte.

    The benchmark seeds the global generator and resets the domain 50 times; each reset makes two passes and keeps
    the goal of the second. Here the same draws come from a generator of the same kind, and nothing is simulated.

    Args:
        domain: One of the 50 names.
        task_seed: In ``[0, 2³² − 1]``.

    Returns:
        ``(50, k)``, one goal a row, read-only: what the domain randomises, positions in m.
    """
    simulator = build_simulator(domain)
    simulator.np_random = np.random.RandomState(task_seed)  # type: ignore[assignment] (its uniform() is all that is used)
    goals = np.stack([(draw_goal(simulator), draw_goal(simulator))[1] for _ in range(GOALS_PER_SET)])
    simulator.close()
    goals.flags.writeable = False
    return goals


def split_goals(domain: str, split: str, task_seed: int) -> NDArray[np.float64] | None:
    """Return the goals ``(50, k)`` of one side of the benchmark's split, or None where any goal may be drawn.

    The benchmark's test goals are the train goals of the next seed: train goals of seed k + 1 are test goals of k.

    Args:
        domain: One of the 50 names.
        split: ``"train"``, ``"test"`` or ``"all"``.
        task_seed: In ``[0, 2³² − 2]``.
    """
    if split == "all":
        return None
    return train_goals(domain, task_seed + (split == "test"))
