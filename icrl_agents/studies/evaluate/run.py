"""An evaluation from configuration to folder."""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
from tqdm import tqdm

from icrl_agents.collection import collect_episodes
from icrl_agents.collection.recorder import flattening
from icrl_agents.context import Context
from icrl_agents.episode import Episode, episode_arrays
from icrl_agents.machine import check_device, one_thread
from icrl_agents.studies.environments import Counted, make_environment, make_policy
from icrl_agents.studies.evaluate.config import EvaluateConfig
from icrl_agents.studies.evaluate.evaluation import Result, check_returns, evaluate
from icrl_agents.studies.evaluate.evaluators import LINEAR, kernel_evaluators
from icrl_agents.studies.evaluate.figures import calibration_figure, episode_figure, sample_size_figure
from icrl_agents.studies.evaluate.summary import SMALLEST_SHARE, table
from icrl_agents.studies.results import opened_folder, write_figure, write_rows

LARGEST_SHARE_OF_CUTS = 0.5
"""Of the variance of held-out returns, beyond which it is warned of; where values vary it is far below, as a rule."""


def run(config: EvaluateConfig) -> list[Result]:
    """Collects, evaluates, prints the table and writes ``config.folder``.

    Raises:
        ImportError: If Stable-Baselines3 is needed and not installed.
        ValueError: If environment, policy and arguments do not fit, no return is a ground truth, the output folder
            holds another run, or the device is not there.
        OSError: If the output folder cannot be written.
    """
    check_device(config.device)
    folder = config.folder.absolute()  # an environment may change the working directory
    with contextlib.closing(make_environment(config.env_id, config.env_args)) as env:
        policy = make_policy(config.policy, config.epsilon, env)
        flattening(env.observation_space)
        with opened_folder(folder, config):
            results = list(_evaluated(config, _collected(config, env, policy)))
            write_rows(folder, [result.row for result in results])
            told = table([result.row for result in results])
            print(told)
            print(_caption(config, results, told))
            write_figure(calibration_figure(results), folder / "calibration.png")
            write_figure(episode_figure(results), folder / "episode.png")
            write_figure(sample_size_figure(results), folder / "effective_sample_size.png")
            return results


def _collected(config: EvaluateConfig, env: gym.Env[Any, Any], policy: Any) -> dict[int, list[Episode]]:  # noqa: ANN401
    """The episodes of each seed, the context's first."""
    collected: dict[int, list[Episode]] = {}
    with tqdm(desc="collecting", unit="step", file=sys.stderr) as bar:
        for seed in range(config.first_seed, config.first_seed + config.seeds):
            bar.set_postfix_str(f"seed {seed}")
            collected[seed] = collect_episodes(
                Counted(env, bar),
                num_episodes=config.context_episodes + config.held_out_episodes,
                max_episode_steps=config.max_episode_steps,
                policy=policy,
                seed=seed,
            )
            for i, episode in enumerate(collected[seed]):
                episode_arrays(i, episode)
            check_returns(config, collected[seed][config.context_episodes :])
    if seen := [str(seed) for seed, episodes in collected.items() if _repeats(config, episodes)]:
        warnings.warn(
            f"seed {', '.join(seen)}: every held-out episode is one of the context's again, as where neither policy nor"
            " environment is random: errors are of states that were fitted on, and ± says nothing. Take a policy that "
            "varies (--epsilon), or starts that do.",
            stacklevel=2,
        )
    shares = {seed: _share_of_cuts(config, episodes[config.context_episodes :]) for seed, episodes in collected.items()}
    if cut := [str(seed) for seed, share in shares.items() if share > LARGEST_SHARE_OF_CUTS]:
        warnings.warn(
            f"seed {', '.join(cut)}: most of the variance of the held-out returns is of where episodes were cut: a "
            "centred error, relative to it, says nothing. Take longer episodes (--max-episode-steps), a larger --tail, "
            "or a policy under which returns differ.",
            stacklevel=2,
        )
    return collected


def _repeats(config: EvaluateConfig, episodes: Sequence[Episode]) -> bool:
    """Whether each held-out episode is equal to one of the context's."""
    whole = [(e.observations.tobytes(), e.rewards.tobytes(), e.terminated) for e in episodes]
    return set(whole[config.context_episodes :]) <= set(whole[: config.context_episodes])


def _share_of_cuts(config: EvaluateConfig, held_out: Sequence[Episode]) -> float:
    """The share of the variance of the returns that count which is of rewards behind cuts, each taken for the mean."""
    context = Context.from_episodes(held_out, config.gamma)
    returns, tails = context.returns()
    counted = tails >= config.min_tail
    returns, missing = returns[counted], config.gamma ** tails[counted] * context.rewards.mean() / (1 - config.gamma)
    variance = returns.var(correction=0)
    if not variance > SMALLEST_SHARE * returns.square().mean():
        return 0.0  # where the table measures nothing against it
    return float(missing.var(correction=0) / variance)


def _evaluated(config: EvaluateConfig, collected: dict[int, list[Episode]]) -> Iterator[Result]:
    total = len(collected) * (len(kernel_evaluators(config)) + len([LINEAR]))
    with one_thread(), tqdm(total=total, desc="evaluating", unit="fit", file=sys.stderr) as bar:
        for seed, episodes in collected.items():
            context, held_out = episodes[: config.context_episodes], episodes[config.context_episodes :]
            for result in evaluate(config, seed, context, held_out):
                bar.set_postfix_str(f"seed {seed}, {result.row.evaluator}")
                bar.update()
                yield result


def _caption(config: EvaluateConfig, results: list[Result], told: str) -> str:
    row = results[0].row
    undefined = (
        ""
        if "–" not in told
        else "–: no solution in one seed or more, as a line above says.\n"
        if any(math.isnan(result.row.msve) for result in results)
        else "–: all returns that count are equal (or 0), so that there is nothing to measure an error against.\n"
    )
    return (
        f"\n{config.seeds} seed(s), γ = {config.gamma:g}, {config.num_sweeps} sweeps; seed {row.seed}: "
        f"{row.context_transitions:,} transitions to fit on,\n"
        f"{row.returns_that_count:,} of {row.held_out_transitions:,} held-out returns count.\n"
        "Error: root-mean-square, against returns. Relative and centred: mean square, over that of the returns and,\n"
        "after the best constant shift, over their variance (1: any constant). Returns are samples, so that the exact\n"
        "value does not reach 0. Width: length scale in medians of the distance between states. Effective n:\n"
        "transitions that a value rests on. Seconds: of all seeds together, choice of the width included.\n"
        f"{undefined}"
        f"In {config.folder}: config.json, rows.csv, calibration.png, episode.png, effective_sample_size.png."
    )
