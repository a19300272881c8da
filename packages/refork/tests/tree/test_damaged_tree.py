"""Damaged tree files and data that no tree holds: errors that say what and where, never a traceback."""

from __future__ import annotations

import contextlib
import sqlite3

import numpy as np
import pytest

from refork.errors import BadInput, TreeError
from refork.formats.native import Native
from refork.policies.base import Cost
from refork.tree import ForkRecord, NewNode, Producer, Tree, codec
from support.spoiled import crashes, good, spoil
from tree.tree_builders import step

DEEP = {"a": 1}
for _ in range(100_000):
    DEEP = {"a": DEEP}
MODEST = {"a": 1}
for _ in range(codec.DEEPEST - 2):
    MODEST = {"a": MODEST}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return good(tmp_path_factory.mktemp("good") / "good.db")


@pytest.mark.parametrize("number", range(10))
def test_no_damaged_file_crashes_a_command(source, tmp_path, number):
    """The first files of ``tools/fuzz_tree.py``, which reads any number of them."""
    spoil(source, tmp_path / "bad.db", number)
    assert list(crashes(tmp_path / "bad.db", tmp_path)) == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE nodes SET extra = '{\"a\": ' WHERE row = 3", "row 3 of nodes"),
        ("UPDATE nodes SET extra = '[1]' WHERE row = 3", "row 3 of nodes"),
        (f"UPDATE nodes SET extra = '{'[' * 100_000}' WHERE row = 3", "row 3 of nodes"),
        (f"UPDATE nodes SET settings = '{'[' * 100_000}' WHERE row = 2", "row 2 of nodes"),
        ("UPDATE nodes SET message = '{\"role\": 7}' WHERE row = 2", "row 2 of nodes"),
        ("UPDATE nodes SET cost = '{\"unknown\": 1}' WHERE row = 2", "row 2 of nodes"),
        ("UPDATE nodes SET noise = 'abc' WHERE row = 2", "row 2 of nodes"),
        ("UPDATE nodes SET tokens = x'0102' WHERE row = 2", "row 2 of nodes"),
        ("UPDATE nodes SET text = CAST(x'fffe' AS TEXT) WHERE row = 2", "decode"),
        ("UPDATE nodes SET parent = row WHERE row = 2", "none before it"),
        ("UPDATE nodes SET id = x'00' WHERE row = 2", "row 2 of nodes"),
        ("UPDATE forks SET policy = '7'", "forks"),
        ("UPDATE forks SET world = x'ff'", "forks"),
        ("UPDATE producers SET reads = '{}'", "producers"),
        ("UPDATE producers SET retired_at = 9e999", "retired_at is no time"),
        ("UPDATE nodes SET created = 9e999 WHERE row = 2", "created is no time"),
    ],
)
def test_damage_is_named_with_its_place(source, tmp_path, damage, said):
    file = tmp_path / "bad.db"
    file.write_bytes(source.read_bytes())
    raw = sqlite3.connect(file)
    raw.execute("PRAGMA foreign_keys = OFF")
    raw.execute(damage)
    raw.commit()
    raw.close()
    assert list(crashes(file, tmp_path)) == []
    with Tree.open(file, "r") as tree:
        findings = list(tree.verify())
    assert any(said in finding.what for finding in findings), findings


JSON_KINDS = (None, True, 1, 1.5, "a", [], ["a"], [{"role": 1}], {}, {"role": 1}, {"a": {}})


@pytest.mark.parametrize(
    "fields",
    [
        lambda value: {"message": value},
        lambda value: {"message": {"role": value}},
        lambda value: {"message": {"role": "assistant", "content": value}},
        lambda value: {"message": {"role": "assistant", "tool_calls": value}},
        lambda value: {"settings": value},
        lambda value: {"settings": {"forced": value}},
        lambda value: {"cost": Cost(tokens_in=value)},
        lambda value: {"cost": Cost(money=value)},
        lambda value: {"extra": value},
        *(
            lambda value, name=name: {"extra": {name: value}}
            for name in ("messages", "pending", "task", "world", "span", "trace", "tools", "tool_spans")
        ),
    ],
)
def test_no_node_that_is_taken_counts_as_damaged(fields):
    taken = 0
    for value in JSON_KINDS:
        with Tree.memory() as tree:
            with contextlib.suppress(BadInput):
                tree.append(NewNode(kind="task", text="t", **fields(value)))
            taken += len(tree)
            assert list(tree.verify()) == []
    assert 0 < taken < len(JSON_KINDS)


def test_a_task_of_another_node_than_the_root_may_be_anything():
    """Only a root's is read; what a world tells of an answer has names of its own."""
    with Tree.memory() as tree:
        root = tree.append(step("task", "go", extra={"task": "by name", "world": "w"}))[0]
        tree.append(step("observation", "seen", root.id, extra={"task": 3, "world": [1]}))
        assert list(tree.verify()) == []


@pytest.mark.parametrize("name", ["token", "change", "policy", "settings", "seed", "stream", "extra"])
def test_no_fork_that_is_taken_counts_as_damaged(name):
    fields = {
        "token": None,
        "change": None,
        "policy": {},
        "settings": {},
        "world": None,
        "seed": 0,
        "stream": 0,
    }
    for value in JSON_KINDS:
        with Tree.memory() as tree:
            node = tree.append(step("task", "go"))[0]
            with contextlib.suppress(BadInput):
                tree.begin_fork(ForkRecord("f", node.id, **fields | {name: value}))
            assert list(tree.verify()) == []
            assert len(list(tree.forks())) == tree.stats().forks


def test_an_error_of_our_own_stays_what_it_is(source):
    """Only damage is blamed on the file: a bug in a caller is no damage."""
    with pytest.raises(ZeroDivisionError), Tree.open(source, "r"):
        _ = 1 / 0


@pytest.mark.parametrize("field", ["extra", "message", "settings"])
def test_data_that_nest_too_deep_are_refused_with_their_place(field):
    with Tree.memory() as tree:
        with pytest.raises(BadInput, match="deep"):
            tree.append(NewNode(kind="task", text="t", **{field: DEEP}))
        assert len(tree) == 0
        kept = tree.append(NewNode(kind="task", text="t", **{field: MODEST}))[0]
        assert getattr(tree.node(kept.id), field) == MODEST


def test_deep_configs_and_changes_are_refused():
    with Tree.memory() as tree:
        node = tree.append(step("task", "go"))[0]
        with pytest.raises(BadInput, match="deep"):
            tree.add_producer(Producer("judge", config=DEEP))
        with pytest.raises(BadInput, match="deep"):
            tree.begin_fork(ForkRecord("f", node.id, None, DEEP, {}, {}, None, 0, 0))


def test_what_is_as_deep_as_allowed_is_exported_and_read(tmp_path):
    with Tree.memory() as tree, (tmp_path / "out.jsonl").open("w") as out:
        tree.append(NewNode(kind="task", text="t", extra=MODEST))
        Native().write(tree.records(), out)
    with Tree.memory() as again:
        again.load(Native().read(tmp_path / "out.jsonl"))
        assert next(again.walk()).extra == MODEST


@pytest.mark.parametrize("text", ["x" * 2001, "é" * 1001])
def test_a_node_larger_than_a_row_says_how_large(monkeypatch, text):
    monkeypatch.setattr(codec, "LARGEST", 2000)
    with Tree.memory() as tree:
        with pytest.raises(BadInput, match="split it") as met:
            tree.append(NewNode(kind="task", text=text))
        assert "2,00" in str(met.value)
        tree.append(NewNode(kind="task", text="é" * 900))


def test_what_the_database_finds_too_large_is_told_as_that(tmp_path):
    with Tree.open(tmp_path / "t.db") as tree:
        tree._db._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 5000)
        with pytest.raises(TreeError, match="split it"):
            tree.append(NewNode(kind="task", text="x" * 6000))
        with pytest.raises(TreeError, match="split it"):
            tree.append(NewNode(kind="task", text="x", snapshot=np.zeros(9000, np.uint8).tobytes()))
        assert len(tree) == 0
