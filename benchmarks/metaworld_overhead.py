"""Times our MetaWorld reward process against the library's own loop with the same goal, policy and noise.

Both run the same trajectory in one process, alternating, so that contacts cost both the same and whatever else the
machine does falls on both alike. Times are of the processor, not of the clock on the wall:

    python benchmarks/metaworld_overhead.py --episodes 15
"""

import argparse
import pickle
import time
import warnings

import numpy as np
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.policies import ENV_POLICY_MAP
from metaworld.types import Task

from icrl_envs.metaworld.domains import domain_name
from icrl_envs.metaworld.goals import train_goals
from icrl_envs.metaworld.mrp import MetaWorldMRPEnv
from icrl_envs.random_streams import policy_stream

MISSION = ("pick-place-v3", "pick-place-wall-v3", "shelf-place-v3", "plate-slide-v3", "button-press-v3")


def stock_simulator(domain: str, goal: np.ndarray):
    """Return the library's simulator with a goal that is visible."""
    simulator = ALL_V3_ENVIRONMENTS[domain]()
    data = {"env_cls": type(simulator), "rand_vec": goal, "partially_observable": False}
    simulator.set_task(Task(env_name=domain, data=pickle.dumps(data)))
    return simulator


def time_stock(simulator, policy, sigma: float, steps: int) -> tuple[float, float]:
    """Return the processor's seconds for a reset and for an episode of the bare loop."""
    rng = policy_stream(0)
    start = time.process_time()
    observation, _ = simulator.reset()
    middle = time.process_time()
    for _ in range(steps):
        action = np.clip(policy.get_action(observation.copy()) + sigma * rng.standard_normal(4), -1.0, 1.0)
        observation, *_ = simulator.step(action)
    return middle - start, time.process_time() - middle


def time_ours(env: MetaWorldMRPEnv, steps: int) -> tuple[float, float]:
    """Return the processor's seconds for a reset and for an episode of our environment."""
    start = time.process_time()
    env.reset(seed=0, options={"goal_index": 0})
    middle = time.process_time()
    for _ in range(steps):
        env.step(0)
    return middle - start, time.process_time() - middle


def spread(values: np.ndarray) -> str:
    """Return the median and the quartiles."""
    low, median, high = np.percentile(values, [25, 50, 75])
    return f"{median:5.2f} [{low:4.2f}, {high:4.2f}]"


def compare(domain: str, sigma: float, episodes: int, steps: int) -> str:
    """Return one row: steps per second of both, and how many times faster ours steps and resets."""
    env = MetaWorldMRPEnv(domain, sigma, observation="full")
    stock, policy = stock_simulator(domain, train_goals(domain, 0)[0]), ENV_POLICY_MAP[domain]()
    pairs = [(time_stock(stock, policy, sigma, steps), time_ours(env, steps)) for _ in range(episodes + 1)]
    theirs, ours = np.array(pairs[1:]).transpose(1, 2, 0)  # the first pair warms up
    rates = [steps / np.median(seconds[1]) for seconds in (theirs, ours)]
    return (
        f"{domain:24s} {rates[0]:9.0f} {rates[1]:9.0f}   {spread(theirs[1] / ours[1])}   {spread(theirs[0] / ours[0])}"
    )


def main() -> None:
    """Print a table with one row for each domain."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--domains",
        nargs="+",
        type=domain_name,
        default=MISSION,
        metavar="DOMAIN",
        help="default: the five of the studies",
    )
    parser.add_argument("--sigma", type=float, default=0.5, help="standard deviation of the noise, default 0.5")
    parser.add_argument("--episodes", type=int, default=15, help="pairs of episodes in each domain, default 15")
    parser.add_argument("--steps", type=int, default=200, help="length of an episode, default 200")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="Constant")  # of the scripted policies in the bare loop
    print(f"{'':24s} {'stock':>9s} {'ours':>9s}   {'steps':18s}   resets")
    print(f"{'domain':24s} {'steps/s':>9s} {'steps/s':>9s}   ×  [quartiles]       ×  [quartiles]")
    for domain in arguments.domains:
        print(compare(domain, arguments.sigma, arguments.episodes, arguments.steps), flush=True)


if __name__ == "__main__":
    main()
