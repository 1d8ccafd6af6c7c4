"""Trajectories of one cell of the study, kept on disk."""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from icrl_agents.collection import collect_episodes
from icrl_agents.episode import Episode
from icrl_agents.files import DAMAGE, check_writable, write_atomically
from icrl_agents.studies.description import source_digest
from icrl_envs.metaworld.mrp import MetaWorldMRPEnv

COLLECTION_VERSION = 1
"""Raised whenever the same request would give other trajectories in the same environment, so that no stale ones are
reused; that the environment's source has changed is seen."""
ENVIRONMENT = "icrl_envs/metaworld"


@dataclass(frozen=True, kw_only=True)
class Request:
    """Everything that defines the trajectories of one domain, noise level and seed.

    Args:
        domain: MetaWorld domain.
        noise: Standard deviation σ of the policy noise.
        seed: Of the goal set (``task_seed``), the goals drawn from it and the noise.
        context_episodes: Number of trajectories to fit on.
        held_out_episodes: Number of trajectories to evaluate on.
        context_split: Side of the benchmark's split, ``"train"`` or ``"test"``, that the goals of the former are from.
        held_out_split: The same of the latter.
        steps: Steps of each trajectory.
        observation: ``"core"``, ``"full"`` or ``"state"``.
        goal_visible: Whether the observation contains the goal.
        reward_version: ``"v2"`` or ``"v1"``.
    """

    domain: str
    noise: float
    seed: int
    context_episodes: int
    held_out_episodes: int
    context_split: str
    held_out_split: str
    steps: int
    observation: str
    goal_visible: bool
    reward_version: str

    def identity(self) -> str:
        """The request, and every version and source that shapes the trajectories, as JSON."""
        versions = {name: version(name) for name in ("gymnasium", "metaworld", "mujoco", "numpy")}
        ours = {"collection": COLLECTION_VERSION, "environment": source_digest(ENVIRONMENT)}
        return json.dumps({**ours, **versions, **asdict(self)}, sort_keys=True)

    def key(self) -> str:
        """Name of the cache file: a hash of the identity."""
        return f"{self.domain}-{hashlib.sha256(self.identity().encode()).hexdigest()[:32]}.npz"

    def collect(self) -> Trajectories:
        """Runs the simulator."""
        return Trajectories(
            context=self._episodes(self.context_split, self.context_episodes, stream=0),
            held_out=self._episodes(self.held_out_split, self.held_out_episodes, stream=1),
        )

    def env(self, split: str) -> MetaWorldMRPEnv:
        """The environment, with the goals of ``split``."""
        return MetaWorldMRPEnv(
            self.domain,
            self.noise,
            observation=self.observation,
            goal_visible=self.goal_visible,
            reward_version=self.reward_version,
            split=split,
            task_seed=self.seed,
        )

    def stream_seed(self, stream: int) -> int:
        """Seed of the context's episodes (stream 0) or of the held-out ones (1)."""
        return int(np.random.SeedSequence([self.seed, stream]).generate_state(1)[0])

    def _episodes(self, split: str, count: int, *, stream: int) -> list[Episode]:
        env, seed = self.env(split), self.stream_seed(stream)
        try:
            return collect_episodes(env, num_episodes=count, max_episode_steps=self.steps, seed=seed)
        finally:
            env.close()


@dataclass(frozen=True)
class Trajectories:
    """What a request gives.

    Args:
        context: Episodes to fit on.
        held_out: Episodes to evaluate on.
    """

    context: list[Episode]
    held_out: list[Episode]

    def save(self, path: Path, request: Request) -> None:
        """Writes the arrays, and what they are of, whole or not at all."""
        arrays = {"identity": np.array(request.identity())}
        for name, episodes in (("context", self.context), ("held_out", self.held_out)):
            arrays[f"{name}_observations"] = np.stack([e.observations for e in episodes])
            arrays[f"{name}_rewards"] = np.stack([e.rewards for e in episodes])
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        write_atomically(path, buffer.getvalue())

    @classmethod
    def load(cls, path: Path, request: Request) -> Trajectories:
        """Reads what ``save`` wrote; every trajectory of the study is truncated.

        Raises:
            ValueError: If the file holds the trajectories of another request.
        """
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if str(arrays["identity"]) != request.identity():
                raise ValueError("it holds the trajectories of another request")
            context, held_out = (
                [
                    Episode(*arrays_of)
                    for arrays_of in zip(arrays[f"{n}_observations"], arrays[f"{n}_rewards"], strict=True)
                ]
                for n in ("context", "held_out")
            )
        return cls(context, held_out)


def gathered(request: Request, cache: Path) -> Trajectories:
    """Returns the trajectories of ``request``: those in the cache, or else collected and kept there.

    Args:
        request: What to collect.
        cache: Folder of collected trajectories, made if it is missing.

    Raises:
        OSError: If the cache cannot be written.
    """
    path = cache / request.key()
    kept = _kept(path, request)
    if kept is None:
        check_writable(cache)
        kept = request.collect()
        kept.save(path, request)
    return kept


def default_cache() -> Path:
    """The user's cache folder for trajectories: in ``$XDG_CACHE_HOME`` if that is absolute, else in ``~/.cache``.

    Raises:
        ValueError: If the user has no home folder.
    """
    root = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (root if root.is_absolute() else Path.home() / ".cache") / "icrl" / "trajectories"
    except RuntimeError as error:
        raise ValueError(f"cache: {str(error).rstrip('.')}; choose a folder with --cache.") from None


def _kept(path: Path, request: Request) -> Trajectories | None:
    try:
        return Trajectories.load(path, request)
    except FileNotFoundError:
        return None
    except DAMAGE as error:
        warnings.warn(f"{path}: damaged ({error}); collecting it again.", stacklevel=2)
        return None
