"""Folders of commands are emptied and removed; what a link in them or in their place leads to stays."""

import os
from pathlib import Path

import pytest

from refork.sandbox.inside import jail


@pytest.fixture
def outside(tmp_path):
    """A folder of somebody else's."""
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    (folder / "file").write_text("kept")
    (folder / "deep/file").write_text("kept")
    folder.chmod(0o750)
    yield folder
    assert sorted(str(one.relative_to(folder)) for one in folder.rglob("*")) == ["deep", "deep/file", "file"]
    assert folder.stat().st_mode & 0o777 == 0o750


def test_a_link_in_the_place_of_a_folder_is_removed_and_not_what_it_leads_to(tmp_path, outside):
    home = tmp_path / "home"
    home.symlink_to(outside)
    with pytest.raises(OSError, match="home"):
        jail.empty(str(home))
    assert home.is_symlink()
    jail.gone(str(home))
    assert not os.path.lexists(home)
    jail.gone(str(home))  # nothing is there, nothing is done


def test_a_link_within_a_folder_is_removed_and_not_what_it_leads_to(tmp_path, outside):
    home = tmp_path / "home"
    (home / "a/b").mkdir(parents=True)
    for link in ("one", "a/two", "a/b/three", ".0", ".1"):
        (home / link).symlink_to(outside)
    jail.empty(str(home))
    assert list(home.iterdir()) == []
    assert home.stat().st_mode & 0o777 == 0o755


def test_folders_deeper_than_any_path_and_closed_ones_are_removed(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    here = os.open(home, os.O_RDONLY)
    for _ in range(1500):  # beyond PATH_MAX and Python's recursion
        os.mkdir("abcd", dir_fd=here)
        os.close(os.open("file", os.O_CREAT, dir_fd=here))
        there = os.open("abcd", os.O_RDONLY, dir_fd=here)
        os.fchmod(here, 0o500)
        os.close(here)
        here = there
    os.fchmod(here, 0)
    os.close(here)
    jail.gone(str(home))
    assert not os.path.lexists(home)


def test_one_file_or_folder_of_a_folder_is_removed(tmp_path, outside):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/x").symlink_to(outside)
    (tmp_path / "c").touch()
    jail.discard("a", str(tmp_path))
    jail.discard("c", str(tmp_path))
    assert sorted(one.name for one in Path(tmp_path).iterdir()) == ["outside"]
    (tmp_path / "link").symlink_to(outside)
    with pytest.raises(OSError, match="link"):
        jail.discard("file", str(tmp_path / "link"))


def test_neighbours_are_removed_at_the_same_time(tmp_path, monkeypatch):
    """What is moved up stays within the folder that is removed: nobody else takes its name there."""
    for name in "ab":
        (tmp_path / name / "x/y/z").mkdir(parents=True)
    real, seen = os.rename, []

    def and_the_other(*args, **named):
        real(*args, **named)
        seen.append(sorted(one.name for one in tmp_path.iterdir()))
        if len(seen) == 1:  # in the middle of the first, all of the second
            jail.gone(str(tmp_path / "b"))

    monkeypatch.setattr(os, "rename", and_the_other)
    jail.gone(str(tmp_path / "a"))
    assert [*tmp_path.iterdir()] == []
    assert {name for names in seen for name in names} == {"a", "b"}
