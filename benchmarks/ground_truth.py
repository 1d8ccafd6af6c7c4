"""Ground truth of MetaWorld's cells: how noisy single returns are, and how far observations are from Markov.

For each domain and noise: states along episodes of the scripted policy, their values by continuations from exact
snapshots, and the same once more with another hidden state behind the same observation: the mocap target, which
leads the hand, moved to the lead that it has in the state that looks most alike. Run as

    python benchmarks/ground_truth.py --cache FOLDER
"""

import argparse
import functools
from pathlib import Path

import numpy as np

from icrl_agents.ground_truth import (
    GroundTruth,
    ground_truth,
    hidden_share,
    kept_truth,
    nearest,
    observed,
    states_along,
    unexplained_share,
)
from icrl_envs.metaworld.domains import NOISE_LEVELS
from icrl_envs.metaworld.mrp import MetaWorldMRPEnv

DOMAINS = ("pick-place-v3", "pick-place-wall-v3", "shelf-place-v3", "plate-slide-v3", "button-press-v3")
COLUMNS = (
    *("domain", "noise", "mean v", "sd of v", "sd of G given s", "s.e. of v"),
    *("noise share", "core", "full", "state", "hidden"),
)
KINDS = ("core", "full", "state")
REPLICATES = 2_000
HAND, MOCAP = slice(0, 3), slice(39, 42)


def relocated(env, snapshots, states):
    """The snapshots with the mocap target's lead over the hand of the state that is nearest in the full observation."""
    leads = (states[:, MOCAP] - states[:, HAND])[nearest(states[:, :39])]
    moved = []
    for snapshot, lead in zip(snapshots, leads, strict=True):
        full = env.set_state(snapshot, seed=0)
        env.simulator.data.mocap_pos[0] = (full[HAND] + lead).clip(env.simulator.mocap_low, env.simulator.mocap_high)
        moved.append(env.get_state())
    return moved


def interval(statistic, truths, episodes):
    """Ends of the 95 % interval of ``statistic(*truths)``: a bootstrap over episodes."""
    rng, drawn = np.random.default_rng(0), []
    groups = np.arange(len(truths[0].values)).reshape(episodes, -1)
    for _ in range(REPLICATES):
        rows = groups[rng.integers(episodes, size=episodes)].ravel()
        drawn.append(
            statistic(*(GroundTruth(t.observations[rows], t.returns[rows], t.gamma, t.horizon) for t in truths))
        )
    return np.nanquantile(drawn, [0.025, 0.975])


def with_interval(statistic, truths, episodes):
    """A statistic and its interval as text."""
    low, high = interval(statistic, truths, episodes)
    return f"{statistic(*truths):.2g} [{low:.2g}, {high:.2g}]"


def measure(domain, noise, options):
    """One line of the table."""
    envs = {kind: MetaWorldMRPEnv(domain, noise, observation=kind) for kind in KINDS}
    env, shown = envs["full"], {}
    choice = {"episodes": options.episodes, "states_per_episode": options.states, "steps": 200, "seed": options.seed}
    snapshots = states_along(env, **choice)
    for kind in KINDS:
        shown[kind] = observed(envs[kind], snapshots)
    truths = {}
    for name in ("as it is", "hidden"):
        states = snapshots if name == "as it is" else relocated(env, snapshots, shown["state"])
        settings = {
            "gamma": options.gamma,
            "continuations": options.continuations,
            "seed": options.seed + (name == "hidden"),
        }
        described = {"domain": domain, "noise": noise, "states": name, "choice": choice, **settings}
        path = options.cache / f"{domain}-{noise}-{name.replace(' ', '-')}.npz"
        truths[name] = kept_truth(path, described, functools.partial(ground_truth, env, states, **settings))
    truth = truths["as it is"]
    numbers = [
        truth.values.mean(),
        max(truth.value_variance, 0.0) ** 0.5,
        truth.return_variance**0.5,
        np.square(truth.standard_errors).mean() ** 0.5,
    ]
    shares = [unexplained_share(shown[kind], truth) for kind in KINDS]
    texts = [
        *(f"{number:.3g}" for number in numbers),
        with_interval(lambda t: t.noise_share, [truth], options.episodes),
        *(f"{share:.2g}" for share in shares),
        with_interval(hidden_share, [truth, truths["hidden"]], options.episodes),
    ]
    print(f"| {domain} | {noise} | " + " | ".join(texts) + " |", flush=True)


def main():
    """All cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="folder of the values, reused by later runs")
    parser.add_argument("--gamma", type=float, default=0.9)
    parser.add_argument("--episodes", type=int, default=24, help="from which states are taken")
    parser.add_argument("--states", type=int, default=5, help="of each episode")
    parser.add_argument("--continuations", type=int, default=8, help="of each state")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--domains", nargs="+", default=DOMAINS)
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|")
    for domain in options.domains:
        for noise in NOISE_LEVELS:
            measure(domain, noise, options)


if __name__ == "__main__":
    main()
