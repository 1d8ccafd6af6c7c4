"""Every block that the README prints is run, and what it points to is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PYTHON = [code for language, code in BLOCKS if language == "python"]
SHELL = [code.strip() for language, code in BLOCKS if language == "bash"]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_two_commands_and_a_quick_start():
    assert len(SHELL) == 2
    assert len(PYTHON) == 2
    assert all(len(code.strip().splitlines()) <= 10 for code in PYTHON)


@pytest.mark.parametrize("code", PYTHON)
def test_python_blocks_run(code):
    if "sb3" in code:
        pytest.importorskip("stable_baselines3")
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert "tensor(" in done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_short_and_run(path, tmp_path):
    assert len(path.read_text().splitlines()) <= 50
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_ci_installs_and_tests_as_the_readme_says():
    install, test = SHELL[1].removeprefix("python3 -m venv .venv && ").split(" && ")
    script = (ROOT / ".ci" / "run").read_text().replace("--quiet ", "")
    assert install.removeprefix(".venv/bin/") in script
    assert script.rstrip().splitlines()[-1].startswith(f"{test.replace('.venv/bin/', '')} ")


def test_files_that_the_readme_names_exist():
    named = re.findall(r"\]\((?!http)([^)]+)\)", README) + re.findall(r"`((?:tests|examples|docs)/[\w./]*)`", README)
    assert named
    for name in named:
        assert (ROOT / name).exists(), name


@pytest.mark.slow
def test_the_first_command_as_printed_on_a_fresh_copy(tmp_path):
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        target = tmp_path / "icrl" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PIP_CACHE_DIR": str(tmp_path / "pip"),
    }
    environment["PATH"] = f"{Path(sys.base_prefix) / 'bin'}:{environment['PATH']}"
    done = subprocess.run(SHELL[0], shell=True, cwd=tmp_path / "icrl", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    results = tmp_path / "icrl" / "results" / "transfer"
    assert sorted(p.name for p in results.iterdir()) == [
        "cells.jsonl",
        "config.json",
        "heat_map.png",
        "rows.csv",
        "td_loss.png",
    ]
    assert done.stdout.split("Failures")[0].count("softmax") == 15
