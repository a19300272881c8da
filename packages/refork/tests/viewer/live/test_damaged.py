"""A damaged tree in the live viewer: the answer says what is damaged and where, and other trees go on."""

import sqlite3

import pytest
from starlette.testclient import TestClient

from refork.tree import NewNode, Tree
from refork.viewer.live.api import create_viewer_app
from refork.viewer.live.shelf import Shelf

HERE = "http://127.0.0.1"


@pytest.mark.parametrize(
    ("damage", "question"),
    [
        ("UPDATE nodes SET parent = 77 WHERE row = 2", "tasks"),
        ("UPDATE nodes SET parent = 77 WHERE row = 2", "shape"),
        ("UPDATE nodes SET parent = 77 WHERE row = 2", "branches"),
        ("UPDATE nodes SET cost = '{\"unknown\": 1}' WHERE row = 2", "walk"),
        ("UPDATE nodes SET tokens = x'0102' WHERE row = 2", "nodes"),
    ],
)
def test_what_damage_makes_of_a_question_is_told_as_damage(tmp_path, damage, question):
    for name in ("bad.db", "good.db"):
        with Tree.open(tmp_path / name, "x") as tree:
            (task,) = tree.append([NewNode(kind="task", text="toss")])
            (node,) = tree.append([NewNode(kind="action", parent=task.id, text=" heads")])
    raw = sqlite3.connect(tmp_path / "bad.db")
    raw.execute("PRAGMA foreign_keys = OFF")
    raw.execute(damage)
    raw.commit()
    raw.close()
    asked = {
        "walk": {"node": node.id},
        "nodes": {"ids": node.id},
        "branches": {"node": task.id},
        "shape": {"task": task.id},
    }.get(question, {})
    with TestClient(create_viewer_app(Shelf([tmp_path])), base_url=HERE) as client:
        told = client.get(f"/api/{question}", params={"tree": "bad.db"} | asked)
        assert (told.status_code, "this tree is damaged" in told.text) == (500, True), told.text
        assert "row 2" in told.text
        fine = client.get(f"/api/{question}", params={"tree": "good.db"} | asked)
        assert fine.status_code == 200
        wrong = client.get("/api/tasks", params={"tree": "bad.db", "start": "x"})
        assert (wrong.status_code, "damaged" in wrong.text) == (400, False)


def test_a_bug_of_ours_is_not_blamed_on_a_whole_tree(tmp_path, monkeypatch):
    with Tree.open(tmp_path / "good.db", "x") as tree:
        (task,) = tree.append([NewNode(kind="task", text="toss")])
    app = create_viewer_app(Shelf([tmp_path]))
    monkeypatch.setattr("refork.viewer.live.answers.walk", lambda view, node: 1 / 0)
    with TestClient(app, base_url=HERE, raise_server_exceptions=False) as client:
        told = client.get("/api/walk", params={"tree": "good.db", "node": task.id})
    assert told.status_code == 500
    assert "damaged" not in told.text
