"""A Ray cluster of two nodes on this machine, one of which is killed in the middle of a study."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import contextlib, dataclasses, functools, json, os, sys, uuid
from pathlib import Path
from ray.cluster_utils import Cluster
from icrl_agents.execution import executor
from icrl_agents.studies.transfer.config import TransferConfig
from icrl_agents.studies.transfer.run import cells_of, rows_of

folder = Path(sys.argv[1])
config = TransferConfig(domains=("reach-v3",), noise=("low", "0.3"), seeds=6, context_episodes=2, held_out_episodes=2,
                        steps=100, tail=30, gamma=0.8, depth=5, cache=folder / "cache")

def counted(config, folder, cell):
    (folder / f"{cell[0]}-{cell[1].seed}-{uuid.uuid4()}").touch()
    return rows_of(config, cell)

def rows(found):
    kept = [[dataclasses.asdict(row) for row in found[cell]] for cell in cells_of(config).values()]
    return json.dumps(kept)  # where NaN, what a cell has no number for, equals itself

if __name__ == "__main__":
    small = {"num_cpus": 1, "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    second = cluster.add_node(**small)
    (folder / "started").mkdir()
    cells, found = list(cells_of(config).values()), {}
    task = functools.partial(counted, config, folder / "started")
    ray = executor("ray", ray_address=cluster.address)
    with contextlib.closing(ray.map(task, cells)) as results:
        for cell, result in results:
            found[cell] = result
            if len(found) == 4:
                cluster.remove_node(second, allow_graceful=False)
    cluster.shutdown()
    alone = functools.partial(rows_of, dataclasses.replace(config, cache=folder / "own"))
    serial = dict(executor("serial").map(alone, cells))
    started = len(list((folder / "started").iterdir()))
    print(json.dumps({"same": rows(found) == rows(serial), "cells": len(found), "started": started}))
"""


@pytest.mark.slow
def test_a_node_lost_in_the_middle_costs_its_unfinished_cells_only(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["same"]
    assert counts["cells"] == 12
    assert 12 <= counts["started"] <= 13  # the lost node had one core, so one cell at most was begun in vain
