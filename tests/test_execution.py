"""Executors: the same results from each, warnings and errors brought home, lost workers replaced."""

import contextlib
import functools
import importlib.util
import os
import signal
import socket
import subprocess
import warnings
from pathlib import Path

import pytest
import torch

from icrl_agents.execution import EXECUTORS, executor
from icrl_agents.execution.processes import Processes


def square(number):
    return number * number


def threads(number):
    return torch.get_num_threads()


def warned(number):
    if number == 2:
        warnings.warn("two is even", UserWarning, stacklevel=2)
    if number == 3:
        raise ValueError("three: expected an even number, got 3.")
    return number


class TwoError(ValueError):
    """An error made of two arguments, which pickle makes of one: its message."""

    def __init__(self, first, second):
        super().__init__(f"expected {first}, got {second}.")


class TwiceError(TypeError):
    """An error that says something else when it is made of what it says."""

    def __init__(self, found):
        super().__init__(f"got {found}.")


def fail(error, number):
    raise {
        "two": lambda: TwoError(1, number),
        "local": lambda: type("Own", (Exception,), {})(number),
        "nested": lambda: OSError(TwoError(1, number)),
        "twice": lambda: TwiceError(number),
    }[error]()


def die_once(folder, number):
    """Kills its process at the first call with 1, as the machine does when memory ends."""
    mark = Path(folder) / "died"
    if number == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number, os.getpid()


def gathered(results, into):
    for cell, result in results:
        into[cell] = result


def die(number):
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_every_executor_has_a_name_and_refuses_what_it_cannot_do(monkeypatch):
    assert EXECUTORS == ("serial", "processes", "ray")
    with pytest.raises(ValueError, match=r"executor must be one of .* Did you mean 'processes'"):
        executor("proceses")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"workers must be an integer ≥ 0"):
        executor(workers=-1)
    with pytest.raises(ValueError, match=r"ray_address: expected executor 'ray' beside it, got 'serial'"):
        executor("serial", ray_address="auto")
    with pytest.raises(ValueError, match=r"workers: expected none with executor 'serial', .* got 4"):
        executor("serial", workers=4)
    with pytest.raises(ValueError, match=r"workers: expected none beside ray_address, .* got 2"):
        executor("ray", workers=2, ray_address="auto")
    if importlib.util.find_spec("ray"):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{closed.getsockname()[1]}"
            with pytest.raises(ValueError, match=rf"nothing answers at '{address}' .*ray start --head"):
                executor("ray", ray_address=address)
        refused = pytest.raises(
            ValueError, match=r"ray_address: 'auto' found no running Ray cluster .*ray start --head"
        )
        others = b"gcs_server" in subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True).stdout
        with contextlib.nullcontext() if others else refused:
            executor("ray", ray_address="auto")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"'ray' is not installed here; install it by: pip install 'icrl\[ray\]'"):
        executor("ray")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs affinities")
def test_there_are_as_many_processes_as_cores_that_this_one_may_use(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    for cores, expected in (({3, 5}, Processes(2)), ({1}, executor("serial"))):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: cores)
        assert type(executor()) is type(expected)
        assert getattr(executor(), "workers", 1) == len(cores)
    assert executor(workers=7) == Processes(7)


def test_serial_runs_in_order_and_on_one_thread():
    assert list(executor("serial").map(square, [3, 1, 2])) == [(3, 9), (1, 1), (2, 4)]
    assert list(executor("serial").map(threads, [0])) == [(0, 1)]
    assert list(executor("serial").map(square, [])) == []
    assert list(Processes(2).map(square, [])) == []


def test_processes_give_the_same_and_bring_warnings_and_errors_home():
    found = {}
    with (
        pytest.warns(UserWarning, match="two is even"),
        pytest.raises(ValueError, match="three: expected an even number"),
    ):
        gathered(Processes(1).map(warned, [1, 2, 3, 4]), found)
    assert found == {1: 1, 2: 2}
    assert dict(executor("processes", workers=1).map(square, [1, 2])) == {1: 1, 2: 4}


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ("two", ValueError, r"TwoError: expected 1, got 7\."),
        ("local", RuntimeError, "Own: 7"),
        ("nested", OSError, r"OSError: expected 1, got 7\."),
        ("twice", TypeError, r"TwiceError: got 7\."),
    ],
)
def test_an_error_that_cannot_be_pickled_says_what_it_said(error, kind, said):
    with pytest.raises(kind, match=f"^{said}$"):
        dict(Processes(1).map(functools.partial(fail, error), [7]))


def test_a_killed_process_is_replaced_and_costs_no_finished_cell(tmp_path):
    results = dict(Processes(1).map(functools.partial(die_once, tmp_path), range(4)))
    assert [results[i][0] for i in range(4)] == [0, 1, 2, 3]
    assert results[0][1] != results[1][1] == results[3][1]


@pytest.mark.slow
def test_a_cell_that_always_kills_its_process_ends_the_map_after_the_others():
    found = {}
    with pytest.raises(OSError, match=r"killed again and again, perhaps for lack of memory"):
        gathered(Processes(2, retries=3).map(die, range(5)), found)
    assert found.keys() == {0, 2, 3, 4}


@pytest.mark.slow
def test_cells_wait_for_no_gpu_that_cannot_come():
    pytest.importorskip("ray")
    with pytest.raises(ValueError, match=r"device: a cell takes 1000 GPU\(s\), and Ray finds \d+ on this machine"):
        next(executor("ray", workers=1, gpus=1000.0).map(square, [1]))
