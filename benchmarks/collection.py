"""Times the collection of MetaWorld trajectories: ours on one core and in processes, against the library's own loop.

The loop and our collection on one core alternate in this process, by the processor's clock, which other work on the
machine does not slow down. Processes are compared with one of them by the clock on the wall, from when all of them are
at work until all trajectories are there; several rounds alternate. On a machine with other work that clock says little,
so the processor's time of a trajectory is compared too: what it grows by is what processes cost each other.

    python benchmarks/collection.py --episodes 12 --workers 2
"""

import argparse
import contextlib
import itertools
import time
import warnings

import numpy as np
from metaworld.policies import ENV_POLICY_MAP
from metaworld_overhead import spread, stock_simulator, time_stock

from icrl_agents.collection import collect_episodes
from icrl_agents.execution.processes import Processes
from icrl_envs.metaworld.domains import domain_name
from icrl_envs.metaworld.goals import train_goals
from icrl_envs.metaworld.mrp import MetaWorldMRPEnv

STEPS, SIGMA = 200, 0.5
_ENVIRONMENTS: dict[str, MetaWorldMRPEnv] = {}


def collect(cell: tuple[str, int]) -> float:
    """Collect one trajectory; return the processor's seconds that it took."""
    domain, seed = cell
    if domain not in _ENVIRONMENTS:
        _ENVIRONMENTS[domain] = MetaWorldMRPEnv(domain, SIGMA)
    start = time.process_time()
    collect_episodes(_ENVIRONMENTS[domain], num_episodes=1, max_episode_steps=STEPS, seed=seed)
    return time.process_time() - start


def one_core(domain: str, episodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the processor's seconds of each trajectory, resets included: of the library's loop and of ours."""
    simulator, policy = stock_simulator(domain, train_goals(domain, 0)[0]), ENV_POLICY_MAP[domain]()
    pairs = [(sum(time_stock(simulator, policy, SIGMA, STEPS)), collect((domain, i))) for i in range(episodes + 1)]
    theirs, ours = np.array(pairs[1:]).T  # the first pair warms up
    return theirs, ours


def rate(domain: str, workers: int, episodes: int) -> tuple[float, float]:
    """Return transitions per second of the wall's clock once all workers are at work, and of a processor's."""
    cells = [(domain, seed) for seed in range(workers * (episodes + 2))]
    with contextlib.closing(Processes(workers).map(collect, cells)) as results:
        for _ in itertools.islice(results, 2 * workers):  # they have started and built their environments by then
            pass
        start = time.perf_counter()
        seconds = [each for _, each in results]
    return len(seconds) * STEPS / (time.perf_counter() - start), STEPS / float(np.median(seconds))


def main() -> None:
    """Print a line for each number of cores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domain", type=domain_name, default="pick-place-v3", help="default pick-place-v3")
    parser.add_argument("--episodes", type=int, default=12, help="trajectories per worker and round, default 12")
    parser.add_argument("--workers", type=int, default=2, help="processes, default 2")
    parser.add_argument("--rounds", type=int, default=5, help="rounds with one and with all processes, default 5")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="Constant")  # of the scripted policies in the library's loop
    theirs, ours = one_core(arguments.domain, arguments.episodes)
    counts = (1, arguments.workers)
    rounds = [[rate(arguments.domain, n, arguments.episodes) for n in counts] for _ in range(arguments.rounds)]
    (single, alone), (several, beside) = np.array(rounds).transpose(1, 2, 0)
    print(f"{arguments.domain}, σ = {SIGMA}, trajectories of {STEPS} steps, resets included")
    print(f"{'':28s} {'steps/s':>8s}   ×  [quartiles]")
    print(f"{'the library, one core':28s} {STEPS / np.median(theirs):8.0f}")
    print(f"{'ours, one core':28s} {STEPS / np.median(ours):8.0f}   {spread(theirs / ours)} the library's")
    title = f"ours, {arguments.workers} processes"
    print(f"{title:28s} {np.median(several):8.0f}   {spread(several / single)} one process, at {np.median(single):.0f}")
    print(f"{'… by the processor':28s} {np.median(beside):8.0f}   {spread(beside / alone)} one process, each of them")


if __name__ == "__main__":
    main()
