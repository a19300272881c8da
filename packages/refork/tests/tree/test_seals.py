"""Seals: every row's digest of itself, what a flipped bit comes to, and trees from before there were any."""

from __future__ import annotations

import random
import sqlite3

import numpy as np
import pytest

from refork.tree import DrawRecord, ForkRecord, NewNode, Producer, Score, Tree
from refork.tree.schema import FIELDS, columns
from refork.tree.seal import SEALED, covered, seal
from support.flips import PAGE, fate, flippable, flips, told
from support.hostile_trees import raw
from tree.tree_builders import small, step, version_1


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return flippable(tmp_path_factory.mktemp("good") / "good.db")


@pytest.fixture
def file(source, tmp_path):
    file = tmp_path / "tree.db"
    file.write_bytes(source.read_bytes())
    return file


def test_every_table_is_covered_and_every_field_of_it():
    assert set(SEALED) == {field.table for field in FIELDS} - {"blobs"}
    for table in SEALED:
        left = {"seal"} if table == "nodes" else {"seal", "row"}
        assert set(covered(table)) | left == set(columns(table)) | left


def test_a_seal_is_what_it_was_when_files_were_written_with_it():
    """The stored bytes, whatever the version of Python: a tree is read by later ones."""
    row = (7, "näme", 2, 0.5, b"\x00\xff", None)
    assert seal("scores", row).hex() == "125cae4d292c90f93bbf625cf6045c44"
    assert seal("scores", (7, np.str_("näme"), 2, np.float64(0.5), bytearray(b"\x00\xff"), None)) == seal(
        "scores", row
    )
    assert seal("scores", (7, "näme", 2, -0.0, None, None)) == seal("scores", (7, "näme", 2, 0, None, None))


def test_what_differs_has_another_seal():
    rows = [
        (1, "a", 2, 0.5, None, None),
        (1, "a", 2, 0.5, None, ""),
        (1, "a", 2, None, b"", None),
        (1, "a", 2, None, b"\x00", None),
        (1, "", 2, 0.5, None, "a"),
        (12, "a", 2, 0.5, None, None),
        (1, "a", 22, 0.5, None, None),
    ]
    assert len({seal("scores", row) for row in rows}) == len(rows)


@pytest.mark.parametrize(
    "field",
    [f for f in FIELDS if f.name not in ("row", "seal", "digest", "data")],
    ids=lambda f: f"{f.table}.{f.name}",
)
def test_a_changed_field_is_found_whichever_it_is(field, file):
    value = {"INTEGER": "4", "REAL": "0.125", "TEXT": "'[0]'", "BLOB": "x'00112233'"}[field.sql.split()[0]]
    with raw(file) as connection:
        key = "rowid" if field.table == "meta" else "row"
        (last,) = connection.execute(f"SELECT max({key}) FROM {field.table}").fetchone()
        connection.execute(f'UPDATE {field.table} SET "{field.name}" = {value} WHERE {key} = ?', (last,))
    with Tree.open(file, "r") as tree:
        assert any(finding.severity == "error" for finding in tree.verify())


def test_a_row_without_a_seal_is_found(file):
    for table in SEALED:
        data = file.read_bytes()
        with raw(file) as connection:
            connection.execute(f"UPDATE {table} SET seal = NULL")
        with Tree.open(file, "r") as tree:
            assert any("seal" in finding.what for finding in tree.verify())
        file.write_bytes(data)


def test_a_finding_names_the_node_or_the_row(file):
    with raw(file) as connection:
        connection.execute("UPDATE nodes SET text = 'step 8' WHERE row = 3")
        connection.execute("UPDATE draws SET error = 'no' WHERE row = 2")
    with Tree.open(file, "r") as tree:
        node = tree._db.scalar("SELECT id FROM nodes WHERE row = 3").hex()
        found = [(f.node, f.what) for f in tree.verify()]
    assert [who for who, _ in found] == [node, None]
    assert all("seal" in what for _, what in found)
    assert found[1][1].startswith("draws, row 2: ")


def test_flipped_bits_are_found_refused_or_change_nothing(file):
    rng = random.Random(28)
    # Where most rows are, and the header; benchmarks/walls.py flips one bit of every byte.
    size = file.stat().st_size
    places = [(rng.randrange(100), rng.randrange(8)) for _ in range(10)]
    places += [(rng.randrange(size), rng.randrange(8)) for _ in range(80)]
    found = [(byte, bit, what) for byte, bit, what in flips(file, iter(places))]
    assert [one for one in found if one[2] == "unnoticed"] == []
    assert {what for *_, what in found} == {"found", "refused", "the same"}
    assert size % PAGE == 0


def test_the_search_for_flips_would_see_one_that_is_not_noticed(file, monkeypatch):
    good = told(file)
    with raw(file) as connection:
        connection.execute("UPDATE nodes SET text = 'step 8' WHERE row = 3")
    assert fate(file, good) == "found"
    monkeypatch.setattr("refork.tree.verify.seal", lambda table, values: None)
    monkeypatch.setattr("refork.tree.verify.SEALED", ())
    monkeypatch.setattr("refork.tree.tree.verify", lambda *_: iter(()))
    assert fate(file, good) == "unnoticed"


@pytest.mark.parametrize("kind", ["older", "new"])
def test_rows_of_an_older_tree_are_sealed_when_it_is_brought_up_to_date(kind, tmp_path):
    file = tmp_path / "tree.db"
    if kind == "older":
        version_1(file)
    with Tree.open(file) as tree:
        small(tree)
        assert list(tree.verify()) == []
    with sqlite3.connect(file) as connection:
        for table in SEALED:
            lacking = f"SELECT count(*) FROM {table} WHERE seal IS NULL OR length(seal) != 16"
            assert connection.execute(lacking).fetchone() == (0,)
        connection.execute("UPDATE nodes SET created = created + 1 WHERE row = 1")
    connection.close()
    with Tree.open(file, "r") as tree:
        assert any("seal" in finding.what for finding in tree.verify())


def test_a_large_older_tree_is_sealed_page_by_page(tmp_path, monkeypatch):
    file = tmp_path / "tree.db"
    with Tree.open(file) as tree:
        tree.append([NewNode(kind="task", text=f"{n}") for n in range(25)])
    with raw(file) as connection:
        for table in SEALED:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN seal")
        connection.execute("PRAGMA user_version = 2")
    monkeypatch.setattr("refork.tree.seal._PAGE", 7)
    with Tree.open(file) as tree:
        assert list(tree.verify()) == []
        assert len(tree) == 25


def test_every_way_of_writing_seals_what_it_writes(tree):
    """In both stores: nodes of odd types, scores, arms, draws, retirements and copies of them."""
    root = tree.append(step("task", "go", key=np.str_("k"), policy=np.str_("p"), state_key=""))[0]
    judge = tree.add_producer(Producer("judge", config={"n": 1}))
    reader = tree.add_producer(Producer("reader", reads=(judge,)))
    tree.add_scores([Score(root.id, "zero", -0.0, judge, "é"), Score(root.id, "whole", 3, reader)])
    tree.add_scores([Score(root.id, "each", np.array([-0.0, np.inf]), judge)])
    tree.begin_fork(ForkRecord("f", root.id, 1, {"a": 1}, {}, {}, "w", 2**64, -1))
    tree.finish_draws([DrawRecord("f", 0, root.id, "error", "it broke")])
    tree.put_blob(b"state")
    tree.retire(judge, "wrong")
    assert list(tree.verify()) == []
    with Tree.memory() as copy:
        copy.load(tree.records())
        assert list(copy.verify()) == []
        assert {p.id for p in copy.producers(retired=True)} == {judge, reader}
