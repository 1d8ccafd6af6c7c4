"""Times training steps of `pretrain` against those of a clone of InContextTD, on one thread, in one run.

Both train on random Boyan's chains with the predecessor's numbers (d = 4, s = 10, n = 30, l = 3): a step has 64 TD
errors from contexts that slide along one trajectory, five steps a chain, Adam, float32. What is timed is everything
a step takes: the chain and its trajectory, both values, gradient and optimiser; logging and measurements are not.
Rounds alternate between the two, each in a process of its own; times are the processor's.

    python benchmarks/pretraining.py --peer PATH_OF_THE_CLONE

Without --peer it prints our own numbers. The clone needs torch, numpy, scipy, matplotlib and tqdm; --python names
another interpreter for it.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

WINDOWS, UPDATES, WEIGHT_DECAY = 64, 5, 1e-6
FORMS: dict[str, Any] = {"softmax": "temporal_shift", "linear": "linear"}
ACTIVATIONS = {"softmax": "softmax", "linear": "identity"}


def our_rate(form: str, steps: int) -> float:
    """Return the windows per second of ``steps`` steps: the difference of a long training and a short one."""
    from icrl_agents import PretrainConfig, pretrain

    def seconds(count: int) -> float:
        config = PretrainConfig(
            form=FORMS[form],
            features="random",
            num_features=4,
            num_states=10,
            context_length=30,
            num_layers=3,
            tasks=1,
            windows=WINDOWS,
            updates=UPDATES,
            learning_rate=0.001,
            weight_decay=WEIGHT_DECAY,
            initial_scale=0.1,
            precision="float32",
            evaluation_tasks=1,
            evaluate_every=count,
            steps=count,
        )
        start = time.process_time()
        pretrain(config)
        return time.process_time() - start

    seconds(2)
    return WINDOWS * steps / (seconds(2 * steps) - seconds(steps))


def peer_rate(path: str, form: str, chains: int) -> float:
    """Return the windows per second of the clone at ``path`` in a training on so many chains."""
    sys.path.insert(0, path)
    import torch
    from experiment.train import train  # type: ignore[import-not-found]

    torch.set_num_threads(1)

    def seconds(count: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            start = time.process_time()
            train(
                4, 10, 30, 3, activation=ACTIVATIONS[form], n_mrps=count, n_batch_per_mrp=UPDATES,
                mini_batch_size=WINDOWS, weight_decay=WEIGHT_DECAY, log_interval=10**9, save_dir=folder,
            )  # fmt: skip
            return time.process_time() - start

    seconds(1)
    return WINDOWS * UPDATES * chains / seconds(chains)


def child(python: str, *words: str) -> float:
    """Return the number that this script prints last when run with ``words`` in a process of its own."""
    single = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, os.path.abspath(__file__), *words], env=single, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: failed\n{done.stderr}")
    return float(done.stdout.split()[-1])


def quartiles(values: list[float], digits: int) -> str:
    """Return the median and the quartiles."""
    low, middle, high = (f"{value:,.{digits}f}" for value in np.percentile(values, [25, 50, 75]))
    return f"{middle} [{low}, {high}]"


def main() -> None:
    """Print one line for each form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="folder of a clone of Sequential-Intelligence-Lab/InContextTD")
    parser.add_argument("--python", default=sys.executable, help="interpreter for the clone, default this one")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4000, help="steps of ours in a round, default 4000")
    parser.add_argument("--chains", type=int, default=8, help="chains of the clone in a round, default 8")
    parser.add_argument("--child", nargs=2, metavar=("WHO", "FORM"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        who, form = given.child
        print(our_rate(form, given.steps) if who == "ours" else peer_rate(given.peer, form, given.chains))
        return
    import torch

    print(f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}, 1 thread")
    print(f"{'form':8s} {'ours, windows/s':>28s} {'clone, windows/s':>24s}   × [quartiles]")
    for form in given.forms:
        ours, theirs = [], []
        for _ in range(given.rounds):
            ours.append(child(sys.executable, "--child", "ours", form, "--steps", str(given.steps)))
            if given.peer:
                words = "--child", "peer", form, "--peer", given.peer, "--chains", str(given.chains)
                theirs.append(child(given.python, *words))
        ratios = [a / b for a, b in zip(ours, theirs, strict=False)]
        compared = f"{quartiles(theirs, 0):>24s}   {quartiles(ratios, 1)}" if given.peer else ""
        print(f"{form:8s} {quartiles(ours, 0):>28s} {compared}", flush=True)


if __name__ == "__main__":
    main()
