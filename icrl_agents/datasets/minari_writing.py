"""Minari datasets, written from episodes that kept their actions (extra ``[minari]``)."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Env, spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from icrl_agents.arrays import check_list
from icrl_agents.episode import Episode, episode_arrays
from icrl_agents.extras import import_extra
from icrl_agents.files import new_folders_on_trial


def write_minari_dataset(
    dataset_id: str, env: Env[Any, Any], episodes: Sequence[Episode], algorithm: str = "", description: str = ""
) -> None:
    """Writes episodes as a Minari dataset, whole or not at all, where Minari looks for it.

    That is ``$MINARI_DATASETS_PATH`` where it is set, and otherwise ``~/.minari/datasets``.

    Observations and actions get the types of their spaces; what that would change beyond float32's rounding is refused.

    Args:
        dataset_id: ``"(namespace/)name-v0"``; one that exists is refused.
        env: The environment that they are of, for its spaces and its spec.
        episodes: At least one, all with actions (``collect_episodes(..., keep_actions=True)``).
        algorithm: The policy's name.
        description: What the dataset is.

    Raises:
        MissingExtraError: If Minari is not installed.
        TypeError: If ``env`` is no single environment, or something is not an Episode.
        ValueError: If the id is malformed or taken, there is no episode, one has no actions or no steps, they do not
            fit the spaces of ``env``, or Minari cannot keep these or its spec (``check_environment``).
        OSError: If it cannot be written.
    """
    place = dataset_place(dataset_id)
    check_list("episodes", episodes, Episode)
    if any(episode.actions is None for episode in episodes):
        raise ValueError("episodes: expected at least one, all with actions; collect with keep_actions=True.")
    if empty := [i for i, episode in enumerate(episodes) if len(episode) == 0]:
        raise ValueError(f"episode {empty[0]}: expected at least one step, without which Minari keeps none, got 0.")
    if not isinstance(env, Env):
        raise TypeError(f"env: expected a single gymnasium.Env, for its spaces, got {type(env).__name__}.")
    minari = import_extra("minari", "minari", "A Minari dataset")
    with new_folders_on_trial(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.parent / f".icrl-{secrets.token_hex(4)}"
        partial.mkdir()
        try:
            storage = _begun(partial / "data", env)
            about = {"algorithm_name": algorithm, "description": description}
            identity = {"dataset_id": dataset_id, "minari_version": minari.__version__}
            storage.update_metadata(identity | {name: text for name, text in about.items() if text})
            storage.update_episodes(_buffers(env, episodes))
            _make_namespace(dataset_id)
            partial.rename(place)
        except OSError:
            if place.exists():
                raise _taken(dataset_id, place) from None  # by another process, meanwhile
            raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def dataset_place(dataset_id: str) -> Path:
    """Returns the folder that a new dataset gets.

    Raises:
        MissingExtraError: If Minari is not installed.
        ValueError: If the id is malformed or taken.
    """
    import_extra("minari", "minari", "A Minari dataset")
    ids = import_extra("minari.dataset.minari_dataset", "minari", "A Minari dataset")
    storage = import_extra("minari.storage", "minari", "A Minari dataset")
    parts = ids.DATASET_ID_RE.fullmatch(dataset_id) if isinstance(dataset_id, str) else None
    if parts is None or parts["version"] is None:
        raise ValueError(
            f"dataset id: expected (namespace/)name-v(version), such as cartpole/random-v0, a namespace of two "
            f"characters or more, got {dataset_id!r}."
        )
    place = Path(storage.get_dataset_path(dataset_id))
    if place.exists():
        raise _taken(dataset_id, place)
    return place


def check_environment(env: Env[Any, Any]) -> None:
    """Raises ValueError if Minari cannot keep the spaces or the spec of ``env``: to be asked before a collection."""
    with tempfile.TemporaryDirectory() as folder:
        _begun(Path(folder) / "data", env)


def _begun(folder: Path, env: Env[Any, Any]) -> Any:  # noqa: ANN401 - Minari need not be there
    """A dataset of no episodes."""
    for space in (env.observation_space, env.action_space):
        _check_keys(space)
    module = import_extra("minari.dataset.minari_storage", "minari", "A Minari dataset")
    given = {"observation_space": env.observation_space, "action_space": env.action_space, "env_spec": env.spec}
    try:
        return module.MinariStorage.new(folder, **given, data_format="hdf5")
    except (NotImplementedError, TypeError, ValueError) as error:
        raise ValueError(f"env: Minari cannot keep its spaces or its spec: {error}") from error


def _taken(dataset_id: str, place: Path) -> ValueError:
    return ValueError(f"dataset id: {dataset_id} exists already at {place}; take another name or version.")


def _check_keys(space: spaces.Space[Any]) -> None:
    """Raises ValueError where a dataset could not be read, or its columns in another order.

    Keys are names of groups in a file of Minari's, where a slash makes two of one, and are read sorted.
    """
    children = list(space.spaces.values()) if isinstance(space, spaces.Dict) else getattr(space, "spaces", ())
    if isinstance(space, spaces.Dict) and list(space.spaces) != sorted(space.spaces):
        raise ValueError(
            f"env: expected the keys of its spaces in alphabetical order, in which Minari keeps them, got "
            f"{', '.join(map(str, space.spaces))}; make the space of a plain dict, which Gymnasium sorts: "
            "spaces.Dict({...})."
        )
    for key in space.spaces if isinstance(space, spaces.Dict) else ():
        if not isinstance(key, str) or key in ("", ".") or "/" in key:
            raise ValueError(
                f"env: expected keys of its spaces that Minari can keep, strings without a slash, got {key!r}; rename "
                "it, for instance with gymnasium.wrappers.TransformObservation, or keep the episodes as an npz file."
            )
    for child in children:
        _check_keys(child)


def _buffers(env: Env[Any, Any], episodes: Sequence[Episode]) -> Iterator[Any]:
    """The episodes as Minari's buffers, observations and actions back in their spaces."""
    data_collector = import_extra("minari.data_collector", "minari", "A Minari dataset")
    for i, episode in enumerate(episodes):
        _, rewards = episode_arrays(i, episode)
        got = len(np.asarray(episode.actions))
        if got != len(rewards):
            raise ValueError(f"episode {i}: expected {len(rewards)} actions, as many as rewards, got {got}.")
        flags = np.zeros((2, len(episode)), dtype=bool)
        flags[0 if episode.terminated else 1, -1:] = True
        yield data_collector.EpisodeBuffer(
            id=i,
            observations=_batch(i, "observations", env.observation_space, episode.observations),
            actions=_batch(i, "actions", env.action_space, episode.actions),
            rewards=list(episode.rewards),
            terminations=list(flags[0]),
            truncations=list(flags[1]),
        )


def _batch(index: int, name: str, space: spaces.Space[Any], rows: Any) -> Any:  # noqa: ANN401
    """The inverse of ``_rows``; ValueError if the rows are none of ``space``."""
    rows = np.asarray(rows)
    fits = rows.ndim == 2 and rows.shape[-1] == spaces.flatdim(space)
    elements = [spaces.unflatten(space, row) for row in rows] if fits else []
    again = [np.asarray(spaces.flatten(space, element)) for element in elements]
    rounding = float(np.finfo(np.float32).eps)  # of a policy's actions, for instance, which the environment rounds too
    if not fits or not np.allclose(np.reshape(again, rows.shape), rows, rtol=rounding, atol=0.0, equal_nan=True):
        raise ValueError(
            f"episode {index}: its {name} {rows.shape} are none of env's {space}; pass the environment that the "
            "episodes were collected from."
        )
    return concatenate(space, elements, create_empty_array(space, len(elements)))


def _make_namespace(dataset_id: str) -> None:
    namespaces = import_extra("minari.namespace", "minari", "A Minari dataset")
    namespace = dataset_id.rpartition("/")[0]
    if namespace and namespace not in namespaces.list_local_namespaces():
        try:
            namespaces.create_namespace(namespace)
        except (ValueError, FileExistsError):
            if namespace not in namespaces.list_local_namespaces():  # another process may have made it meanwhile
                raise
