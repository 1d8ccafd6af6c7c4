"""The command ``icrl``: help, mistakes and a small run, as a user types them."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium as gym
import pytest

from icrl_agents.command_line import STUDIES, main, parse
from icrl_agents.terminal import warnings_as_lines

MISTAKES = {
    "no subcommand": [],
    "unknown subcommand": ["transfre"],
    "unknown option": ["transfer", "--dept", "3"],
    "missing value": ["transfer", "--depth"],
    "wrong type": ["transfer", "--depth", "many"],
    "out of range": ["transfer", "--gamma", "1.5"],
    "unknown choice": ["transfer", "--kernel", "gauss"],
    "unknown domain": ["transfer", "--domains", "pick-place"],
    "unknown device": ["transfer", "--device", "abacus"],
    "contradiction": ["transfer", "--steps", "50", "--tail", "100"],
}


@pytest.mark.parametrize("arguments", MISTAKES.values(), ids=MISTAKES)
def test_mistakes_get_one_line_and_exit_code_2_and_leave_nothing(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("icrl: ")
    assert printed.err.count("\n") == 1
    assert "Traceback" not in printed.err
    assert list(tmp_path.iterdir()) == []


def test_warnings_are_lines_without_colour_codes(capsys):
    with warnings_as_lines():
        warnings.simplefilter("always")
        gym.logger.warn("the environment is old")
        warnings.warn("values have not settled\n  yet", RuntimeWarning, stacklevel=1)
    assert capsys.readouterr().err.splitlines() == [
        "icrl: WARN: the environment is old",
        "icrl: values have not settled yet",
    ]


def test_an_unwritable_output_folder_is_one_line(capsys, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert main(["transfer", "--out", str(tmp_path / "file" / "out"), "--cache", str(tmp_path / "cache")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("arguments", [["--help"], ["transfer", "--help"]])
def test_help_explains_and_imports_neither_torch_nor_the_simulator(arguments):
    code = (
        "import sys\n"
        "from icrl_agents.command_line import main\n"
        f"try: main({arguments})\n"
        "except SystemExit as done: assert done.code == 0\n"
        "heavy = {'torch', 'mujoco', 'metaworld', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert "transfer" in done.stdout
    assert done.stderr == ""


def test_a_small_run_as_a_module(tmp_path):
    command = [sys.executable, "-m", "icrl_agents", "transfer", "--domains", "reach-v3", "--noise", "low", "0.3"]
    command += [
        "--seeds",
        "2",
        "--steps",
        "20",
        "--tail",
        "10",
        "--gamma",
        "0.7",
        "--depth",
        "5",
        "--context-episodes",
        "1",
    ]
    command += ["--held-out-episodes", "1", "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[0].split()[:4] == ["domain", "noise", "evaluator", "L=0"]
    assert sum(line.startswith("reach-v3") for line in lines) == 2 * 6
    assert "±" in done.stdout
    assert "cells" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "out"]


def test_the_script_finds_environments_of_this_folder_as_the_module_does_and_its_own_modules_first(tmp_path):
    registered = "import gymnasium\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
    (tmp_path / "of_mine.py").write_text(f"{registered}gymnasium.register('Mine-v0', CartPoleEnv, max_episode_steps=9)")
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "icrl"
    script.write_text("from icrl_agents.command_line import main\nraise SystemExit(main())")
    settings = ["collect", "of_mine:Mine-v0", "--num-episodes", "2", "--out"]

    def run(*command, **environment):
        given = {**os.environ, **environment}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=given, check=False)

    for name, command in {"module": ["-m", "icrl_agents"], "script": [str(script)]}.items():
        done = run(sys.executable, *command, *settings, f"{name}.npz")
        assert done.returncode == 0, done.stderr
    (tmp_path / "tqdm.py").write_text("raise RuntimeError('not the library')")
    assert run(sys.executable, str(script), *settings, "beside.npz").returncode == 0
    safe = run(sys.executable, str(script), *settings, "safe.npz", PYTHONSAFEPATH="1")
    assert safe.returncode == 2
    assert "No module named 'of_mine'" in safe.stderr


def test_a_terminal_without_unicode_loses_signs_but_no_results(tmp_path):
    command = [
        sys.executable,
        "-m",
        "icrl_agents",
        "transfer",
        "--domains",
        "reach-v3",
        "--noise",
        "low",
        "--seeds",
        "2",
    ]
    command += ["--steps", "12", "--tail", "10", "--gamma", "0.7", "--depth", "1", "--context-episodes", "1"]
    command += ["--held-out-episodes", "1", "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.isascii()
    assert sum(line.startswith("reach-v3") for line in done.stdout.splitlines()) == 6
    wrong = subprocess.run([*command, "--ridge", "abc"], capture_output=True, text=True, env=environment, check=False)
    assert wrong.returncode == 2
    assert "abc" in wrong.stderr


RKHS = ["rkhs", "--seeds", "1", "--dims", "1", "--kernels", "rbf", "--lengths", "20", "--depth", "3", "--depths", "3"]
RKHS += ["--ratios", "1", "--mismatch-length", "20", "--test-states", "20", "--executor", "serial"]


def unread(arguments, **options):
    """The exit code of a command whose output nobody reads, and what it says on stderr."""
    theirs, ours = os.pipe()
    os.close(theirs)
    command = [sys.executable, "-u", "-m", "icrl_agents", *arguments]
    done = subprocess.run(command, stdout=ours, stderr=subprocess.PIPE, text=True, check=False, **options)
    os.close(ours)
    return done.returncode, done.stderr


def test_a_reader_that_leaves_changes_neither_results_nor_exit_code(tmp_path):
    out = tmp_path / "out"
    code, said = unread([*RKHS, "--out", str(out)])
    assert code == 0
    assert "Error" not in said
    assert {"rows.csv", "errors.png", "recovered_1d.png"} <= {path.name for path in out.iterdir()}
    (out / "rows.csv").write_text((out / "rows.csv").read_text().replace("\nrbf,1,0", "\nrbf,7,0"))
    assert unread(["reproduce", "--from", str(out)])[0] == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_output_that_cannot_be_written_is_one_line(tmp_path):
    command = [sys.executable, "-m", "icrl_agents", "collect", "CartPole-v1", "--num-steps", "9", "--out", "a.npz"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "icrl: <stdout>: cannot be written (No space left on device)."
    assert (tmp_path / "a.npz").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell that closes streams")
@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-"])
def test_closed_streams_change_neither_results_nor_exit_code(closed, tmp_path):
    command = [sys.executable, "-m", "icrl_agents", *RKHS[:-1], "processes", "--workers", "1"]
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *command, "--out", str(tmp_path / "out")], check=False)
    assert done.returncode == 0
    assert (tmp_path / "out" / "errors.png").exists()


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["collect", "CartPole-v1", "--num-steps", "9", "--out", "a.npz"], False),
        (["evaluate", "CartPole-v1"], False),
        (["verify"], False),
        (["reproduce", "--from", "there"], False),
        (["reproduce", "--from", "there", "--out", "here"], True),
        (RKHS, True),
    ],
    ids=["collect", "evaluate", "verify", "reproduce", "reproduce into a folder", "rkhs"],
)
def test_an_interruption_says_what_is_kept(arguments, kept, monkeypatch, capsys):
    def interrupted(config):
        raise KeyboardInterrupt

    monkeypatch.setitem(STUDIES, arguments[0], (STUDIES[arguments[0]][0], interrupted))
    assert main(arguments) == 130
    said = "what is finished is kept, and the same command goes on with it" if kept else "nothing is kept"
    assert said in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal that can go away")
def test_a_terminal_that_goes_away_ends_no_study(tmp_path):
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-u", "-m", "icrl_agents", *RKHS, "--out", str(tmp_path / "out")]
    run = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    os.close(ours)  # before the first word, which is then an error of the terminal
    assert run.wait(100) == 0
    assert (tmp_path / "out" / "errors.png").exists()


def test_the_home_folder_is_found_where_a_shell_leaves_it_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse(["rkhs", "--out=~/results"]).out == tmp_path / "results"
    assert parse(["rkhs", "--out", "~/results"]).out == tmp_path / "results"  # where no shell was asked
    assert parse(["rkhs", "--out", "./~/results"]).out == Path("~/results")
    assert parse(["evaluate", "CartPole-v1", "--env-args", "x=~/y"]).env_args == ("x=~/y",)
    assert parse(["rkhs", "--out=~nobody-of-that-name/x"]).out == Path("~nobody-of-that-name/x")
