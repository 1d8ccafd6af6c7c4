"""A collection from configuration to file or dataset."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from icrl_agents.collection import collect_episodes
from icrl_agents.datasets.minari_writing import check_environment, dataset_place, write_minari_dataset
from icrl_agents.datasets.npz import save_episodes
from icrl_agents.episode import Episode
from icrl_agents.files import check_writable, new_folders_on_trial
from icrl_agents.studies.collect.config import CollectConfig
from icrl_agents.studies.description import describe
from icrl_agents.studies.environments import Counted, make_environment, make_policy
from icrl_agents.studies.results import numbered


def run(config: CollectConfig) -> list[Episode]:
    """Collects, prints a summary, and writes the file or the dataset; nothing is left of a run that fails.

    Raises:
        ImportError: If Minari or Stable-Baselines3 is needed and not installed.
        ValueError: If the file or dataset exists, or environment, policy and arguments do not fit.
        OSError: If it cannot be written.
    """
    about = json.dumps(describe(config))
    out = (config.out or Path()).absolute()  # an environment may change the working directory
    with new_folders_on_trial(out.parent):
        _check_target(config)
        with contextlib.closing(make_environment(config.env_id, config.env_args)) as env:
            if config.minari is not None:
                check_environment(env)
            policy = make_policy(config.policy, config.epsilon, env)
            with tqdm(total=config.num_steps, desc="collecting", unit="step", file=sys.stderr) as bar:
                episodes = collect_episodes(
                    Counted(env, bar),
                    num_steps=config.num_steps,
                    num_episodes=config.num_episodes,
                    max_episode_steps=config.max_episode_steps,
                    policy=policy,
                    seed=config.seed,
                    keep_actions=True,
                )
            if config.minari is not None:
                write_minari_dataset(config.minari, env, episodes, _algorithm(config), f"Collected by icrl: {about}")
            place = config.minari or _saved(config.out or out, out, episodes, about)
    print(summary(episodes))
    print(f"In {place}.")
    return episodes


def summary(episodes: Sequence[Episode]) -> str:
    """Number, lengths, ends and returns of episodes, in two lines."""
    lengths = np.array([len(episode) for episode in episodes])
    returns = np.array([np.sum(episode.rewards) for episode in episodes])
    ended = sum(bool(episode.terminated) for episode in episodes)
    return (
        f"{len(episodes):,} episode(s), {lengths.sum():,} steps, {lengths.min():,} to {lengths.max():,} each; "
        f"{ended:,} terminated, {len(episodes) - ended:,} truncated.\n"
        f"Undiscounted return: mean {returns.mean():.4g}, from {returns.min():.4g} to {returns.max():.4g}."
    )


def _check_target(config: CollectConfig) -> None:
    """Refuses what cannot be written before anything is collected."""
    if config.minari is not None:
        dataset_place(config.minari)
    elif config.out is not None:
        if os.path.lexists(config.out):
            raise ValueError(f"out: {config.out} exists already; choose another name.")
        check_writable(config.out.parent)


def _algorithm(config: CollectConfig) -> str:
    return config.policy + (f", random actions in {100 * config.epsilon:.6g}% of the steps" if config.epsilon else "")


def _saved(named: Path, out: Path, episodes: Sequence[Episode], about: str) -> Path:
    """Writes ``out``, which the user named so, or, if another program has made it meanwhile, a numbered one beside it.

    Returns:
        What is written, as the user would name it.
    """
    places = numbered(out)
    while True:
        place = next(places)
        with contextlib.suppress(FileExistsError):
            save_episodes(place, episodes, about, replace=False)
            break
    written = named.with_name(place.name)
    if place != out:
        warnings.warn(f"{named}: another program has made it meanwhile; the episodes are in {written}.", stacklevel=2)
    return written
