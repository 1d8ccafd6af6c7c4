"""Trajectories of one cell of the study: collected in processes, kept on disk."""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import os
import signal
import threading
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from icrl_agents.collection import collect_episodes
from icrl_agents.episode import Episode
from icrl_agents.files import write_atomically
from icrl_envs.metaworld.mrp import MetaWorldMRPEnv

COLLECTION_VERSION = 1
"""Raised whenever the same request would give other trajectories, so that no stale ones are reused."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Everything that defines the trajectories of one domain, noise level and seed.

    Args:
        domain: MetaWorld domain.
        noise: Standard deviation σ of the policy noise.
        seed: Of the goal set (``task_seed``), the goals drawn from it and the noise.
        context_episodes: Number of trajectories with goals of the training split.
        held_out_episodes: Number of trajectories with goals of the test split.
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
    steps: int
    observation: str
    goal_visible: bool
    reward_version: str

    def identity(self) -> str:
        """The request and every version that shapes the trajectories, as JSON."""
        versions = {name: version(name) for name in ("gymnasium", "metaworld", "mujoco", "numpy")}
        return json.dumps({"collection": COLLECTION_VERSION, **versions, **asdict(self)}, sort_keys=True)

    def key(self) -> str:
        """Name of the cache file: a hash of the identity."""
        return f"{self.domain}-{hashlib.sha256(self.identity().encode()).hexdigest()[:32]}.npz"

    def collect(self) -> Trajectories:
        """Runs the simulator."""
        return Trajectories(
            context=self._episodes("train", self.context_episodes, stream=0),
            held_out=self._episodes("test", self.held_out_episodes, stream=1),
        )

    def _episodes(self, split: str, count: int, *, stream: int) -> list[Episode]:
        env = MetaWorldMRPEnv(
            self.domain,
            self.noise,
            observation=self.observation,
            goal_visible=self.goal_visible,
            reward_version=self.reward_version,
            split=split,
            task_seed=self.seed,
        )
        seed = int(np.random.SeedSequence([self.seed, stream]).generate_state(1)[0])
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


def gather(requests: Sequence[Request], cache: Path, workers: int) -> Iterator[tuple[Request, Trajectories, bool]]:
    """Yields each request with its trajectories and whether they came from the cache, as they become ready.

    Args:
        requests: What to collect.
        cache: Folder of collected trajectories.
        workers: Number of processes; 0 for one per core.

    Raises:
        OSError: If the cache cannot be written or a process was killed.
    """
    missing = []
    for request in requests:
        kept = _kept(cache, request)
        if kept is None:
            missing.append(request)
        else:
            yield request, kept, True
    if missing:
        processes = min(workers or os.cpu_count() or 1, len(missing))
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, mp_context=context, initializer=_end_with_parent) as pool:
            try:
                futures = {pool.submit(_collect_into, request, cache): request for request in missing}
                for future in as_completed(futures):
                    yield futures[future], Trajectories.load(future.result(), futures[future]), False
            except BrokenProcessPool:
                raise OSError(
                    "a collecting process was killed, perhaps for lack of memory; run the command again, with fewer "
                    "--workers: finished cells are kept."
                ) from None
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def default_cache() -> Path:
    """The user's cache folder for trajectories: in ``$XDG_CACHE_HOME`` if that is absolute, else in ``~/.cache``."""
    root = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (root if root.is_absolute() else Path.home() / ".cache") / "icrl" / "trajectories"


def _kept(cache: Path, request: Request) -> Trajectories | None:
    path = cache / request.key()
    try:
        return Trajectories.load(path, request)
    except FileNotFoundError:
        return None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        warnings.warn(f"{path}: damaged ({error}); collecting it again.", stacklevel=2)
        return None


def _collect_into(request: Request, cache: Path) -> Path:
    path = cache / request.key()
    request.collect().save(path, request)
    return path


def _end_with_parent() -> None:
    """Makes a worker end when the process that started it does, however that ends; Ctrl-C is left to that process."""
    parent = multiprocessing.parent_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
