"""Every property of the table on many random examples: ``python tests/fuzz.py --examples 100000 --seed 0``.

Prints a line for each property, with the examples that ran, the seconds they took and what was found, and then the
total. Exits with 1 if anything was found. The same seed gives the same examples.
"""

import argparse
import importlib
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
FAMILIES = ("test_routes", "test_closed_form_properties", "test_invariants", "test_gradient_properties")
FAMILIES += ("test_context_properties", "test_round_trips", "test_refusals")


def names() -> list[str]:
    """The properties of all families."""
    for family in FAMILIES:
        importlib.import_module(f"tests.{family}")
    return list(importlib.import_module("tests.properties").PROPERTIES)


def run(name: str, examples: int, seed: int) -> tuple[str, int, float, str]:
    """Runs one property: its name, the examples that ran, seconds, and the finding if there is one."""
    import torch

    torch.set_num_threads(1)
    names()
    known = importlib.import_module("tests.properties").PROPERTIES[name]
    start, found = time.perf_counter(), ""
    try:
        known.check(examples, seed)
    except Exception:  # whatever it is, it is a finding
        found = traceback.format_exc()
    return name, known.ran, time.perf_counter() - start, found


def results(tasks: list[tuple[str, int, int]], workers: int) -> Iterator[tuple[str, int, float, str]]:
    """What each property gave, as they finish."""
    if workers == 1:
        yield from (run(*task) for task in tasks)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run, *task) for task in tasks]):
            yield future.result()


def main() -> int:
    """Runs all of them; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=100_000, help="over all properties; default 100000")
    parser.add_argument("--seed", type=int, default=0, help="of all examples; default 0")
    parser.add_argument("--workers", type=int, default=1, help="processes; default 1")
    parser.add_argument("--only", default="", help="properties with this word in their name; default all")
    options = parser.parse_args()
    chosen = [name for name in names() if options.only in name]
    if options.examples < 1 or options.workers < 1 or not chosen:
        parser.error("expected at least one example, one worker and one property")
    share = -(-options.examples // len(chosen))
    start, total, findings = time.perf_counter(), 0, 0
    for name, ran, seconds, found in results([(name, share, options.seed) for name in chosen], options.workers):
        total, findings = total + ran, findings + bool(found)
        print(f"{name:<75} {ran:>8,} examples {seconds:>8.1f} s  {'FOUND' if found else 'holds'}", flush=True)
        if found:
            print(found, flush=True)
    elapsed = time.perf_counter() - start
    print(f"{total:,} examples of {len(chosen)} properties in {elapsed:.0f} s, seed {options.seed}: {findings} found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
