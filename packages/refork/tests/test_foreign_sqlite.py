"""Other SQLite files from strangers: logs, invented worlds, and what an import leaves beside a tree."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading

import pytest

from refork.errors import BadInput
from refork.formats.importing import Checkpoint
from refork.formats.llm_logs import LLMLogs
from refork.tree import Tree
from support.hostile_trees import hot_journal, raw

_ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"


@pytest.mark.parametrize(
    "made",
    [
        f"CREATE VIEW responses AS {_ENDLESS} x AS id, x AS prompt, x AS response FROM n",
        "CREATE VIRTUAL TABLE responses USING fts5(id, prompt, response)",
    ],
)
def test_a_log_whose_table_is_none_is_not_read(made, tmp_path):
    file = tmp_path / "logs.db"
    with raw(file) as connection:
        connection.execute(made)
    with pytest.raises(BadInput, match="no tables of llm"):
        list(LLMLogs().read(file))


def test_a_long_read_of_a_log_hears_ctrl_c(tmp_path, monkeypatch):
    file = tmp_path / "logs.db"
    with raw(file) as connection:
        connection.execute("CREATE TABLE responses (id TEXT)")

    def endless(db):
        db.execute(f"{_ENDLESS} count(*) FROM n").fetchone()

    monkeypatch.setattr("refork.formats.llm_logs._tables", endless)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(LLMLogs().read(file))
    timer.join()


@pytest.mark.parametrize("how", ["a journal that names another file", "a view", "a trigger"])
def test_what_a_stranger_left_of_an_import_does_nothing(how, tmp_path):
    source = tmp_path / "log.jsonl"
    source.write_text("{}\n" * 9)
    with Tree.open(tmp_path / "tree.db") as tree:
        with Checkpoint.open(tree, source, "way") as point:
            left = point._file
        left.unlink(missing_ok=True)
        with raw(left) as connection:
            if how == "a view":
                connection.execute(f"CREATE VIEW at AS {_ENDLESS} x AS body FROM n")
            else:
                connection.execute("CREATE TABLE at (body TEXT)")
                connection.execute("CREATE TABLE victim (x)")
                connection.execute("INSERT INTO victim VALUES (1)")
            if how == "a trigger":
                connection.execute("CREATE TRIGGER t AFTER INSERT ON at BEGIN DELETE FROM victim; END")
        if how == "a journal that names another file":
            hot_journal(left)
        with Checkpoint.open(tree, source, "way") as point:
            assert point.loaded.nodes == 0
            if how == "a trigger":
                with contextlib.suppress(Exception):
                    point.save(point.start, point.loaded)
    if how == "a journal that names another file":
        assert (tmp_path / "victim").exists()
    if how == "a trigger":
        with contextlib.closing(sqlite3.connect(left)) as connection:
            assert connection.execute("SELECT count(*) FROM victim").fetchone() == (1,)
