"""Runs that are killed or interrupted lose nothing: kill −9 at random moments, Ctrl-C, and a worker that is killed.

``ICRL_KILLS=50 pytest -m slow tests/test_crashes.py`` kills as often as that.
"""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from icrl_agents.pretraining.progress import STATE

KILLS = int(os.environ.get("ICRL_KILLS", "4"))
TRANSFER = ["transfer", "--domains", "reach-v3", "--noise", "low", "0.3", "--seeds", "6", "--steps", "100"]
TRANSFER += ["--tail", "40", "--gamma", "0.8", "--depth", "5", "--held-out-episodes", "2", "--workers", "2"]
TRAINING = """
import sys
from icrl_agents import PretrainConfig, pretrain
config = PretrainConfig(num_states=4, context_length=12, num_layers=3, tasks=6, evaluation_tasks=4, evaluate_every=40,
                        steps=1000)
pretrain(config, folder=sys.argv[1], save_every=25)
"""


class Command:
    """A command in a process of its own, which knows its children by a mark in their environment."""

    def __init__(self, *arguments: str) -> None:
        self.mark = f"ICRL_TEST={uuid.uuid4()}"
        name, value = self.mark.split("=")
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, name: value},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def children(self) -> list[int]:
        """Living processes that the command has started."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if folder.name != str(self.process.pid) and self.mark.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def kill(self, after: float) -> bool:
        """Kills the command −9 after ``after`` seconds; returns False if it was finished by then."""
        try:
            code = self.process.wait(timeout=after)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            assert self.orphans() == []
            return True
        assert code == 0, self.process.communicate()
        self.process.communicate()
        return False

    def orphans(self) -> list[int]:
        """Children that are left some seconds after the command has ended."""
        for _ in range(100):
            if not self.children():
                return []
            time.sleep(0.1)
        return self.children()


def transfer(out: Path) -> list[str]:
    return ["-m", "icrl_agents", *TRANSFER, "--out", str(out), "--cache", str(out.parent / f"{out.name}-cache")]


def training(folder: Path) -> list[str]:
    return ["-c", TRAINING, str(folder)]


def finished_cells(out: Path) -> list[str]:
    path = out / "cells.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line)["cell"] for line in lines]


def saved_steps(folder: Path) -> list[str]:
    path = folder / STATE
    if not path.exists():
        return []
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return ["step"] * header["losses"]["shape"][0]


def rows(out: Path) -> object:
    return (out / "rows.csv").read_bytes()


def state(folder: Path) -> object:
    """All of a training's state: the file's own order of names is not fixed."""
    with safe_open(folder / STATE, framework="pt") as file:
        tensors = {name: file.get_tensor(name).tolist() for name in file.keys()}  # noqa: SIM118
        return sorted(file.metadata().items()), sorted(tensors.items())


CASES = {"transfer": (transfer, finished_cells, rows), "training": (training, saved_steps, state)}


@pytest.mark.slow
@pytest.mark.parametrize(("command", "finished", "result"), CASES.values(), ids=CASES)
def test_kill_9_at_random_moments_loses_no_finished_cell(command, finished, result, tmp_path):
    rng = np.random.default_rng(0)
    started = time.perf_counter()
    assert not Command(*command(tmp_path / "whole")).kill(after=600)
    duration = time.perf_counter() - started
    whole, kills, runs = result(tmp_path / "whole"), 0, 0
    while kills < KILLS:
        out, before = tmp_path / f"run-{runs}", []
        runs += 1
        while Command(*command(out)).kill(after=float(rng.uniform(0.2, duration))):
            kills += 1
            now = finished(out)
            assert now[: len(before)] == before  # in their places: none is lost, and none was computed again
            assert len(set(now)) == len(now) or set(now) == {"step"}
            before = now
        assert repr(result(out)) == repr(whole)
    print(f"{kills} kills in {runs} runs")


@pytest.fixture
def interrupts():
    """Interrupts as in a terminal: a shell in the background has all that it starts ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_leaves_no_process_and_a_state_to_go_on_from(tmp_path):
    out = tmp_path / "out"
    command = Command(*transfer(out))
    for _ in range(1200):
        if finished_cells(out):
            break
        time.sleep(0.05)
    os.killpg(command.process.pid, signal.SIGINT)  # as a terminal does, to the workers too
    printed, said = command.process.communicate(timeout=30)
    assert command.process.returncode == 130
    assert said.splitlines()[-1].startswith("icrl: interrupted; what is finished is kept")
    assert "Traceback" not in said
    assert printed == ""
    assert command.orphans() == []
    kept = finished_cells(out)
    again = subprocess.run([sys.executable, *transfer(out)], capture_output=True, text=True, check=True)
    assert finished_cells(out)[: len(kept)] == kept
    assert len(set(finished_cells(out))) == len(finished_cells(out)) == 12
    assert f"{len(kept)} of them finished before" in again.stderr or len(kept) == 12
    assert (out / "rows.csv").exists()
