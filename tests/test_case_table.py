"""The table of awkward inputs names tests that are there."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TABLE = (TESTS.parent / "docs" / "cases.md").read_text()
NAMED = sorted(set(re.findall(r"`(test_\w+\.py)::(\w+)", TABLE)))


def functions(name):
    return {node.name for node in ast.parse((TESTS / name).read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED}))
def test_every_test_that_is_named_exists(file):
    assert {function for name, function in NAMED if name == file} <= functions(file)


def test_every_row_names_a_test():
    rows = [line for line in TABLE.splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(row.split("|")[1]) for row in rows] == list(range(1, len(rows) + 1))
    assert len(rows) >= 45
    for row in rows:
        assert re.search(r"`test_\w+\.py::test_\w+`", row), row
        assert row.count("|") == 5, row
