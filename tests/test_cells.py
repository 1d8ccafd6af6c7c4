"""Studies cell by cell: what is finished is kept, once, and damage is noticed."""

import dataclasses
import math
import os
import resource
import signal
import stat
from importlib.metadata import version

import pytest

from icrl_agents.execution import executor
from icrl_agents.execution.processes import Processes
from icrl_agents.files import append_line, check_writable, write_atomically
from icrl_agents.studies import description
from icrl_agents.studies.cells import KeptRows, compute_cells
from icrl_agents.studies.description import installed, source_digest
from icrl_agents.studies.results import opened_folder
from icrl_agents.studies.rkhs.config import RKHSConfig

CELLS = {f"cell {i}": i for i in range(5)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    number: float
    word: str | None


def lines_of(calls, cell):
    calls.append(cell)
    if cell in FAILING:
        raise ValueError(f"cell: got {cell}.")
    return [Line(number=cell / 3, word=None), Line(number=math.inf, word="ℓ")]


FAILING: set[int] = set()


def run(path, identity="a study"):
    calls = []
    task = lambda cell: lines_of(calls, cell)  # noqa: E731
    return compute_cells(task, CELLS, Line, executor("serial"), KeptRows(path, identity)), calls


def test_finished_cells_are_kept_bit_for_bit_and_not_computed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.FAILING", {3})
    with pytest.raises(ValueError, match="cell: got 3"):
        run(tmp_path / "cells")
    monkeypatch.undo()
    rows, calls = run(tmp_path / "cells")
    assert calls == [3, 4]
    assert [row.number for row in rows[::2]] == [0.0, 1 / 3, 2 / 3, 1.0, 4 / 3]
    assert rows[1] == Line(number=math.inf, word="ℓ")
    before = (tmp_path / "cells").read_bytes()
    assert run(tmp_path / "cells") == (rows, [])
    assert (tmp_path / "cells").read_bytes() == before


def plain(cell):
    return [Line(number=cell, word=None)]


def test_a_worker_of_other_versions_computes_no_rows(tmp_path, monkeypatch):
    kept, there = KeptRows(tmp_path / "cells", "a study"), installed()
    for library, others in (("numpy", ()), ("tyro", ("tyro",))):
        changed = {**there, **{name: version(name) for name in others}, library: "0.1"}
        monkeypatch.setattr("icrl_agents.studies.cells.installed", lambda libraries, changed=changed: changed)
        found = rf"executor: a worker on .* has other versions \({library} {version(library)}, not 0\.1\)"
        with pytest.raises(ValueError, match=found):
            compute_cells(plain, CELLS, Line, Processes(1), kept, others)
        assert kept.read() == {}
    monkeypatch.undo()
    assert [row.number for row in compute_cells(plain, CELLS, Line, Processes(1), kept)] == list(range(5))


def test_a_link_to_nothing_beside_the_source_is_no_source(tmp_path, monkeypatch):
    module, package = tmp_path / "icrl_agents" / "studies" / "description.py", tmp_path / "icrl_envs"
    for folder in (module.parent, package):
        folder.mkdir(parents=True)
    module.write_text("x = 1\n")
    monkeypatch.setattr(description, "__file__", str(module))
    before = source_digest.__wrapped__()
    (package / ".#envs.py").symlink_to("somebody@somewhere.123:456")  # as Emacs marks a file that is being edited
    assert source_digest.__wrapped__() == before
    part = source_digest.__wrapped__("icrl_agents/studies")
    (package / "envs.py").touch()
    assert source_digest.__wrapped__() != before
    assert source_digest.__wrapped__("icrl_agents/studies") == part


def test_cells_that_are_forgotten_are_computed_again_and_the_others_not(tmp_path):
    rows, _ = run(tmp_path / "cells")
    kept = KeptRows(tmp_path / "cells", "a study")
    assert kept.forget(["cell 3", "cell 9"]) == ["cell 3"]
    assert kept.forget(["cell 9"]) == []
    assert run(tmp_path / "cells") == (rows, [3])


def test_options_that_fail_at_once_leave_no_folder_and_later_ones_leave_it(tmp_path, monkeypatch):
    for failing, left in ({0}, []), ({1}, ["cells.jsonl", "config.json"]):
        monkeypatch.setattr(f"{__name__}.FAILING", failing)
        folder = tmp_path / "study"
        with pytest.raises(ValueError, match="cell: got"), opened_folder(folder, RKHSConfig()):
            run(folder / "cells.jsonl")
        assert folder.exists() == bool(left)
        assert sorted(path.name for path in folder.glob("*")) == left


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [*lines[:-1], lines[-1][:-20]],
        lambda lines: [*lines[:-1], lines[-1][:-1]],
        lambda lines: [*lines[:4], lines[4].replace(b"1.33", b"1.34")],
        lambda lines: [*lines[:4], b"\0" * len(lines[4])],
        lambda lines: [*lines[:4], b"\xff not JSON\n"],
        lambda lines: [*lines[:4], b"[" * 100_000 + b"\n"],
        lambda lines: [*lines[:4], b"null\n"],
    ],
    ids=["torn", "end missing", "edited", "zeros", "not text", "deep", "no cell"],
)
def test_a_damaged_line_is_computed_again_with_one_warning(damage, tmp_path):
    rows, _ = run(tmp_path / "cells")
    whole = (tmp_path / "cells").read_bytes()
    (tmp_path / "cells").write_bytes(b"".join(damage(whole.splitlines(keepends=True))))
    with pytest.warns(UserWarning, match=r"cells: 1 damaged line\(s\); computing those cells again") as caught:
        assert run(tmp_path / "cells") == (rows, [4])
    assert len(caught) == 1
    assert (tmp_path / "cells").read_bytes() == whole


def test_the_rows_of_another_run_do_not_count(tmp_path):
    run(tmp_path / "cells")
    with pytest.warns(UserWarning, match=r"5 damaged line"):
        _, calls = run(tmp_path / "cells", "another study")
    assert calls == [0, 1, 2, 3, 4]


def test_a_full_disk_is_one_error_and_leaves_whole_lines(tmp_path):
    path = tmp_path / "lines"
    append_line(path, "first")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        with pytest.raises(OSError, match=r"lines: cannot be written \(File too large\)"):
            append_line(path, "x" * 5000)
        with pytest.raises(OSError, match=r"whole: cannot be written \(File too large\)"):
            write_atomically(tmp_path / "whole", b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_text() == "first\n"
    assert [p.name for p in tmp_path.iterdir()] == ["lines"]
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with pytest.raises(OSError, match=r"folder: is no folder that can be written \(File too large\)"):
            check_writable(tmp_path / "new" / "folder")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert [p.name for p in tmp_path.iterdir()] == ["lines"]
    append_line(path, "second")
    assert path.read_text() == "first\nsecond\n"
    assert stat.S_IMODE(path.stat().st_mode) & 0o444


def test_files_that_killed_processes_left_are_taken_away_once_they_are_old(tmp_path):
    for name, age in ((".old.abc.icrl-partial", 7200), (".new.abc.icrl-partial", 0), (".kept.partial", 7200)):
        (tmp_path / name).touch()
        now = (tmp_path / name).stat().st_mtime
        os.utime(tmp_path / name, (now - age, now - age))
    check_writable(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".kept.partial", ".new.abc.icrl-partial"]
