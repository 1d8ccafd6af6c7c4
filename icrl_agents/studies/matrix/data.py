"""What a cell is trained on and what it is measured on, and that the two share no goal."""

from __future__ import annotations

from dataclasses import dataclass

from icrl_agents.episode import Episode
from icrl_agents.studies.matrix.config import FRESH, MatrixConfig
from icrl_agents.studies.transfer.trajectories import Request, Trajectories, default_cache, gathered
from icrl_envs.metaworld.domains import noise_scale
from icrl_envs.metaworld.goals import split_goals


@dataclass(frozen=True)
class Cell:
    """What is pretrained.

    Args:
        source: MetaWorld domain, or ``"constructed"``.
        seed: Of its goals, of its first weights and of the evaluation.
    """

    source: str
    seed: int


def source_episodes(config: MatrixConfig, cell: Cell) -> list[Episode]:
    """High-noise trajectories to pretrain on, all with goals of the training split."""
    half = config.tasks // 2
    counts, sigma = (half, config.tasks - half), noise_scale("high")
    found = _gathered(config, cell.source, sigma, cell.seed, counts, held_out_split="train")
    return [*found.context, *found.held_out]


def evaluation(config: MatrixConfig, target: str, sigma: float, seed: int) -> Trajectories:
    """Trajectories to fit on and, with goals of the test split, to measure on."""
    counts = (config.context_episodes, config.held_out_episodes)
    return _gathered(config, target, sigma, evaluation_seed(seed), counts, held_out_split="test")


def evaluation_seed(seed: int) -> int:
    """Seed of the evaluation's goals and noise: the test goals of one are not the next one's training goals."""
    return FRESH + 2 * seed


def check_goals(cell: Cell) -> None:
    """Raises ValueError if two of pretraining's, the context's and the held-out trajectories' goals are equal."""
    fresh = evaluation_seed(cell.seed)
    sets = [_goals(cell.source, *where) for where in (("train", cell.seed), ("train", fresh), ("test", fresh))]
    shared = sum(map(len, sets)) - len(set().union(*sets))
    if shared:
        raise ValueError(
            f"domains: in {cell.source}, {shared} goal(s) of pretraining and evaluation are equal at seed {cell.seed}; "
            "leave the domain out, or take another first_seed."
        )


def _goals(domain: str, split: str, seed: int) -> set[bytes]:
    goals = split_goals(domain, split, seed)
    return set() if goals is None else {goal.tobytes() for goal in goals}


def _gathered(
    config: MatrixConfig, domain: str, sigma: float, seed: int, counts: tuple[int, int], *, held_out_split: str
) -> Trajectories:
    request = Request(
        domain=domain,
        noise=sigma,
        seed=seed,
        context_episodes=counts[0],
        held_out_episodes=counts[1],
        context_split="train",
        held_out_split=held_out_split,
        steps=config.steps,
        observation="core",
        goal_visible=True,
        reward_version="v2",
    )
    return gathered(request, config.cache or default_cache())
