import os

import pytest

from refork.errors import BadInput
from refork_methods.evolve.editors.folder import (
    check_files,
    check_path,
    diff,
    files_of,
    read_folder,
    workspace,
)

FILES = {"agent.md": "Answer.\n", "judge/rules.md": "Be fair.\n"}


def test_a_directory_is_read_whole(tmp_path):
    (tmp_path / "judge").mkdir()
    for path, text in FILES.items():
        (tmp_path / path).write_text(text)
    (tmp_path / ".hidden").write_text("left out")
    assert read_folder(tmp_path) == FILES


@pytest.mark.parametrize(
    "path",
    ["../up", "/etc/passwd", "a/../b", "a//b", "./a", "a/", "", ".git/config", "a\\b", "a\nb", "c:x", " a",
     "a/b/c/d/e/f/g", "a\u202eb"],
)  # fmt: skip
def test_paths_that_lead_outside_or_are_no_names_are_refused(path):
    with pytest.raises(BadInput, match="no path"):
        check_path(path)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "0 files"),
        ({"a": "1", "A": "2"}, "one file"),
        ({"a": "1", "a/b": "2"}, "file and a folder"),
        ({"a": "\0"}, "NUL"),
        ({"a": "\ud800"}, "UTF-8"),
        ({"a": "x" * 65537}, "65537 bytes"),
        (dict.fromkeys("abcde", "x" * 65536), "327680 bytes"),
        ({f"f{i}": "" for i in range(65)}, "65 files"),
    ],
)
def test_files_beyond_limits_are_refused(files, words):
    with pytest.raises(BadInput, match=words):
        check_files(files)


def test_links_and_special_files_are_refused_and_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "agent.md").write_text("x")
    (folder / "link").symlink_to(secret)
    with pytest.raises(BadInput, match="link"):
        read_folder(folder)
    (folder / "link").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(BadInput, match="special"):
        read_folder(folder)
    (tmp_path / "in").symlink_to(folder)
    with pytest.raises(BadInput, match="no directory"):
        read_folder(tmp_path / "in")


def test_binary_and_large_files_are_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="UTF-8"):
        read_folder(tmp_path)
    (tmp_path / "a").write_bytes(b"x" * 65537)
    with pytest.raises(BadInput, match="more than 65536"):
        read_folder(tmp_path)


def test_a_diff_says_what_changed_came_and_went():
    text = diff({"a": "1\n2\n", "gone": "x\n"}, {"a": "1\n3\n", "new": "y\n"})
    assert text.splitlines() == [
        "--- a/a", "+++ b/a", "@@ -1,2 +1,2 @@", " 1", "-2", "+3",
        "--- a/gone", "+++ /dev/null", "@@ -1 +0,0 @@", "-x",
        "--- /dev/null", "+++ b/new", "@@ -0,0 +1 @@", "+y",
    ]  # fmt: skip
    assert diff(FILES, FILES) == ""
    assert "line ends" in diff({"a": "1"}, {"a": "1\n"})


def test_a_workspace_gives_its_files_back_and_another_body_does_not():
    assert files_of(workspace(FILES)) == FILES
    for body in ({}, {"files": [1]}, {"files": {"a": 1}}):
        with pytest.raises(BadInput, match="no directory"):
            files_of(body)
