"""``refork tree import`` and ``export`` with other tools' formats: what they print, keep and refuse."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from refork.cli.tree import app
from refork.errors import BadInput
from refork.tree import Tree

SECRET = "ghp_" + "aB3" * 12


def line(text: str) -> str:
    return json.dumps(
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": text}]}
    )


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "chats.jsonl"
    file.write_text("\n".join([line("fine"), line(SECRET), '{"messages": []}', line("cut")[:-9]]))
    return file


def run(*arguments: object):
    return CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)


def test_an_import_says_what_was_read_skipped_lost_and_redacted(tmp_path, source):
    said = run("import", tmp_path / "a.db", source).output
    assert "3 new nodes" in said
    assert "read      4 nodes, as openai-chat" in said
    assert "skipped   this line has no messages" in said
    assert "skipped   the file ends within this line" in said
    assert "lost      log-probs: the format records none" in said
    assert "redacted  2 x github-token" in said
    with Tree.open(tmp_path / "a.db", "r") as tree:
        assert all(SECRET not in node.text for node in tree.walk())
        said_next = next(one for one in said.splitlines() if one.startswith("next"))
        assert tree.node(said_next.split()[6]).kind == "task"  # where the first turn begins


def test_an_import_as_json(tmp_path, source):
    found = json.loads(run("import", tmp_path / "a.db", source, "--json").stdout)
    assert (found["format"], found["nodes"], found["skipped"], found["redacted"]) == ("openai-chat", 3, 2, 2)
    places = [note["places"] for note in found["remarks"] if note["kind"] == "skipped"]
    assert places == [[f"{source}:3"], [f"{source}:4"]]


def test_secrets_are_kept_where_that_is_asked_for(tmp_path, source):
    assert "redacted" not in run("import", tmp_path / "a.db", source, "--keep-secrets").output
    with Tree.open(tmp_path / "a.db", "r") as tree:
        assert any(SECRET in node.text for node in tree.walk())


def test_strict_ends_at_the_first_bad_item(tmp_path, source):
    with pytest.raises(BadInput, match="no messages"):
        run("import", tmp_path / "a.db", source, "--strict")
    with Tree.open(tmp_path / "a.db", "r") as tree:
        assert len(tree) == 0


@pytest.mark.parametrize("form", ["openai-chat", "verifiers", "atif"])
def test_walks_are_exported_and_read_again(tmp_path, source, form):
    run("import", tmp_path / "a.db", source)
    out = tmp_path / "out.jsonl"
    assert "2 lines written" in run("export", tmp_path / "a.db", out, "--format", form).output
    run("import", tmp_path / "b.db", out)
    with Tree.open(tmp_path / "b.db", "r") as tree:
        assert sorted(leaf.text for leaf in tree.leaves()) == ["[redacted:github-token]", "fine"]
    with pytest.raises(BadInput, match="exists already"):
        run("export", tmp_path / "a.db", out, "--format", form)


def test_unknown_formats_are_refused_with_those_that_are_known(tmp_path, source):
    run("import", tmp_path / "a.db", source)
    with pytest.raises(BadInput, match="there is no format 'csv'"):
        run("import", tmp_path / "a.db", source, "--format", "csv")
    with pytest.raises(BadInput, match="csv"):
        run("export", tmp_path / "a.db", "-", "--format", "csv")
