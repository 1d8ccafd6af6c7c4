"""Times the native vector environments against the single environment stepped in Python, on one core, in one run.

python benchmarks/vector_environments.py --copies 256 1024 4096
"""

import argparse
import time
from collections.abc import Callable

import gymnasium as gym
import numpy as np

import icrl_envs  # noqa: F401 - registers the environments

REPEATS = 7


def rate(step: Callable[[], object], transitions: int, calls: int) -> list[float]:
    """Return the transitions per second of each repeat, by the processor's clock."""
    rates = []
    for _ in range(REPEATS):
        start = time.process_time()
        for _ in range(calls):
            step()
        rates.append(transitions * calls / (time.process_time() - start))
    return rates


def main() -> None:
    """Print one line per environment and number of copies."""
    parser = argparse.ArgumentParser(description="Native vector environments against the single one.")
    parser.add_argument("--copies", type=int, nargs="+", default=[256, 1024, 4096])
    arguments = parser.parse_args()
    print(f"{'environment':20s} {'copies':>7s} {'transitions/s':>14s}   × the single one [quartiles]")
    for name in ("icrl/BoyanChain-v0", "icrl/LoopChain-v0", "icrl/RKHS-v0"):
        single = gym.make(name)
        single.reset(seed=0)
        base = np.median(rate(lambda env=single: env.step(0), 1, 20_000))
        print(f"{name:20s} {1:7d} {base:14,.0f}")
        for copies in arguments.copies:
            env = gym.make_vec(name, num_envs=copies, vectorization_mode="vector_entry_point")
            env.reset(seed=0)
            actions = np.zeros(copies, dtype=np.int64)
            rates = np.array(rate(lambda env=env, actions=actions: env.step(actions), copies, 200))
            low, middle, high = np.percentile(rates / base, [25, 50, 75])
            print(f"{name:20s} {copies:7d} {np.median(rates):14,.0f}   {middle:6.1f} [{low:.1f}, {high:.1f}]")


if __name__ == "__main__":
    main()
