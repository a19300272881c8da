from __future__ import annotations

import json
import sqlite3

import pytest
from typer.testing import CliRunner

from refork.cli.tree import app
from refork.errors import BadInput, NotATree, TreeVersion
from refork.policies.base import PolicyCard
from refork.tree import ForkRecord, NewNode, Producer, Score, Tree
from refork.tree.address import is_address
from refork.tree.schema import FIELDS, VERSION
from tree.tree_builders import small, step, version_1


@pytest.fixture
def file(place):
    """A tree with two tasks, in each store; draws of the first are scored."""
    with Tree.open(place) as tree:
        root, actions, fork = small(tree)
        tree.append([step("verdict", "", a.id, key="v") for a in actions[1:]])
        more = tree.append([step("action", f"more{i}", root.id, key=f"m{i}") for i in range(12)])
        tree.append(NewNode(kind="task", text="a second\ntask", error="it broke"))
        judge = tree.add_producer(Producer("judge"))
        verdicts = [n for n in tree.walk() if n.kind == "verdict"]
        tree.add_scores(
            [Score(n.id, "success", float(i % 2), judge) for i, n in enumerate([*verdicts, *more, fork])]
        )
        tree.begin_fork(ForkRecord("f", root.id, 2, None, {}, {}, None, 0, 0))
    return place


def spoil(place):
    """Change a node behind the tree's back."""
    if is_address(place):
        with Tree.open(place) as tree:
            tree._db.run(b"UPDATE nodes SET depth = 9 WHERE row = 3")
        return
    with sqlite3.connect(place) as raw:
        raw.execute("UPDATE nodes SET depth = 9 WHERE row = 3")
    raw.close()


def run(*arguments, width: int = 100, code: int = 0):
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": str(width)})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def test_show(file):
    wide = run("show", file)
    assert "◆ go home" in wide
    assert "├─ ▶ word0" in wide
    assert "@3" in wide
    assert "… 10 more, 0 nodes" not in wide
    assert "… 10 more" in wide
    assert "a second⏎ task" in wide
    assert "it broke" in wide
    assert "0.5" in wide
    assert "11 of 22 nodes are not drawn" in wide or "are not drawn" in wide
    for width in (30, 50, 80):
        assert max(map(len, run("show", file, width=width).splitlines()[:10])) <= width


def test_show_as_json(file):
    drawn = json.loads(run("show", file, "--json", "--siblings", 2, "--score", "success"))
    assert drawn["score"] == "success"
    assert drawn["total"] == 22
    top = drawn["lines"][0]
    assert (top["kind"], top["below"], top["scored"]) == ("task", 20, 16)
    more = next(line for line in drawn["lines"] if "more" in line)
    assert more["more"] == 14
    assert more["below"] == 2
    below = json.loads(run("show", file, "--json", "--under", drawn["lines"][1]["id"][:10]))
    assert [line["text"] for line in below["lines"]] == ["word0", "-again"]
    assert below["total"] == 2
    assert len(json.loads(run("show", file, "--json", "--lines", 3))["lines"]) == 3
    with pytest.raises(BadInput, match="scores here: success"):
        run("show", file, "--score", "none")


def test_list(file):
    said = run("list", file)
    assert "go home" in said
    assert "lock" in said
    tasks = json.loads(run("list", file, "--json", "--limit", 1))
    assert [line["text"] for line in tasks["lines"]] == ["go home"]
    assert tasks["hidden"] == 1
    assert tasks["lines"][0]["mean"] == pytest.approx(0.5)
    assert "1 more task" in run("list", file, "--limit", 1)
    assert run("list", file, width=50)


def test_path(file):
    with Tree.open(file, "r") as tree:
        fork = next(n for n in tree.walk() if n.text == "-again")
    said = run("path", file, f"{fork.id[:10]}:2")
    assert "wor" in said
    assert "3/5" in said
    assert "2/6" in said
    steps = json.loads(run("path", file, fork.id, "--json"))
    assert [s["keep"] for s in steps] == [None, 3, None]
    assert steps[2]["node"]["tokens"] == fork.tokens.tolist()


def test_schema(file, tmp_path):
    said = json.loads(run("schema", "--json"))
    assert said["version"] == VERSION
    assert len(said["fields"]) == len(FIELDS)
    table = run("schema", file, width=160)
    assert all(f"{field.table}.{field.name}" in table for field in FIELDS)
    assert all(field.doc in table for field in FIELDS)
    old = tmp_path / "old.db"
    version_1(old)
    with pytest.raises(TreeVersion):
        run("schema", old)
    assert f"version {VERSION}" in run("schema", old, "--migrate")
    run("verify", old)
    with pytest.raises(BadInput, match="no such file"):
        run("schema", tmp_path / "none.db")


def test_verify(file, tmp_path, monkeypatch):
    assert "22 nodes, nothing found" in run("verify", file)
    assert json.loads(run("verify", file, "--json")) == []
    seen = []

    class Mute:
        card = PolicyCard("mute", "test", None, None, None, frozenset())

        def decode(self, tokens):
            return bytes(tokens.tolist()).decode()

    monkeypatch.setattr("refork.policies.open.open_policy", lambda spec: seen.append(spec) or Mute())
    run("verify", file, "--policy", "hf:some", "--policy", "p=openai:http://x?a=b#m")
    assert seen == ["hf:some", "openai:http://x?a=b#m"]
    spoil(file)
    assert "depth is 9" in run("verify", file, code=1)
    assert json.loads(run("verify", file, "--json", code=1))[0]["severity"] == "error"
    with pytest.raises(NotATree):
        run("verify", tmp_path / "none.db")


def test_export_import_merge_stats(file, tmp_path):
    out, copy = tmp_path / "out.jsonl", tmp_path / "copy.db"
    run("export", file, out)
    assert run("export", file) == out.read_text()
    with pytest.raises(BadInput, match="--force"):
        run("export", file, out)
    run("export", file, out, "--force")
    with pytest.raises(BadInput, match="cannot be written"):
        run("export", file, tmp_path / "none" / "x.jsonl")
    assert "22 new nodes" in run("import", copy, out)
    assert run("export", copy) == out.read_text()
    assert json.loads(run("merge", copy, file, "--json"))["nodes"] == 0
    with pytest.raises(BadInput, match="into itself"):
        run("merge", copy, copy)
    stats = json.loads(run("stats", copy, "--json"))
    assert stats["nodes"] == 22
    said = run("stats", copy)
    assert "success by judge 1" in said
    chats = tmp_path / "chats.jsonl"
    chats.write_text(
        '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}\n'
    )
    assert "2 new nodes" in run("import", copy, chats)
    assert "tasks      3" in run("stats", copy)


def test_every_verb_shows_an_example():
    for verb in ("list", "show", "path", "schema", "verify", "export", "import", "merge", "stats"):
        assert "refork tree" in run(verb, "--help")
