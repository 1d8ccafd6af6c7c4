"""Ground truth of a cell: the values of states of its held-out trajectories, by continuations from exact snapshots."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from icrl_agents.files import check_writable
from icrl_agents.ground_truth import GroundTruth, ground_truth, kept_truth, states_along
from icrl_agents.studies.transfer.config import TransferConfig
from icrl_agents.studies.transfer.trajectories import Request, default_cache


def truth_of(config: TransferConfig, request: Request) -> GroundTruth | None:
    """Returns the ground truth that ``config`` asks for of one of its cells, or None where it asks for none."""
    if config.continuations == 0:
        return None
    return held_out_truth(
        request,
        config.cache or default_cache(),
        gamma=config.gamma,
        tail=config.tail,
        states_per_episode=config.truth_states,
        continuations=config.continuations,
    )


def held_out_truth(
    request: Request, cache: Path, *, gamma: float, tail: int, states_per_episode: int, continuations: int
) -> GroundTruth:
    """Returns the values of states along the held-out trajectories of ``request``, kept in ``cache``.

    Args:
        request: Whose held-out trajectories.
        cache: Folder of the values, made if it is missing.
        gamma: Discount, in [0, 1).
        tail: Only states that as many rewards follow in their trajectory, so that its return is a value of them too.
        states_per_episode: Number of states of each trajectory, at random times.
        continuations: Returns of each state, ≥ 2.

    Raises:
        OSError: If the cache cannot be written.
    """
    choice = {"states_per_episode": states_per_episode, "before": request.steps - tail + 1}
    numbers = {"gamma": gamma, "continuations": continuations}
    described = {"request": json.loads(request.identity()), **choice, **numbers}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:32]

    def compute() -> GroundTruth:
        env, seed = request.env(request.held_out_split), request.stream_seed(1)
        try:
            along = {"episodes": request.held_out_episodes, "steps": request.steps, "seed": seed}
            return ground_truth(env, states_along(env, **along, **choice), seed=seed, **numbers)
        finally:
            env.close()

    check_writable(cache)
    return kept_truth(cache.absolute() / f"truth-{request.domain}-{digest}.npz", described, compute)
