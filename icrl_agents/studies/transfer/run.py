"""The transfer study from configuration to folder."""

from __future__ import annotations

import sys

from tqdm import tqdm

from icrl_agents.machine import check_device, one_thread
from icrl_agents.studies.results import open_folder, write_rows
from icrl_agents.studies.transfer.config import TransferConfig
from icrl_agents.studies.transfer.evaluation import Row, evaluate, evaluators
from icrl_agents.studies.transfer.figures import heat_map_figure, td_loss_figure
from icrl_agents.studies.transfer.summary import Summary
from icrl_agents.studies.transfer.trajectories import Request, Trajectories, default_cache, gather


def run(config: TransferConfig) -> Summary:
    """Collects, evaluates, prints the table, and writes ``config.out``.

    Raises:
        ValueError: If the output folder holds another run, or the device is not there.
    """
    check_device(config.device)
    open_folder(config.out, config, config.cache or default_cache())
    trajectories = _gathered(config)
    dim = next(iter(trajectories.values())).context[0].observations.shape[-1]
    named = evaluators(config, dim)
    rows: list[Row] = []
    progress = tqdm(_requests(config), desc="evaluating", unit="cell", file=sys.stderr)
    with one_thread():
        for noise, request in progress:
            progress.set_postfix_str(f"{request.domain}, {noise} noise, seed {request.seed}")
            rows += evaluate(config, named, request, noise, trajectories[request])
    summary = Summary(rows)
    write_rows(config.out, rows)
    print(summary.table())
    print(_caption(config))
    td_loss_figure(summary, config.out / "td_loss.png")
    heat_map_figure(summary, config.out / "heat_map.png")
    return summary


def _caption(config: TransferConfig) -> str:
    spread = (
        "; losses: mean ± standard error; errors: ratio of means\n± jackknife standard error, none where single seeds "
        "decide the ratio"
    )
    return (
        "\nHeld-out TD loss after L layers of one fixed set of weights (closed forms: in the last depth's column).\n"
        f"Value errors at L = {config.depth} against Monte-Carlo returns: relative to their mean square and, centred,\n"
        f"to their variance. {config.seeds} seed(s){spread if config.seeds > 1 else ''}.\n"
        f"In {config.out}: config.json, rows.csv, td_loss.png, heat_map.png."
    )


def _gathered(config: TransferConfig) -> dict[Request, Trajectories]:
    requests = [request for _, request in _requests(config)]
    trajectories: dict[Request, Trajectories] = {}
    with tqdm(total=len(requests), desc="collecting", unit="cell", file=sys.stderr) as progress:
        for request, gathered, kept in gather(requests, config.cache or default_cache(), config.workers):
            source = "from the cache" if kept else "simulated"
            progress.set_postfix_str(f"{request.domain}, σ = {request.noise:g}, seed {request.seed}, {source}")
            progress.update()
            trajectories[request] = gathered
    return trajectories


def _requests(config: TransferConfig) -> list[tuple[str, Request]]:
    return [
        (
            noise,
            Request(
                domain=domain,
                noise=sigma,
                seed=seed,
                context_episodes=config.context_episodes,
                held_out_episodes=config.held_out_episodes,
                steps=config.steps,
                observation=config.observation,
                goal_visible=config.goal_visible,
                reward_version=config.reward_version,
            ),
        )
        for domain in config.resolved_domains
        for noise, sigma in zip(config.noise, config.scales, strict=True)
        for seed in range(config.first_seed, config.first_seed + config.seeds)
    ]
