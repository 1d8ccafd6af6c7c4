"""Runs every benchmark, one after the other, and prints their tables.

    python benchmarks/run_all.py --peer PATH_OF_A_CLONE_OF_InContextTD

Each script can also be run by itself; see its first lines. Ratios are of one run, so the machine should have no other
work while it lasts. The clone needs tqdm beside what icrl needs; ``--python`` names another interpreter for it.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = ("pretraining", "evaluation", "vector_environments", "collection", "metaworld_overhead")
TAKE_PEER = ("pretraining", "evaluation")


def command(script: str, arguments: argparse.Namespace) -> list[str]:
    """Return the command line of one benchmark."""
    words = [sys.executable, str(HERE / f"{script}.py")]
    if arguments.peer and script in TAKE_PEER:
        words += ["--peer", arguments.peer]
    if arguments.peer and arguments.python and script == "pretraining":
        words += ["--python", arguments.python]
    return words


def main() -> int:
    """Run the benchmarks; return 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", metavar="PATH", help="a clone of Sequential-Intelligence-Lab/InContextTD")
    parser.add_argument("--python", help="interpreter for the clone's training, default this one")
    parser.add_argument("--scripts", nargs="+", choices=SCRIPTS, default=SCRIPTS, help="default all of them")
    arguments = parser.parse_args()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    failed = []
    for script in arguments.scripts:
        print(f"\n## {script}\n", flush=True)
        if subprocess.run(command(script, arguments), env=environment).returncode:
            failed.append(script)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
