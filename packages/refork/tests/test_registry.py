"""Names: installed, of this process, of modules and of files."""

import importlib.metadata
import sys

import pytest

from refork import registry
from refork.errors import BadInput, CannotDo, MissingExtra
from refork.registry import find, known, names, part, register, registered, resolve, split, unregister


@pytest.fixture
def installed(monkeypatch):
    """Installs entry points: lists of (group, name, target)."""

    def put(*rows):
        points = [importlib.metadata.EntryPoint(name, target, group) for group, name, target in rows]
        monkeypatch.setattr(
            registry, "entry_points", lambda group: [point for point in points if point.group == group]
        )
        registered.cache_clear()

    yield put
    monkeypatch.undo()
    registered.cache_clear()


def test_an_installed_name_is_loaded_when_it_is_asked_for(installed):
    installed(("refork.worlds", "tar", "tarfile:TarFile"), ("refork.worlds", "gone", "no_such_module:X"))
    assert names("worlds") == ("gone", "tar")
    assert find("worlds", "tar").__name__ == "TarFile"
    assert not known("credits", "tar")
    with pytest.raises(BadInput, match="world 'gone' cannot be loaded: ModuleNotFoundError") as told:
        find("worlds", "gone")
    assert "no_such_module:X" in told.value.where


def test_a_missing_extra_says_what_to_install(installed, tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text(
        "from refork.errors import MissingExtra\nraise MissingExtra('chess', 'worlds')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    installed(("refork.worlds", "chess", "needs_more:open"))
    with pytest.raises(MissingExtra):
        find("worlds", "chess")


def test_two_packages_with_one_name_are_named(installed):
    installed(
        ("refork.judges", "j", "json:loads"),
        ("refork.judges", "j", "json:dumps"),
        ("refork.judges", "k", "json:loads"),
    )
    with pytest.raises(BadInput, match="judge 'j' is registered by"):
        find("judges", "j")
    assert find("judges", "k") is __import__("json").loads, "one name that two have breaks no other"
    # The same thing twice, as an editable install beside its wheel gives it, is one.
    installed(("refork.judges", "j", "json:loads"), ("refork.judges", "j", "json:loads"))
    assert find("judges", "j") is __import__("json").loads


def test_an_unknown_name_has_neighbours(installed):
    installed(("refork.credits", "grpo", "json:loads"))
    with pytest.raises(BadInput, match="there is no credit 'grppo'") as told:
        find("credits", "grppo")
    assert told.value.hint == "did you mean grpo?"


def test_a_name_of_this_process(installed):
    installed(("refork.worlds", "tar", "tarfile:TarFile"))
    register("worlds", "mine", 3)
    try:
        assert find("worlds", "mine") == resolve("worlds", "mine") == 3
        for taken in ("mine", "tar"):
            with pytest.raises(BadInput, match="registered already"):
                register("worlds", taken, 4)
        for bad in ("", "a:b", "a b", "a/b", "a?b"):
            with pytest.raises(BadInput, match="is no name"):
                register("worlds", bad, 4)
    finally:
        unregister("worlds", "mine")
    assert not known("worlds", "mine")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("maze", ("maze", "")),
        ("maze:3,3,3", ("maze", "3,3,3")),
        ("./w.py:World", ("./w.py:World", "")),
        ("./w.py:World:3,3", ("./w.py:World", "3,3")),
        ("json.decoder:JSONDecoder", ("json.decoder:JSONDecoder", "")),
        ("json.decoder:JSONDecoder:a:b", ("json.decoder:JSONDecoder", "a:b")),
        ("json:loads", ("json:loads", "")),
        ("tar:x.py:y", ("tar", "x.py:y")),  # a registered name wins
        ("no_such:thing", ("no_such", "thing")),
        ("a b:c", ("a b", "c")),
    ],
)
def test_a_text_is_a_name_and_what_follows(installed, text, parts):
    installed(("refork.worlds", "tar", "tarfile:TarFile"))
    assert split("worlds", text) == parts


def test_a_file_is_run_once_and_again_when_it_changed(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from dataclasses import dataclass\n@dataclass\nclass W:\n    a: int = 1\n")
    first = resolve("worlds", f"{file}:W")
    assert resolve("worlds", f"{file}:W") is first
    assert first().a == 1
    file.write_text("class W:\n    a = 2\n")
    assert resolve("worlds", f"{file}:W").a == 2
    with pytest.raises(BadInput, match="has no 'V'"):
        resolve("worlds", f"{file}:V")


@pytest.mark.parametrize(
    ("text", "match", "where"),
    [
        ("x = 1\ny = 1 / 0\n", "ZeroDivisionError", ":2"),
        ("x = 1\n\nx = (\n", "SyntaxError", ":3"),
        ("import no_such_thing\n", "ModuleNotFoundError", ":1"),
    ],
)
def test_a_file_that_fails_says_where_and_leaves_nothing(tmp_path, text, match, where):
    file = tmp_path / "bad.py"
    file.write_text(text)
    before = set(sys.modules)
    with pytest.raises(BadInput, match=match) as told:
        resolve("worlds", f"{file}:W")
    assert told.value.where == f"{file}{where}"
    assert not [name for name in set(sys.modules) - before if name.startswith("refork_file_")]


def test_no_such_file_module_or_name(tmp_path):
    with pytest.raises(BadInput, match="the file cannot be read"):
        resolve("worlds", f"{tmp_path}/none.py:W")
    with pytest.raises(BadInput, match="there is no module 'no_such_module'"):
        resolve("worlds", "no_such_module:W")
    with pytest.raises(BadInput, match="there is no world 'none'"):
        resolve("worlds", "none")


def test_a_recorded_text_runs_nothing(tmp_path):
    file = tmp_path / "evil.py"
    file.write_text(f"open({str(tmp_path / 'done')!r}, 'w')\nW = 1\n")
    with pytest.raises(BadInput, match="there is no world"):
        find("worlds", f"{file}:W")
    assert not (tmp_path / "done").exists()


def test_a_part_that_is_not_installed_says_what_to_install(installed):
    installed(("refork.parts", "serve.pins", "json:loads"))
    assert part("serve.pins") is __import__("json").loads
    with pytest.raises(CannotDo, match="needs refork-methods, which is not installed") as told:
        part("serve.worlds")
    assert told.value.hint == "in a checkout: pip install -e packages/refork-methods"


def test_an_unknown_name_says_which_of_our_packages_are_not_here(installed, monkeypatch):
    installed(("refork.worlds", "lock", "json:loads"))

    def distribution(name):
        if name in ("refork-testbed", "refork-worlds"):
            raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(registry, "distribution", distribution)
    with pytest.raises(BadInput) as told:
        find("worlds", "maze")
    assert told.value.hint == "known: lock; more come with refork-worlds, refork-testbed, not installed here"
