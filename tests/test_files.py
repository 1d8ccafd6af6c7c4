"""Files are written whole or not at all."""

import pytest

from icrl_agents.files import check_can_be_made, check_writable, write_atomically


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file"
    for content in (b"first", b"second, longer"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_failure_names_the_file_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"folder: cannot be written"):
        write_atomically(tmp_path / "folder", b"content")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
    with pytest.raises(OSError, match=r"absent/file: cannot be written"):
        write_atomically(tmp_path / "absent" / "file", b"content")


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
