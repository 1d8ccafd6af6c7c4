"""Times evaluation: queries, fits, equal states, long contexts, and how all of it grows; ratios within one run.

    python benchmarks/evaluation.py --peer PATH_OF_A_CLONE_OF_InContextTD

Every number is the median of repeats, with quartiles, on one thread by the processor's clock (on more, by that on the
wall); memory is the peak of a child process above its input.
``--quick`` takes contexts a tenth as long.
"""

import argparse
import json
import math
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from icrl_agents.context import Context
from icrl_agents.evaluators import KernelTD, Nystrom, TabularTD, WeightedSoftmaxTD
from icrl_agents.kernels import RBF

GAMMA, SWEEPS, DIM = 0.9, 40, 10


def clock() -> float:
    """Return the seconds of the processor on one thread, of the wall on more."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def seconds(work: Callable[[], object], repeats: int = 9) -> np.ndarray:
    """Return the seconds of each repeat, after one that warms up."""
    work()
    taken = []
    for _ in range(repeats):
        start = clock()
        work()
        taken.append(clock() - start)
    return np.array(taken)


def in_turns(*works: Callable[[], object], repeats: int = 25) -> list[np.ndarray]:
    """Return the seconds of each work in each round, so that all of them find the memory in the same state."""
    rounds = [[seconds(work, 1)[0] for work in works] for _ in range(repeats)]
    return list(np.array(rounds).T)


def spread(values: np.ndarray) -> str:
    """Return the median and the quartiles, in milliseconds."""
    low, middle, high = 1e3 * np.percentile(values, [25, 50, 75])
    return f"{middle:.1f} ms [{low:.1f}, {high:.1f}]"


def continuous(n: int, dtype: torch.dtype = torch.float64) -> Context:
    """Return an Ornstein–Uhlenbeck trajectory of n steps in 10 dimensions."""
    rng = np.random.default_rng(0)
    noise, x = 0.43 * rng.standard_normal((n + 1, DIM)), np.zeros((n + 1, DIM))
    for k in range(n):
        x[k + 1] = 0.9 * x[k] + noise[k]
    rewards = np.sin(x[:-1].sum(-1)) + 0.1 * rng.standard_normal(n)
    return Context(x[:-1], rewards, np.full(n, GAMMA), x[1:]).to(dtype=dtype)


def tabular(n: int) -> Context:
    """Return n transitions between 10 one-hot states."""
    rng = np.random.default_rng(0)
    path = rng.integers(10, size=n + 1)
    eye = np.eye(10)
    return Context(eye[path[:-1]], rng.standard_normal(n), np.full(n, GAMMA), eye[path[1:]])


CASES = {  # name: what makes the context, what is fitted to it
    "tabular": (tabular, TabularTD(SWEEPS)),
    "exact, a sweep": (continuous, WeightedSoftmaxTD(RBF(3.0), 2)),  # the first one, from v = 0, is free
    "approximate": (continuous, WeightedSoftmaxTD(RBF(3.0), SWEEPS, approximation=Nystrom())),
    "approximate, unnormalised": (continuous, KernelTD(RBF(3.0), SWEEPS, approximation=Nystrom())),
}


def child(name: str, n: int) -> None:
    """Fit one case, and print its seconds and its peak memory above the input."""
    make, evaluator = CASES[name]
    context = make(n)
    evaluator.fit(make(1_000))  # warms up
    before = reset_peak()
    start = clock()
    value = evaluator.fit(context)
    taken = clock() - start
    print(json.dumps([taken, peak() - before, value.approximation_error]))


def reset_peak() -> float:
    """Return the resident memory in MB, from which on the peak counts (where the system can do that)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return peak()
    return peak()


def peak() -> float:
    """Return the peak of the resident memory in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_child(name: str, n: int) -> tuple[float, float, float | None]:
    """Run ``child`` in a process of its own."""
    command = [sys.executable, __file__, "--child", name, str(n), "--threads", str(torch.get_num_threads())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return tuple(json.loads(done.stdout))


def against_the_peer(path: str | None) -> None:
    """Print the seconds of 1,000 values from one context of 1,000 transitions, and the peer's of one."""
    theirs = peer_seconds(path) if path else None
    for dtype in (torch.float32, torch.float64):
        context = continuous(1_000, dtype)
        states = torch.randn(1_000, DIM, dtype=dtype, generator=torch.Generator().manual_seed(1))
        evaluator = WeightedSoftmaxTD(RBF(1.0), SWEEPS)
        value = evaluator.fit(context)
        queries = seconds(lambda value=value, states=states: value(states))
        both = seconds(lambda e=evaluator, c=context, states=states: e.fit(c)(states))
        kind = str(dtype).removeprefix("torch.")
        print(f"values of 1,000 states, n = 1,000, {kind:8s} {spread(queries)}; with the fit, L = 40, {spread(both)}")
        if theirs is not None:
            ratios = [1_000 * np.median(theirs) / np.median(ours) for ours in (queries, both)]
            alone, whole = (f"{ratio:,.0f}" for ratio in ratios)
            print(f"{'':10s}× the peer's forward a state, {spread(theirs)}: {alone}; with the fit {whole}")


def peer_seconds(path: str) -> np.ndarray:
    """Return the seconds of the peer's softmax transformer for the value of one state."""
    sys.path.insert(0, path)
    from experiment.model import Transformer  # type: ignore[import-not-found]

    transformer = Transformer(DIM, 1_000, SWEEPS, "softmax")
    prompt = torch.randn(2 * DIM + 1, 1_001)
    with torch.no_grad():
        return seconds(lambda: transformer.pred_v(prompt), 5)


def against_the_bare_products() -> None:
    """Print a fit's seconds relative to the weights once and L products with torch on the same bytes."""
    for dtype in (torch.float32, torch.float64):
        context = continuous(1_000, dtype)
        x, w = context.points, torch.ones(1_000, dtype=dtype)

        def bare(weigh, x=x, w=w):
            weights = weigh(-0.5 * torch.cdist(x, x[:-1]).square())
            for _ in range(SWEEPS):
                torch.mv(weights, w)

        softmax = partial(torch.softmax, dim=-1)
        for evaluator, weigh in (
            (WeightedSoftmaxTD(RBF(1.0), SWEEPS), softmax),
            (KernelTD(RBF(1.0), SWEEPS), torch.exp),
        ):
            base, ours = in_turns(partial(bare, weigh), partial(evaluator.fit, context))
            ratio = np.median(ours) / np.median(base)
            kind = f"{type(evaluator).__name__}, {str(dtype).removeprefix('torch.')}"
            print(f"fit, n = 1,000, L = 40, {kind:28s} {spread(ours)}: {ratio:.2f} × bare {spread(base)}")


def growth(name: str, sizes: list[int]) -> None:
    """Print seconds and memory at each size, and the exponent of the growth of the seconds."""
    found = [in_child(name, n) for n in sizes]
    for n, (taken, memory, error) in zip(sizes, found, strict=True):
        accuracy = "" if error is None else f", estimated relative error {error:.1e}"
        print(f"{name:26s} n = {n:9,d}   {taken:8.3f} s   {memory:7.0f} MB above the input{accuracy}")
    slope = np.polyfit(np.log(sizes), np.log([taken for taken, *_ in found]), 1)[0]
    print(f"{name:26s} time grows as n^{slope:.2f}")


def true_error(n: int) -> None:
    """Print the approximation's error against the exact evaluator on a subsample of the context."""
    context = continuous(n)
    chosen = torch.randperm(n, generator=torch.Generator().manual_seed(2))[:5_000]
    part = Context(*(t[chosen] for t in (context.states, context.rewards, context.discounts, context.next_states)))
    for name in ("approximate", "approximate, unnormalised"):
        evaluator = CASES[name][1]
        exact = type(evaluator)(evaluator.kernel, SWEEPS).fit(part)(part.states[:500])
        error = float((evaluator.fit(part)(part.states[:500]) - exact).norm() / exact.norm())
        print(f"{name:26s} relative error against the exact values on a subsample of 5,000: {error:.1e}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", metavar="PATH", help="a clone of Sequential-Intelligence-Lab/InContextTD")
    parser.add_argument("--threads", type=int, default=1, help="of torch, default 1")
    parser.add_argument("--quick", action="store_true", help="contexts a tenth as long")
    parser.add_argument("--child", nargs=2, metavar=("CASE", "N"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.child:
        child(arguments.child[0], int(arguments.child[1]))
        return
    print(f"Python {platform.python_version()}, torch {torch.__version__}, {torch.get_num_threads()} thread(s)")
    against_the_peer(arguments.peer)
    against_the_bare_products()
    longest = 10_000 if arguments.quick else 100_000
    growth("tabular", [longest, 3 * longest, 10 * longest])
    growth("approximate", [longest // 10, int(longest / math.sqrt(10)), longest])
    growth("approximate, unnormalised", [longest // 10, int(longest / math.sqrt(10)), longest])
    true_error(longest)
    growth("exact, a sweep", [longest // 20, longest // 5, longest])


if __name__ == "__main__":
    main()
