"""What the page is told: exact answers, hostile texts whole and harmless, and what is refused."""

from __future__ import annotations

import base64

import numpy as np
import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from refork.errors import BadInput, NotATree
from refork.tree import NewNode, Tree
from refork.viewer.live.api import create_viewer_app
from refork.viewer.live.shelf import Shelf
from support.viewer_tree import HOSTILE

HERE = "http://127.0.0.1"


@pytest.fixture(scope="module")
def client(told):
    with TestClient(create_viewer_app(Shelf([told.file])), base_url=HERE) as client:
        yield client


@pytest.fixture
def ask(client):
    def answer(question, status=200, **asked):
        got = client.get(f"/api/{question}", params={"tree": "tree.db"} | asked)
        assert got.status_code == status, got.text
        return got.json()

    return answer


def column(text, kind):
    return np.frombuffer(base64.b64decode(text), kind)


def test_trees_and_tasks(ask, told):
    (tree,) = ask("trees")["trees"]
    assert (tree["name"], tree["tasks"]) == ("tree.db", 2)
    facts = ask("tree")
    assert facts["scores"] == ["success"]
    assert facts["arrays"] == ["advantage"]
    assert HOSTILE in facts["policies"]
    first, evil = ask("tasks")["tasks"]
    assert (first["id"], first["forks"], evil["world"]) == (told.task, 3, HOSTILE)
    assert evil["text"] == HOSTILE.partition("\x00")[0]  # where SQLite ends what it cuts; the path has all
    assert [one["id"] for one in ask("tasks", text="WELL")["tasks"]] == [told.task]
    assert [one["id"] for one in ask("tasks", forked=True)["tasks"]] == [told.task]
    assert ask("tasks", start=1, count=1)["tasks"][0]["id"] == told.evil
    assert ask("tasks", low=2)["tasks"] == []


def test_lines(ask, told):
    shape = ask("shape", task=told.task, joined=False)
    with Tree.open(told.file, "r") as tree:
        rows = dict(tree._db.rows("SELECT row, id FROM nodes"))
        trajectory = [node.id for node in tree.walk(told.task)]
    assert [rows[row].hex() for row in column(shape["rows"], "<i4").tolist()] == trajectory
    assert column(shape["sizes"], "<i4")[0] == shape["count"] == shape["nodes"] == len(trajectory)
    assert column(shape["means"], "<f4").shape == (len(trajectory),)
    (line,) = ask("lines", task=told.task, joined=False, wanted="1,999999")["lines"]
    assert line["parts"][0]["id"] == trajectory[1]
    assert ask("place", task=told.task, joined=False, node=trajectory[3])["line"] == 3
    assert ask("place", task=told.task, node=told.evil)["line"] is None
    assert ask("search", task=told.evil, errors=True)["nodes"] == 1
    assert ask("lines", 400, task=told.task, wanted="1,x")["error"]["message"].startswith(
        "'1,x' are no numbers"
    )


def test_walks_and_nodes(ask, told):
    trajectory = ask("walk", node=told.guess)
    assert [step["kind"] for step in trajectory["steps"]] == ["task", "action"]
    (node,) = ask("nodes", ids=told.guess)["nodes"]
    assert "".join(node["tokens"]) in (" guess right", " guess wrong")
    assert len(node["tokens"]) == node["count"] == len(node["ids"])
    assert set(node["values"]) >= {"logprobs", "entropy", "advantage"}
    assert node["values"]["advantage"][0] == -1
    assert node["arms"] == 2
    assert {"keep": 1, "count": 24} in node["branches"]
    branches = ask("branches", node=told.guess)
    assert len(branches["branches"]) == branches["total"] == 48  # the changed arm goes back before the token


def test_a_long_text_comes_in_pages(ask, told):
    (node,) = ask("nodes", ids=told.long)["nodes"]
    assert (node["length"], len(node["text"]), node["next"]) == (1_000_000, 20_000, 20_000)
    page = ask("page", node=told.long, start=990_000)
    assert (len(page["text"]), page["next"]) == (10_000, None)
    assert ask("page", node=told.long, start=2_000_000)["text"] == ""


def test_many_tokens_come_in_pages(tmp_path):
    count = 4000
    with Tree.open(tmp_path / "long.db", "x") as tree:
        task = tree.append(NewNode(kind="task", text="t"))[0]
        ends = np.arange(1, count + 1)
        text = "é" * count
        step = NewNode(kind="action", parent=task.id, text=text, tokens=ends, offsets=ends, logprobs=-ends)
        node = tree.append(step)[0]
    with TestClient(create_viewer_app(Shelf([tmp_path / "long.db"])), base_url=HERE) as client:
        asked = {"tree": "long.db", "node": node.id}
        first = client.get("/api/nodes", params={"tree": "long.db", "ids": node.id}).json()["nodes"][0]
        rest = client.get("/api/page", params=asked | {"start": first["next"]}).json()
        assert "".join(first["tokens"] + rest["tokens"]) == text
        assert first["values"]["logprobs"] + rest["values"]["logprobs"] == [-float(n) for n in ends]
        assert rest["next"] is None


def test_diff_effects_scores_graph(ask, told):
    with Tree.open(told.file, "r") as tree:
        control, changed = (tree.draws(arm)[0].leaf for arm in (told.control, told.changed))
    diff = ask("diff", left=control, right=changed)
    assert diff["rungs"]
    (pair,) = ask("effects")["pairs"]
    assert (pair["control"], pair["changed"], pair["before"]) == (told.control, told.changed, " guess")
    assert ask("effects", task=told.evil)["pairs"] == []
    card = ask("effect", control=told.control, changed=told.changed)
    assert (card["drawn"], card["effect"]["draws"], card["effect"]["scale"]) == ([24, 24], 24, "rate")
    assert len(card["draws"]) == 24
    assert card["draws"][0]["control"]["leaf"] == control
    ungraded = ask("effect", control=told.control, changed=told.changed, score="elegance")
    assert ungraded["effect"] is None
    assert "0 of 24 pairs" in ungraded["why"]
    found = ask("versions", name="success")
    assert [one["label"] for one in found["versions"]][-1] == "strict 2"
    assert found["nodes"][0]["node"] == told.guess
    said = ask("said", node=told.guess)["scores"]
    assert {"a lucky guess", None} <= {one["reason"] for one in said}
    graph = ask("graph", task=told.task)
    assert graph["rollouts"] >= 12
    assert all(0 <= edge["source"] < len(graph["states"]) for edge in graph["edges"])
    assert "no rollout" in ask("graph", 400, task=told.evil)["error"]["message"]


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("tree", {"tree": "../tree.db"}),
        ("walk", {"node": "zz"}),
        ("walk", {"node": "f" * 32}),
        ("nodes", {"ids": ""}),
        ("shape", {"task": "f" * 32}),
        ("tasks", {"order": "best"}),
        ("tasks", {"start": -1}),
        ("tasks", {"low": "x"}),
        ("tasks", {"low": "nan"}),
        ("versions", {"name": "elegance"}),
        ("effect", {"control": "a", "changed": "b"}),
        ("diff", {"left": "0", "right": "1"}),
        ("fork", {"job": "1"}),
    ],
)
def test_nonsense_is_refused_with_its_reason(ask, question, asked):
    body = ask(question, 400, **asked)
    assert body["error"]["message"]


def test_there_is_nothing_else(client):
    for path in (
        "/docs",
        "/openapi.json",
        "/web/../api.py",
        "/web/vendor/VENDORED.toml",
        "/api/none",
        "/web/",
    ):
        assert client.get(path).status_code == 404


def test_the_page(client):
    got = client.get("/")
    assert got.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in got.headers["content-security-policy"]
    assert client.get("/web/main.js").headers["content-type"].startswith("text/javascript")
    assert b"--s10:" in client.get("/web/page.css").content


class TestShelf:
    def test_a_folder_of_trees(self, told, tmp_path):
        (tmp_path / "deep").mkdir()
        for name in ("a.db", "deep/b.db"):
            Tree.open(tmp_path / name, "x").close()
        (tmp_path / "deep" / "other.db").write_text("no tree")
        shelf = Shelf([tmp_path, told.file])
        assert [one["name"] for one in shelf.trees()] == ["a.db", "deep/b.db", "tree.db"]
        assert shelf.only is None
        with pytest.raises(BadInput, match=r"no tree 'c\.db'"):
            shelf.view("c.db")
        shelf.close()

    def test_equal_names_are_told_apart(self, tmp_path):
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            Tree.open(tmp_path / name / "t.db", "x").close()
        names = [one["name"] for one in Shelf([tmp_path / "a", tmp_path / "b"]).trees()]
        assert names == ["t.db", str(tmp_path / "b" / "t.db")]

    def test_a_tree_that_breaks_says_so_and_the_others_stay(self, tmp_path):
        for name in ("a.db", "b.db"):
            Tree.open(tmp_path / name, "x").close()
        data = (tmp_path / "a.db").read_bytes()
        (tmp_path / "a.db").write_bytes(data[:100] + b"\xff" * 4000)
        bad, good = Shelf([tmp_path]).trees()
        assert "damaged" in bad["error"]
        assert good["nodes"] == 0

    def test_what_cannot_be_shown(self, tmp_path):
        with pytest.raises(BadInput, match="no tree to view"):
            Shelf([])
        with pytest.raises(BadInput, match="no such file"):
            Shelf([tmp_path / "none.db"])
        with pytest.raises(NotATree, match="no tree in this folder"):
            Shelf([tmp_path])
        (tmp_path / "x.txt").write_text("hello")
        with pytest.raises(NotATree):
            Shelf([tmp_path / "x.txt"])
