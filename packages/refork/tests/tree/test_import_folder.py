"""A folder of logs: every file by its own format, or named with the reason why it was not read."""

from __future__ import annotations

import gzip
import json

import pytest
from typer.testing import CliRunner

from refork.cli.tree import app
from refork.errors import BadInput, DrawConflict, MissingExtra, TreeBusy
from refork.formats import import_file, import_folder, importing
from refork.tree import Tree
from support.foreign_logs import FIXTURES

CHAT = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}


@pytest.fixture
def folder(tmp_path):
    """Logs of four formats in two levels, and files that are none."""
    place = tmp_path / "logs"
    (place / "inner").mkdir(parents=True)
    (place / "chats.jsonl").write_text(json.dumps(CHAT))
    (place / "run.eval").write_bytes((FIXTURES / "inspect.eval").read_bytes())
    (place / "inner" / "old.json").write_bytes(
        gzip.decompress((FIXTURES / "inspect-server.json.gz").read_bytes())
    )
    (place / "inner" / "mini.traj.json").write_bytes((FIXTURES / "mini-tools.traj.json").read_bytes())
    (place / "README.md").write_text("What these are.")
    (place / "empty.jsonl").write_text("")
    (place / "cut.jsonl").write_text(json.dumps(CHAT)[:40])
    (place / ".hidden").write_text("x")
    return place


def invoke(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)


def test_every_file_is_read_or_named(tmp_path, folder):
    found = json.loads(invoke("import", tmp_path / "t.db", folder, "--json").stdout)
    assert found["files"] == {"inspect": 2, "mini-swe-agent": 1, "openai-chat": 1}
    skipped = [note for note in found["remarks"] if note["kind"] == "skipped"]
    whats = [(name, note["what"]) for note in skipped for place in note["places"]
             for name in ("README.md", "empty.jsonl", "cut.jsonl", place) if name in place]  # fmt: skip
    named = {name: what for name, what in whats if "/" not in name}
    assert len(whats) == 2 * len(named)
    assert set(named) == {"README.md", "empty.jsonl", "cut.jsonl"}
    assert found["skipped"] == 3
    assert "empty" in named["empty.jsonl"]
    assert "no format" in named["README.md"]
    # Together they are what each gives alone, and again nothing is new.
    with Tree.open(tmp_path / "t.db", "r") as tree, Tree.memory() as apart:
        for path in sorted(folder.rglob("*")):
            if path.name in ("chats.jsonl", "run.eval", "old.json", "mini.traj.json"):
                from refork.formats import Redactor, reader_for

                redactor = Redactor()
                import_file(apart, path, reader_for(path, redactor=redactor), redactor=redactor)
        assert {node.id for node in tree.walk()} == {node.id for node in apart.walk()}
    again = json.loads(invoke("import", tmp_path / "t.db", folder, "--json").stdout)
    assert (again["nodes"], again["skipped"]) == (0, 3)


def test_what_is_printed_counts_files_and_skipped(tmp_path, folder):
    said = invoke("import", tmp_path / "t.db", folder).output
    assert "inspect (2 files), mini-swe-agent (1 files), openai-chat (1 files)" in said
    assert "skipped   nothing" not in said
    for name in ("README.md", "empty.jsonl", "cut.jsonl"):
        assert name in said


def test_a_named_format_says_which_files_are_others(tmp_path, folder):
    found = json.loads(invoke("import", tmp_path / "t.db", folder, "--format", "inspect", "--json").stdout)
    assert found["files"] == {"inspect": 2}
    assert found["skipped"] == 5


def test_strict_writes_nothing_where_a_file_is_no_log(tmp_path, folder):
    with Tree.memory() as tree:
        with pytest.raises(BadInput, match="no format"):
            import_folder(tree, folder, strict=True)
        assert len(tree) == 0
        for name in ("README.md", "empty.jsonl", "cut.jsonl"):
            (folder / name).unlink()
        assert import_folder(tree, folder, strict=True).files["inspect"] == 2
        assert len(tree) > 20


def test_a_folder_of_nothing_is_an_error(tmp_path):
    place = tmp_path / "none"
    place.mkdir()
    with Tree.memory() as tree:
        with pytest.raises(BadInput, match="no files"):
            import_folder(tree, place)
        (place / "x.txt").write_text("hello")
        with pytest.raises(BadInput, match="no format"):
            import_folder(tree, place)


def test_the_tree_itself_may_lie_in_the_folder(tmp_path, folder):
    found = json.loads(invoke("import", folder / "t.db", folder, "--json").stdout)
    again = json.loads(invoke("import", folder / "t.db", folder, "--json").stdout)
    assert found["files"] == again["files"]
    assert not any("t.db" in place for note in again["remarks"] for place in note["places"])


def test_links_to_folders_are_not_followed(tmp_path, folder):
    (folder / "inner" / "up").symlink_to(folder)
    (folder / "latest").symlink_to(folder / "inner")
    (folder / "elsewhere").symlink_to(tmp_path)
    (folder / "linked.jsonl").symlink_to(folder / "chats.jsonl")
    with Tree.memory() as tree:
        found = import_folder(tree, folder)
    assert found.files == {"inspect": 2, "mini-swe-agent": 1, "openai-chat": 2}
    places = [place for note in found.remarks if "link" in note.what for place in note.places]
    assert places == [str(folder / "elsewhere")]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (DrawConflict("stored already, with another extra"), "stored already, with another extra"),
        (MissingExtra("pyarrow", "export"), "pip install"),
    ],
    ids=["conflict", "extra"],
)
def test_a_file_that_cannot_be_imported_ends_no_other(folder, monkeypatch, error, said):
    def first_fails(tree, path, reader, **more):
        if path.name == "chats.jsonl":
            raise error
        return import_file(tree, path, reader, **more)

    monkeypatch.setattr(importing, "import_file", first_fails)
    with Tree.memory() as tree:
        found = import_folder(tree, folder)
    assert found.files == {"inspect": 2, "mini-swe-agent": 1}
    (note,) = (one for one in found.remarks if str(folder / "chats.jsonl") in one.places)
    assert note.kind == "skipped"
    assert said in note.what


def test_an_error_of_the_tree_ends_the_import_of_a_folder(folder, monkeypatch):
    def busy(*_, **__):
        raise TreeBusy("another writer")

    monkeypatch.setattr(importing, "import_file", busy)
    with Tree.memory() as tree, pytest.raises(TreeBusy):
        import_folder(tree, folder)
