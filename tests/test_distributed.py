"""Pretraining under torchrun: two processes that share each batch train as one does."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

PROGRAM = """
import os, sys
from icrl_agents import PretrainConfig, pretrain
for name, changes in eval(sys.argv[2]).items():
    if name == "apart":
        changes["seed"] = int(os.environ["RANK"])
    config = PretrainConfig(num_states=4, context_length=12, num_layers=3, evaluation_tasks=4, evaluate_every=10,
                            steps=20, initial_scale=0.5, **changes)
    try:
        pretrain(config, folder=f"{sys.argv[1]}/{name}", until=int(sys.argv[3]), save_every=7)
    except ValueError as error:
        print(error)
"""
CASES = {
    "softmax": {"tasks": 6},
    "windows": {"tasks": 4, "windows": 5},
    "linear": {"tasks": 3, "contexts": 2, "form": "linear", "min_layers": 1},
    "free": {"tasks": 8, "parametrisation": "full", "loss": "mc"},
}
REFUSED = {"odd": {"tasks": 3}, "neu": {"tasks": 4, "loss": "neu"}, "apart": {"tasks": 4}}

ALONE = """
from icrl_agents import PretrainConfig, pretrain
from icrl_agents.pretraining import distributed
distributed.PATIENCE = 0.2
pretrain(PretrainConfig(num_states=4, context_length=12, num_layers=3, steps=1, tasks=2))
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def torchrun(folder: Path, until: int) -> str:
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    command += [str(folder / "program.py"), str(folder / "two"), repr(CASES | REFUSED), str(until)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_two_processes_give_the_trace_of_one_when_interrupted_too(tmp_path):
    alone = [sys.executable, "-c", PROGRAM, str(tmp_path / "one"), repr(CASES), "20"]
    subprocess.run(alone, check=True, capture_output=True)
    for until in (9, 20):
        said = torchrun(tmp_path, until)
        assert "tasks: expected tasks × contexts to divide by 2 processes, got 3" in said
        assert "loss: expected a mean over contexts under torchrun, got 'neu'" in said
        assert "config: expected one configuration in all 2 processes of torchrun" in said
        assert "got different ones of seed; start trainings of their own" in said
    for case in CASES:
        one, two = (load_file(tmp_path / name / case / "training.safetensors") for name in ("one", "two"))
        assert one.keys() == two.keys()
        assert one["losses"].shape == (20,)
        for name, tensor in one.items():
            error = (tensor - two[name]).abs().max() / tensor.abs().max().clamp(min=1e-30)
            assert error < 1e-10, (case, name)


def test_a_process_of_several_that_trains_alone_says_for_whom_it_waits():
    told = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    environment = os.environ | told | {"TORCHELASTIC_RUN_ID": "none"}
    with subprocess.Popen([sys.executable, "-c", ALONE], env=environment, stderr=subprocess.PIPE, text=True) as waiting:
        try:
            assert waiting.stderr is not None
            said = next(line for line in waiting.stderr if "UserWarning" in line)
        finally:
            waiting.kill()
    assert "process 0 of 2 that torchrun has started waits for the others" in said
    assert "expected all of them to call pretrain, not the first alone" in said
