"""A reproduction from folder to verdict."""

from __future__ import annotations

import contextlib
import io
import tempfile
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from icrl_agents.studies.description import NOT_RESULTS, versions
from icrl_agents.studies.reproduce.comparison import Comparison, compare, table
from icrl_agents.studies.reproduce.config import ReproduceConfig
from icrl_agents.studies.results import ROWS, opened_folder, read_folder

Studies = Mapping[str, tuple[type, Callable[[Any], int]]]
"""Studies by name: the class of their configuration, and the function that runs them."""

WITHOUT_ROWS = ("collect", "reproduce")
"""Studies whose folders, if any, hold nothing to compare."""
BEFORE = "*.before.csv"
"""Rows that ``write_rows`` has put aside for the run's own."""
_CODE = {"policy": ".zip", "env_id": ":"}
"""Settings that run code of others where they contain such a mark."""


def run(config: ReproduceConfig, studies: Studies) -> int:
    """Runs the study again, prints the comparison, and returns 0 if the rows are the same, otherwise 1.

    Raises:
        ValueError: If the folder holds no finished run of a study, or the other folder is not empty.
        OSError: If a folder cannot be read or written.
    """
    described = read_folder(config.from_, "from")
    if described is None or not (config.from_ / ROWS).is_file():
        raise ValueError(f"from: {config.from_} holds no finished run; expected config.json and {ROWS} in it.")
    with contextlib.ExitStack() as stack:
        out = config.out
        if out is None:
            out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="icrl-")))
        again, study = rebuilt(described, out, studies, trust=config.trust)
        if config.out is not None:
            stack.enter_context(opened_folder(out, config))
        with contextlib.nullcontext() if config.out else contextlib.redirect_stdout(io.StringIO()):
            study(again)  # what it prints names a folder that is gone afterwards, unless it was asked for
        results = out / "out"
        files = [path for place in (config.from_, results) for path in place.glob("*.csv") if not path.match(BEFORE)]
        names = sorted({path.name for path in files})
        compared = [each for name in names for each in compare(config.from_ / name, results / name)]
    return _verdict(config, described, versions(again), compared)


def rebuilt(
    described: dict[str, Any], out: Path, studies: Studies, *, trust: bool = False
) -> tuple[Any, Callable[[Any], int]]:
    """Returns the configuration that a folder describes, and the function that runs it.

    Nothing that the folder says decides where is written: its paths are replaced by some inside ``out``, and the other
    settings that do not decide results take their defaults.

    Args:
        described: What ``read_folder`` gave.
        out: Folder of the new run.
        studies: The studies that there are.
        trust: Whether the folder may name code to run.

    Raises:
        ValueError: If it describes no configuration of one of ``studies``, or names code without ``trust``.
    """
    known = [name for name in studies if name not in WITHOUT_ROWS]
    if described.get("study") not in known:
        raise ValueError(f"from: expected a run of one of {', '.join(known)}, got {described.get('study')!r}.")
    kind, study = studies[described["study"]]
    types = typing.get_type_hints(kind)
    settings = {name: value for name, value in described["settings"].items() if name not in NOT_RESULTS}
    for name, mark in _CODE.items():
        if mark in str(settings.get(name, "")) and not trust:
            raise ValueError(f"from: {name} {settings[name]!r} runs code; if you trust the folder, add --trust.")
    if unknown := sorted(settings.keys() - types.keys()):
        raise ValueError(f"from: {kind.__name__} has no setting {', '.join(unknown)}.")
    places = {name: out / name for name in ("out", "cache") if name in types}
    try:
        given = {name: _typed(types[name], value) for name, value in settings.items()}
        return kind(**given, **places), study
    except TypeError as error:
        raise ValueError(f"from: its settings are not those of {kind.__name__} ({error}).") from error
    except ValueError as error:
        raise ValueError(f"from: {error}") from error


def _typed(expected: Any, value: Any) -> Any:  # noqa: ANN401 - a type, and what JSON makes of its values
    if isinstance(value, list):
        return tuple(value)
    return Path(value) if Path in (expected, *typing.get_args(expected)) and value is not None else value


def _verdict(
    config: ReproduceConfig, described: dict[str, Any], here: dict[str, str], compared: list[Comparison]
) -> int:
    print(f"\n{table(compared, config.tolerance)}\n")
    for name in sorted(here.keys() | described["versions"].keys()):
        before, now = described["versions"].get(name, "none"), here.get(name, "none")
        if before != now:
            print(f"{name}: {before} then, {now} now")
    if (processes := described.get("processes", 1)) != 1:
        print(f"processes: {processes} then, 1 now, which rounds sums otherwise; --tolerance allows for that")
    differing = sum(each.largest > config.tolerance for each in compared)
    same = "equal" if config.tolerance == 0 else f"equal within {config.tolerance:g}"
    print(f"{config.from_}: {f'{differing} column(s) differ' if differing else f'reproduced, all rows are {same}'}.")
    return 1 if differing else 0
