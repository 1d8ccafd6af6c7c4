"""Every option of every study, misused: one line that names it, exit code 2, and nothing written.

The options are read off the configurations, so that a new one is covered on arrival.
"""

import dataclasses
import json
import typing
from pathlib import Path
from typing import Literal

import matplotlib.font_manager  # noqa: F401 - it leaves a list of fonts at home, which is another one in these tests
import pytest

from icrl_agents.command_line import STUDIES, main
from icrl_agents.studies.description import describe
from icrl_agents.studies.verify.config import VerifyConfig

# What a study cannot do without, beside the option in question.
NEEDED = {
    "collect": {"": "CartPole-v1", "--num-steps": "5", "--out": "episodes.npz"},
    "evaluate": {"": "CartPole-v1"},
    "reproduce": {"--from": "nowhere"},
}
WRONG_NUMBERS = ("-1", "nan", "1e400", "many", "")


def leaves(hint):
    """The types that a type hint is made of, literals whole."""
    inner = () if typing.get_origin(hint) is Literal else typing.get_args(hint)
    return {leaf for part in inner for leaf in leaves(part)} or {hint}


def options(wanted):
    """Study, option and field's name for each field with a type that ``wanted`` holds of, and that type."""
    for study, (kind, _) in STUDIES.items():
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            # A positional argument has no option's name.
            option = "" if "Positional" in str(field.type) else "--" + field.name.rstrip("_").replace("_", "-")
            for leaf in leaves(hints[field.name]):
                if wanted(leaf):
                    yield pytest.param(study, option, field.name, leaf, id=f"{study} {option or field.name}")


def each_option(wanted):
    return pytest.mark.parametrize(("study", "option", "name", "leaf"), list(options(wanted)))


@pytest.fixture
def refused(capsys, tmp_path, monkeypatch):
    """Runs a command in an empty folder and returns what it says, once that is one line and the folder is as it was."""
    (tmp_path / "file").write_text("in the way")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def run(study, *more, **changes):
        words = [study]
        for option, value in {**NEEDED.get(study, {}), **changes}.items():
            words += [option, value] if option else [value]
        assert main([*words, *more]) == 2, words
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("icrl: "), printed.err
        assert printed.err.count("\n") == 1, printed.err
        assert [path.name for path in tmp_path.rglob("*")] == ["file"], words
        return printed.err

    return run


def names(said, option, name):
    return (option and option in said) or name in said


@each_option(lambda leaf: leaf in (int, float))
def test_numbers_that_are_none_or_out_of_range(study, option, name, leaf, refused):
    for value in WRONG_NUMBERS:
        assert names(refused(study, **{option: value}), option, name), value


@each_option(lambda leaf: typing.get_origin(leaf) is Literal)
def test_misspelt_choices(study, option, name, leaf, refused):
    said = refused(study, **{option: str(typing.get_args(leaf)[0]) + "x"})
    assert names(said, option, name)
    assert str(typing.get_args(leaf)[-1]) in said


@each_option(lambda leaf: leaf is str)
def test_words_that_mean_nothing(study, option, name, leaf, refused):
    if study == "control":
        pytest.importorskip("stable_baselines3")
    said = refused(study, **{option: "no such thing"})
    assert "no such thing" in said or names(said, option, name)


@each_option(lambda leaf: leaf is bool)
def test_switches_that_are_neither_on_nor_off(study, option, name, leaf, refused):
    assert "perhaps" in refused(study, **{option: "perhaps"})


@each_option(lambda leaf: leaf is Path)
def test_a_file_in_the_way_of_a_path(study, option, name, leaf, refused, tmp_path_factory):
    if study == "control":
        pytest.importorskip("stable_baselines3")
    changes = {option: str(Path("file", "under.npz"))}
    if (study, option) == ("reproduce", "--out"):
        finished = tmp_path_factory.mktemp("finished")
        (finished / "config.json").write_text(json.dumps(describe(VerifyConfig())))
        (finished / "rows.csv").write_text("")
        changes["--from"] = str(finished)
    assert "file" in refused(study, **changes).partition("(")[0]


@each_option(lambda leaf: leaf not in (bool, type(None)))
def test_an_option_without_its_value(study, option, name, leaf, refused):
    if option and typing.get_origin(typing.get_type_hints(STUDIES[study][0])[name]) is not tuple:
        assert names(refused(study, option, **{option: "1"}), option, name)


@pytest.mark.parametrize("study", STUDIES)
def test_what_no_study_knows(study, refused):
    assert "--nonsense" in refused(study, "--nonsense", "1")
    assert "surplus" in refused(study, "surplus")
    for needed in NEEDED.get(study, {}):
        left = {option: value for option, value in NEEDED[study].items() if option != needed}
        assert main([study, *(word for pair in left.items() for word in pair if word)]) == 2


CONTRADICTIONS = {
    "--out is given twice": ("verify", "--out", "a", "--out=b"),
    "--tied is given twice": ("pretrain", "--tied", "--no-tied"),
    "--first-seed is given twice": ("transfer", "--first-seed", "1", "--first_seed", "2"),
    "expected each name once, got a again": ("evaluate", "--env-args", "a=1", "a=2"),
    "and each once": ("verify", "--topics", "rkhs", "rkhs"),
    "expected each once": ("transfer", "--domains", "reach-v3", "reach-v3"),
    "expected exactly one of --num-episodes": ("collect", "--num-episodes", "3"),
    "ray_address: expected executor 'ray'": ("control", "--ray-address", "auto", "--executor", "serial"),
    "tail: expected at most steps = 50": ("adapt", "--steps", "50", "--tail", "60"),
}
EXTREMES = {
    "seeds must be an integer in [1, 100000]": [
        (study, "--seeds", "1" + 12 * "0") for study in ("transfer", "adapt", "pretrain", "control", "improve")
    ],
    "chains must be an integer in [4, 100000]": [("verify", "--chains", "1" + 12 * "0")],
    "many are enough with --depth": [("evaluate", "--gamma", "0.9999999999")],
    "is still to come": [("transfer", "--gamma", "0.9999999999")],
    "dims: expected at most 100,000,000 numbers": [("rkhs", "--dims", "1" + 12 * "0")],
    "10,000,000,000,500 states (--lengths": [("rkhs", "--lengths", "1" + 13 * "0")],
    "num_features must be an integer in": [("pretrain", "--features", "random", "--num-features", "1" + 15 * "0")],
    "Too long": [("verify", "--out", 5000 * "a")],
}


@pytest.mark.parametrize("message", CONTRADICTIONS)
def test_contradictions(message, refused):
    study, *words = CONTRADICTIONS[message]
    assert message in refused(study, *words)


@pytest.mark.parametrize("message", EXTREMES)
def test_extremes(message, refused):
    for study, *words in EXTREMES[message]:
        assert message.lower() in refused(study, *words).lower()


def test_more_than_there_is_memory_for_is_one_line(capsys, tmp_path):
    words = ["pretrain", "--context-length", "1" + 12 * "0", "--out", str(tmp_path / "new" / "out")]
    assert main(words) == 2
    assert "not enough memory" in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_a_user_without_a_home_is_asked_for_a_cache(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as it is without an entry for the user's number
    assert main(["transfer", "--domains", "reach-v3", "--noise", "low", "--executor", "serial"]) == 2
    assert capsys.readouterr().err == "icrl: cache: Could not determine home directory; choose a folder with --cache.\n"
    assert list(tmp_path.iterdir()) == []
