"""The oldest versions that are tested are the lower bounds in ``pyproject.toml``, and the documentation names them."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = [
    *PROJECT["dependencies"],
    *(each for extra in PROJECT["optional-dependencies"].values() for each in extra),
]


def pinned(name):
    """Versions by name, spelled as package indexes normalise them."""
    lines = (ROOT / name).read_text().split()
    return {re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower(): line.partition("==")[2] for line in lines}


def bounds():
    """The lower bound of every dependency, of all extras too."""
    found = {}
    for requirement in REQUIREMENTS:
        name, bound = re.fullmatch(r"([\w-]+)(?:\[[\w,]+\])?(?:>=([\d.]+)(?:,<[\d.]+)?)?", requirement).groups()
        if name != "icrl":
            assert bound, f"{requirement}: has no lower bound"
            found[name.lower()] = bound
    return found


def numbers(version):
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])]


def test_the_oldest_versions_are_the_lower_bounds():
    oldest = pinned("constraints-oldest.txt")
    for name, bound in bounds().items():
        expected = numbers(bound)
        got = numbers(oldest[name])
        assert got[: len(expected)] == expected, name
        assert not any(got[len(expected) :]) or name in {"pytest-xdist", "pre-commit"}, name  # whose first is yanked


def test_the_pinned_versions_are_admitted():
    newest = pinned("constraints.txt")
    for name, bound in bounds().items():
        assert numbers(newest[name]) >= numbers(bound), name
    assert set(bounds()) <= set(newest) & set(pinned("constraints-oldest.txt"))


def test_the_documentation_names_both_ends():
    text = (ROOT / "docs" / "versions.md").read_text()
    oldest, newest = pinned("constraints-oldest.txt"), pinned("constraints.txt")
    rows = dict(re.findall(r"^\| ([\w-]+) \| ([\d.]+ \| [\d., ]+) \|", text, re.MULTILINE))
    for name in bounds().keys() - {"ruff", "pyright", "pre-commit"}:
        assert rows[name].split(",")[0] == f"{oldest[name]} | {newest[name]}", name
