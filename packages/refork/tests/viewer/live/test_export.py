"""One file to share: it holds all that the page asks, and refuses what it cannot hold."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from refork import Tree
from refork.errors import BadInput, CannotDo
from refork.forking.recorded import Pair, pairs
from refork.tree.node import NewNode
from refork.viewer.live import answers, export
from refork.viewer.live.export import export_page
from refork.viewer.live.shelf import Shelf


def shared_of(file):
    text = file.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="start">(.*?)</script>', text, re.DOTALL)[1])["shared"]


def test_it_holds_what_the_page_asks(told, tmp_path):
    file = tmp_path / "page.html"
    done = export_page(Shelf([told.file]), file)
    assert (done["tasks"], done["bytes"]) == (2, file.stat().st_size)
    shared = shared_of(file)
    with Tree.open(told.file, "r") as tree:
        ids = {node.id for node in tree.walk()}
    assert set(shared["nodes"]) == ids
    assert done["nodes"] == len(ids)
    assert shared["nodes"][told.long]["left_out"] is True
    assert shared["nodes"][told.guess]["left_out"] is False
    lines = shared["lines"][f"{told.task}|success|0"]
    assert [line["line"] for line in lines] == list(range(len(lines)))
    assert {id_ for line in lines for id_ in line["nodes"]} < ids
    assert f"{told.guess}|success" in shared["branches"]
    assert list(shared["effect"]) == [f"{told.control}|{told.changed}|success"]
    assert [pair["task"] for pair in shared["effects"]["pairs"]] == [told.task]
    assert list(shared["graph"]) == [f"{told.task}|success"]
    assert set(shared["versions"]) == {"success", "advantage"}
    assert shared["said"][told.guess]["scores"]
    leaves = {branch["leaf"] for branch in shared["branches"][f"{told.guess}|success"]["branches"]}
    assert any(set(key.split("|")) <= leaves for key in shared["diffs"])


def test_named_tasks_and_scores_alone(told, tmp_path):
    file = tmp_path / "page.html"
    export_page(Shelf([told.file]), file, [told.evil[:8]], ["success"])
    shared = shared_of(file)
    assert [task["id"] for task in shared["tasks"]["tasks"]] == [told.evil]
    assert told.task not in shared["nodes"]
    assert shared["effects"]["pairs"] == []


def test_effects_of_other_tasks_take_no_place_of_those_that_are_shared(told, tmp_path, monkeypatch):
    with Tree.open(told.file, "r") as tree:
        (pair,) = pairs(tree.forks())
    elsewhere = Pair(pair.control, dataclasses.replace(pair.changed, node=told.evil))
    monkeypatch.setattr(answers, "pairs", lambda forks: [*[elsewhere] * answers.PAIRS, pair])
    file = tmp_path / "page.html"
    export_page(Shelf([told.file]), file, [told.task], ["success"])
    effects = shared_of(file)["effects"]
    assert [one["changed"] for one in effects["pairs"]] == [told.changed]
    assert effects["total"] == 1


def test_equal_trees_give_equal_files(told, tmp_path):
    for name in "ab":
        export_page(Shelf([told.file]), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_what_is_no_page_is_not_written_over(told, tmp_path):
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    with pytest.raises(BadInput, match="no HTML page"):
        export_page(Shelf([told.file]), thesis)
    assert thesis.read_text() == "years of work"
    with pytest.raises(BadInput, match="no HTML page"):
        export_page(Shelf([told.file]), told.file)
    with pytest.raises(CannotDo, match="cannot be read"):
        export_page(Shelf([told.file]), tmp_path)
    with pytest.raises(CannotDo, match="cannot be written"):
        export_page(Shelf([told.file]), tmp_path / "none" / "page.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.txt"]


def test_what_one_file_cannot_hold(told, tmp_path, monkeypatch):
    shelf = Shelf([told.file])
    with pytest.raises(BadInput, match="no score 'elegance'"):
        export_page(shelf, tmp_path / "p", scores=["elegance"])
    with pytest.raises(BadInput, match="no task"):
        export_page(shelf, tmp_path / "p", [told.guess])
    with pytest.raises(BadInput, match="one tree"):
        export_page(Shelf([told.file.parent]), tmp_path / "p")
    monkeypatch.setattr(export, "NODES", 10)
    with pytest.raises(BadInput, match="more than 10 nodes"):
        export_page(shelf, tmp_path / "p")
    monkeypatch.setattr(export, "NODES", 10_000)
    monkeypatch.setattr(export, "BYTES", 1000)
    with pytest.raises(BadInput, match="at most 1,000 are written"):
        export_page(shelf, tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_an_empty_tree_and_a_tree_without_scores(tmp_path):
    with Tree.open(tmp_path / "t.db", "x") as tree:
        assert export_page(Shelf([tree.file]), tmp_path / "none.html")["nodes"] == 0
        task = tree.append(NewNode(kind="task", text="t"))[0]
        tree.append([NewNode(kind="action", parent=task.id, key=key, text=key) for key in "ab"])
        export_page(Shelf([tree.file]), tmp_path / "some.html")
    shared = shared_of(tmp_path / "some.html")
    assert set(shared["lines"]) == {f"{task.id}||0", f"{task.id}||1"}
    assert list(shared["branches"]) == [f"{task.id}|"]
