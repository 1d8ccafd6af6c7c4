"""The blocks of docs/data.md run, in their order; those for pandas and Minari where these are installed."""

import importlib.util
import re
import shlex
import shutil
from pathlib import Path

import pytest

from icrl_agents.command_line import parse

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "data.md").read_text()
BLOCKS = re.findall(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = [code for language, _, code in BLOCKS if language == "bash"] + re.findall(r"`(icrl [a-z]+ \S[^`]*)`", TEXT)


def test_the_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    names, lengths = {}, []
    for language, needed, code in BLOCKS:
        if language == "python" and (not needed or importlib.util.find_spec(needed)):
            exec(compile(code, "docs/data.md", "exec"), names)
            lengths.append(len(names["context"]))
    assert len(lengths) >= 6
    assert lengths[0] == lengths[1]
    assert lengths[2:5] == [3, 5, 443]
    assert "tensor(" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_are_understood(command):
    program, *arguments = shlex.split(command)
    assert program == "icrl"
    assert parse(arguments).env_id == "CartPole-v1"
