"""The transfer study from configuration to folder."""

from __future__ import annotations

import functools

from icrl_agents.execution import executor
from icrl_agents.machine import check_device
from icrl_agents.studies.cells import CELLS, KeptRows, compute_cells
from icrl_agents.studies.description import identity
from icrl_agents.studies.results import opened_folder, write_rows
from icrl_agents.studies.transfer.config import TransferConfig
from icrl_agents.studies.transfer.evaluation import Row, evaluate, evaluators
from icrl_agents.studies.transfer.failures import failures_table
from icrl_agents.studies.transfer.figures import heat_map_figure, td_loss_figure
from icrl_agents.studies.transfer.summary import Summary
from icrl_agents.studies.transfer.trajectories import Request, default_cache, gathered
from icrl_agents.studies.transfer.truth import truth_of


def run(config: TransferConfig) -> Summary:
    """Collects, evaluates, prints the table, and writes ``config.out``; goes on with what is finished there.

    Raises:
        ValueError: If the output folder holds another run, or the device or executor is not there.
        OSError: If a folder cannot be written, or workers were lost again and again.
    """
    if config.executor != "ray":
        check_device(config.device)
    gpus = float(config.device != "cpu")
    chosen = executor(config.executor, workers=config.workers, ray_address=config.ray_address, gpus=gpus)
    with opened_folder(config.out, config, config.cache or default_cache()):
        kept = KeptRows(config.out / CELLS, identity(config))
        rows = compute_cells(functools.partial(rows_of, config), cells_of(config), Row, chosen, kept)
        summary = Summary(rows)
        write_rows(config.out, rows)
        print(table := summary.table())
        print(_caption(config))
        if "–" in table:
            print("–: no solution in one seed or more, or nothing that varies, to which an error is relative.")
        print(f"\n{failures_table(summary)}")
        td_loss_figure(summary, config.out / "td_loss.png")
        heat_map_figure(summary, config.out / "heat_map.png")
        return summary


def _caption(config: TransferConfig) -> str:
    spread = (
        "; losses: mean ± standard error; errors: ratio of means\n± jackknife standard error, none where single seeds "
        "decide the ratio"
    )
    truth = (
        f"True: centred, against means of {config.continuations} continuations from each of {config.truth_states} "
        "states of a trajectory, relative to\nthe variance of the values, their noise taken away from both.\n"
        if config.continuations
        else ""
    )
    return (
        "\nHeld-out TD loss after L layers of one fixed set of weights (adaptive and closed forms: last column).\n"
        f"Value errors at L = {config.depth} against Monte-Carlo returns: relative to their mean square and, centred,\n"
        f"to their variance. {config.seeds} seed(s){spread if config.seeds > 1 else ''}.\n{truth}"
        f"In {config.out}: config.json, cells.jsonl, rows.csv, td_loss.png, heat_map.png."
    )


def rows_of(config: TransferConfig, cell: tuple[str, Request]) -> list[Row]:
    """Computes one cell: a noise level's name, and its trajectories as a request."""
    noise, request = cell
    trajectories = gathered(request, config.cache or default_cache())
    named = _evaluators(config, trajectories.context[0].observations.shape[-1])
    return list(evaluate(config, named, request, noise, trajectories, truth_of(config, request)))


_evaluators = functools.lru_cache(maxsize=1)(evaluators)


def cells_of(config: TransferConfig) -> dict[str, tuple[str, Request]]:
    """The cells by name, in the order of the rows."""
    return {
        f"{domain}, {noise} noise, seed {seed}": (
            noise,
            Request(
                domain=domain,
                noise=sigma,
                seed=seed,
                context_episodes=config.context_episodes,
                held_out_episodes=config.held_out_episodes,
                context_split=config.context_split,
                held_out_split=config.held_out_split,
                steps=config.steps,
                observation=config.observation,
                goal_visible=config.goal_visible,
                reward_version=config.reward_version,
            ),
        )
        for domain in config.resolved_domains
        for noise, sigma in zip(config.noise, config.scales, strict=True)
        for seed in range(config.first_seed, config.first_seed + config.seeds)
    }
