"""Files are written whole or not at all."""

import io
import itertools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from icrl_agents import (
    Episode,
    InContextTransformer,
    PretrainConfig,
    files,
    load_episodes,
    pretrain,
    save_episodes,
)
from icrl_agents.files import append_line, check_can_be_made, check_writable, create_atomically, write_atomically


def test_the_home_folder_is_found_in_paths_given_to_functions_too(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    config = PretrainConfig(num_states=4, context_length=20, num_layers=3, steps=1, tasks=2)
    for folder, episode in ((str, "~/log.npz"), (Path, Path("~/other.npz"))):
        transformer = pretrain(config, folder=folder("~/run")).transformer
        transformer.save_pretrained(folder("~/model"))
        assert InContextTransformer.from_pretrained(folder("~/model")).loops == transformer.loops
        save_episodes(episode, [Episode(np.zeros((2, 1)), np.ones(1), True)])
        assert len(load_episodes(episode)) == 1
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["log.npz", "model", "other.npz", "run"]
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    save_episodes("./~log.npz", [Episode(np.zeros((2, 1)), np.ones(1), True)])  # a name, and nobody's home
    assert len(load_episodes("~log.npz")) == 1


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file"
    for content in (b"first", b"second, longer"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a umask")
@pytest.mark.parametrize("umask", [0o077, 0o002])
@pytest.mark.parametrize("write", [write_atomically, create_atomically, lambda path, _: append_line(path, "line")])
def test_who_may_read_and_write_a_file_is_the_users_choice(write, umask, tmp_path):
    before = os.umask(umask)
    try:
        write(tmp_path / "file", b"content")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_failure_names_the_file_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"folder: cannot be written"):
        write_atomically(tmp_path / "folder", b"content")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
    with pytest.raises(OSError, match=r"absent/file: cannot be written"):
        write_atomically(tmp_path / "absent" / "file", b"content")


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
def test_a_link_stays_one_and_what_it_points_to_is_written(tmp_path):
    (tmp_path / "far").mkdir()
    for name in ("link", "link to a link", "to nothing yet"):
        (tmp_path / name).symlink_to("far/new" if name == "to nothing yet" else "far/file")
    (tmp_path / "link to a link").unlink()
    (tmp_path / "link to a link").symlink_to("link")
    for name in ("link", "link to a link", "to nothing yet"):
        write_atomically(tmp_path / name, name.encode())
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / name).resolve().read_bytes() == name.encode()
    assert {path.name for path in (tmp_path / "far").iterdir()} == {"file", "new"}


@pytest.mark.skipif(sys.platform == "win32", reason="needs modes and pipes")
def test_what_nobody_may_write_and_what_is_no_file_is_not_replaced(tmp_path):
    (tmp_path / "file").write_bytes(b"kept")
    (tmp_path / "file").chmod(0o444)
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    for name, message in {"file": "write-protected", "link": "write-protected", "pipe": "no file, but"}.items():
        with pytest.raises(OSError, match=rf"{name}: cannot be written \(it is {message}"):
            write_atomically(tmp_path / name, b"new")
    assert (tmp_path / "file").read_bytes() == b"kept"
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link", "pipe"}


def test_a_folder_is_made_or_refused(tmp_path):
    check_writable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match=r"file: is no folder that can be written"):
        check_writable(tmp_path / "file")


def test_asking_whether_a_folder_can_be_made_makes_none(tmp_path):
    check_can_be_made(tmp_path)
    check_can_be_made(tmp_path / "new" / "folder")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(OSError, match=r"is no folder that can be written \(.*file is a file\)"):
            check_can_be_made(path)


@pytest.mark.parametrize("links", [True, False])
def test_of_several_who_create_a_file_one_succeeds_and_it_is_whole(links, tmp_path, monkeypatch):
    if not links:
        monkeypatch.setattr(os, "link", lambda *paths: os.rename(tmp_path / "absent", tmp_path / "absent"))
    path, refused = tmp_path / "file", []

    def create(content):
        try:
            create_atomically(path, content)
        except FileExistsError:
            refused.append(content)

    contents = [bytes([65 + i]) * 10_000 for i in range(8)]
    threads = [threading.Thread(target=create, args=[content]) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == len(contents) - 1
    assert [content for content in contents if content not in refused] == [path.read_bytes()]
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_folder_is_taken_away_at_an_error_unless_something_is_in_it(tmp_path):
    for kept in (False, True):
        with pytest.raises(KeyboardInterrupt), files.new_folders_on_trial(tmp_path / "new" / "folder"):  # noqa: PT012
            (tmp_path / "new" / "folder").mkdir(parents=True)
            if kept:
                (tmp_path / "new" / "file").touch()
            raise KeyboardInterrupt
        assert [p.name for p in tmp_path.rglob("*")] == (["new", "file"] if kept else [])


def test_files_of_other_programs_are_left_alone(tmp_path):
    for name in (".movie.partial", ".movie.abc12345.partial", "notes.icrl-partial"):
        (tmp_path / name).touch()
    (tmp_path / ".icrl-partial").mkdir()
    before = sorted(tmp_path.iterdir())
    for path in before:
        os.utime(path, (0, 0))
    check_writable(tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_can_be_checked_while_others_write_into_it(tmp_path):
    def write():
        for i in range(200):
            write_atomically(tmp_path / f"{i}", b"content")

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        check_writable(tmp_path)
    assert len(list(tmp_path.iterdir())) == 200


def test_killed_between_two_moves_the_second_file_can_still_be_found(tmp_path):
    code = (
        "import os, sys, pathlib\nfrom icrl_agents.files import write_together\nreplace = pathlib.Path.replace\n"
        "pathlib.Path.replace = lambda *paths: (replace(*paths), os.kill(os.getpid(), 9))\n"
        "folder = pathlib.Path(sys.argv[1])\nwrite_together({folder / 'a': b'new a', folder / 'b': b'new b'})"
    )
    for name in "ab":
        (tmp_path / name).write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "a").read_bytes() == b"new a"
    assert (tmp_path / "b").read_bytes() == b"old"
    assert [path.read_bytes() for path in files.unfinished(tmp_path / "b")] == [b"new b"]
    assert files.unfinished(tmp_path / "a") == []


def test_whichever_bit_of_an_npz_file_is_changed_numpys_errors_are_known():
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, a=np.arange(2.0), b=np.array("text"))
    whole, errors = buffer.getvalue(), 0
    for position, bit in itertools.product(range(len(whole)), range(8)):
        changed = bytearray(whole)
        changed[position] ^= 1 << bit
        try:
            with np.load(io.BytesIO(changed), allow_pickle=False) as arrays:
                for name in ("a", "b"):
                    arrays[name]
        except files.DAMAGE:
            errors += 1
    assert errors > 4 * len(whole)


@pytest.mark.skipif(sys.platform == "win32", reason="needs permissions")
@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_a_file_that_is_replaced_keeps_its_permissions_and_owner(mode, tmp_path):
    path = tmp_path / "log.npz"
    episodes = [Episode(np.zeros((2, 1)), np.ones(1), True)]
    save_episodes(path, episodes)
    path.chmod(mode)
    owner = (1, 1) if os.getuid() == 0 else (os.getuid(), os.getgid())
    os.chown(path, *owner)
    save_episodes(path, episodes * 2)
    assert len(load_episodes(path)) == 2
    assert path.stat().st_mode & 0o777 == mode
    assert (path.stat().st_uid, path.stat().st_gid) == owner
