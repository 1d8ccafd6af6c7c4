"""Files that one process keeps to itself, in folders that others may rename meanwhile."""

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from icrl_agents.attention import SoftmaxAttention
from icrl_agents.execution import executor
from icrl_agents.files import check_writable, write_atomically
from icrl_agents.kernels import RBF
from icrl_agents.layers import TemporalShiftLayer
from icrl_agents.locks import locked
from icrl_agents.studies import results
from icrl_agents.studies.cells import KeptRows
from icrl_agents.studies.rkhs.config import RKHSConfig
from icrl_agents.transformer import InContextTransformer


def test_a_file_is_kept_to_one_and_a_killed_process_keeps_nothing(tmp_path):
    (tmp_path / "file").touch()
    with locked(tmp_path / "file"), pytest.raises(BlockingIOError), locked(tmp_path / "file"):
        pass
    code = "import sys, time, pathlib\nfrom icrl_agents.locks import locked\n"
    code += "with locked(pathlib.Path(sys.argv[1])): print(flush=True); time.sleep(60)"
    command = [sys.executable, "-c", code, str(tmp_path / "file")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()  # pyright: ignore[reportOptionalMemberAccess]
        with pytest.raises(BlockingIOError), locked(tmp_path / "file"):
            pass
        process.send_signal(signal.SIGKILL)
    with locked(tmp_path / "file"):
        pass
    with pytest.raises(FileNotFoundError), locked(tmp_path / "absent"):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="needs users")
def test_a_file_whose_content_cannot_be_read_is_no_obstacle(tmp_path, monkeypatch):
    def unreadable(self):
        raise OSError("the disk does not answer")

    (tmp_path / "file").touch()
    monkeypatch.setattr(Path, "read_bytes", unreadable)
    with locked(tmp_path / "file"):
        write_atomically(tmp_path / "other", b"")


def test_a_file_is_kept_from_users_who_may_only_read_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, user = Path("file"), os.geteuid()
    path.touch()
    with locked(path):
        path.chmod(0o444)
        if user == 0:  # who may do anything
            tmp_path.chmod(0o755)
            os.seteuid(65534)
        try:
            with pytest.raises(BlockingIOError), locked(path):
                pass
        finally:
            os.seteuid(user)


def write(folder, cell):
    """In a working process."""
    write_atomically(folder / "models" / cell, b"weights")
    return cell


def save(folder):
    layer = TemporalShiftLayer(SoftmaxAttention(RBF(1.0)), (1.0, 1.0, -1.0))
    InContextTransformer([layer], 2).save_pretrained(folder / "pretrained")


WRITERS = {
    "rows": lambda folder: results.write_rows(folder, [RKHSConfig()]),
    "figure": lambda folder: results.write_figure(Figure(), folder / "figure.png"),
    "cell": lambda folder: KeptRows(folder / "cells.jsonl", "").add("cell", []),
    "transformer": save,
    "folder": lambda folder: check_writable(folder / "seed_0"),
    "worker": lambda folder: list(executor("processes").map(functools.partial(write, folder), ["a"])),
}


@pytest.mark.skipif(sys.platform == "win32", reason="needs a folder that can be renamed while it is in use")
@pytest.mark.parametrize("another", [True, False], ids=["with another in its place", "alone"])
@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_a_run_whose_folder_was_renamed_writes_into_no_other(writer, another, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, renamed, other = RKHSConfig().out, tmp_path / "renamed", tmp_path / "other"
    results.open_folder(other, RKHSConfig(gamma=0.5))
    (other / "models").mkdir()
    said = rf"is no longer the folder of this run, which is {renamed} now; the same command with --out {renamed} goes"
    with pytest.raises(OSError, match=said), results.opened_folder(folder, RKHSConfig()):  # noqa: PT012
        (folder / "models").mkdir()
        write_atomically(folder / "models" / "before", b"weights")
        folder.rename(renamed)
        if another:
            other.rename(folder)
        writer(folder)
    assert sorted(path.name for path in folder.rglob("*")) == (["config.json", "models"] if another else [])
    assert sorted(path.name for path in renamed.rglob("*")) == ["before", "config.json", "models"]
    with results.opened_folder(renamed, RKHSConfig(out=renamed)):
        write_atomically(renamed / "models" / "after", b"weights")


def test_a_folder_that_is_renamed_and_back_is_written_into_as_before(tmp_path):
    folder = tmp_path / "out"
    with results.opened_folder(folder, RKHSConfig()):
        folder.rename(tmp_path / "renamed")
        (tmp_path / "renamed").rename(folder)
        WRITERS["cell"](folder)
    assert sorted(path.name for path in folder.iterdir()) == ["cells.jsonl", "config.json"]
    with pytest.raises(OSError, match="which was renamed or taken away"), results.opened_folder(folder, RKHSConfig()):  # noqa: PT012
        (folder / "config.json").unlink()
        WRITERS["cell"](folder)


def test_a_file_that_an_editor_saves_is_still_the_one(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("{}")
    with locked(path):
        write_atomically(path, b"{}")  # another file of the same content
        write_atomically(tmp_path / "rows.csv", b"a\n")
        write_atomically(path, b"{ }")
        with pytest.raises(OSError, match="no longer the folder of this run"):
            write_atomically(tmp_path / "more.csv", b"a\n")
