"""Trees from strangers: what is in them does not run, and what SQLite would do beside them is not done."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from refork.errors import NotATree, TreeError
from refork.foreign_sqlite import harden
from refork.tree import NewNode, Tree, fresh
from refork.tree.sqlite import is_database
from support.hostile_trees import endless_pages, hostile, raw, small

CASES = hostile()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return small(tmp_path_factory.mktemp("good") / "good.db")


def everything(folder):
    """Every file of a folder, and what is in it."""
    return {
        path.name: path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        for path in folder.iterdir()
    }


def made(case, source, folder):
    folder.mkdir()
    file = folder / "tree.db"
    shutil.copyfile(source, file)
    case.make(file)
    return file


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_tree_is_refused_by_name_and_does_nothing(case, source, tmp_path, monkeypatch):
    monkeypatch.setattr("refork.foreign_sqlite._PATIENCE", 0.0)
    bare = made(case, source, tmp_path / "bare")
    assert case.effect(bare), "SQLite alone does not do this: the test shows nothing"
    file = made(case, source, tmp_path / "ours")
    before = everything(file.parent)
    for mode in ("a", "r", "a"):
        if mode == "r" and case.said == "tree.db has 2 names":
            continue  # reading changes nothing that has another name
        with pytest.raises(TreeError, match=case.said) as met:
            Tree.open(file, mode)
        assert str(file) in str(met.value)
    if case.name == "a trigger is only in the journal":
        # A sound journal is folded into its file by whoever closes it last.
        with raw(file) as connection:
            assert connection.execute("SELECT count(*) FROM nodes").fetchone() == (5,)
    else:
        assert everything(file.parent) == before


def test_what_is_done_to_the_tables_of_an_open_tree_is_seen_before_the_next_write(tmp_path):
    file = small(tmp_path / "tree.db")
    with Tree.open(file) as tree:
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute(
                "CREATE TRIGGER tidy AFTER INSERT ON nodes BEGIN DELETE FROM nodes WHERE row = 5; END"
            )
            with pytest.raises(NotATree, match="tidy"):
                tree.append(NewNode(kind="task"))
            assert len(tree) == 5
            other.execute("DROP TRIGGER tidy")
        tree.append(NewNode(kind="task"))
        assert len(tree) == 6


def test_no_trigger_runs_and_no_file_is_attached_even_where_nothing_was_compared(tmp_path):
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("CREATE TABLE u (x)")
        connection.execute("INSERT INTO u VALUES (1)")
        connection.execute("CREATE TRIGGER tidy AFTER INSERT ON t BEGIN DELETE FROM u; END")
        harden(connection)
        with contextlib.suppress(sqlite3.Error):
            connection.execute("INSERT INTO t VALUES (1)")
        assert connection.execute("SELECT count(*) FROM u").fetchone() == (1,)
        assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)
        with pytest.raises(sqlite3.OperationalError, match="too many attached"):
            connection.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
    assert not (tmp_path / "other.db").exists()


def test_a_tree_is_still_opened_by_a_link_and_in_any_journal_mode(source, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    shutil.copyfile(source, tmp_path / "elsewhere" / "real.db")
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "elsewhere" / "real.db")
    with raw(link) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    with Tree.open(link, "r") as tree:
        assert len(tree) == 5
    with Tree.open(link) as tree:
        tree.append(NewNode(kind="task"))
        # A rollback journal would be refused on the next opening.
        assert tree._db.scalar("PRAGMA journal_mode") == "wal"
        assert tree._db.size() > (tmp_path / "elsewhere" / "real.db").stat().st_size


def test_a_journal_that_a_writer_is_just_done_with_is_waited_for(source, tmp_path):
    file = tmp_path / "tree.db"
    shutil.copyfile(source, file)
    journal = Path(f"{file}-journal")
    journal.write_bytes(b"x" * 600)
    threading.Timer(0.05, journal.unlink).start()
    with Tree.open(file) as tree:
        assert len(tree) == 5


def test_an_empty_journal_changes_nothing(source, tmp_path):
    file = tmp_path / "tree.db"
    shutil.copyfile(source, file)
    Path(f"{file}-journal").touch()
    with Tree.open(file, "r") as tree:
        assert len(tree) == 5


def test_a_sparse_file_of_terabytes_is_opened_and_checked_like_a_small_one(source, tmp_path):
    file = tmp_path / "tree.db"
    shutil.copyfile(source, file)
    pages = 0x3FFF_FFFE
    with file.open("r+b") as out:
        out.seek(28)
        out.write(pages.to_bytes(4, "big"))
        try:
            out.truncate(pages * 4096)
        except OSError:
            pytest.skip("this file system holds no file of 4 TB")
    with Tree.open(file, "r") as tree:
        assert len(tree) == 5
        assert any("never used" in finding.what for finding in tree.verify())


def test_a_statement_without_end_hears_ctrl_c(source):
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    with Tree.open(source, "r") as tree:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            tree._db.scalar(endless)
        timer.join()
        assert len(tree) == 5


def test_rows_without_end_are_found_and_counting_them_hears_ctrl_c(tmp_path):
    file = small(tmp_path / "tree.db")
    with raw(file) as connection:
        (top,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'nodes'").fetchone()
    endless_pages(file, top, bytes([2, 0]))
    with Tree.open(file, "r") as tree:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            # Of an index they would be the same; those of a table are made more easily.
            tree._db.scalar("SELECT count(row) FROM nodes NOT INDEXED")
        timer.join()
        assert any("damaged" in finding.what for finding in tree.verify())


def test_a_write_that_waits_for_another_hears_ctrl_c(tmp_path):
    file = small(tmp_path / "tree.db")
    with Tree.open(file) as tree, raw(file) as other:
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            tree.append(NewNode(kind="task"))
        timer.join()
        other.execute("ROLLBACK")
        assert len(tree.append(NewNode(kind="task"))) == 1


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_tree_that_is_no_longer_there_takes_no_writes(how, source, tmp_path):
    file = small(tmp_path / "tree.db")
    with Tree.open(file) as tree:
        shutil.copyfile(source, tmp_path / "other.db")
        if how == "deleted":
            file.unlink()
        else:
            (tmp_path / "other.db").replace(file)
        with pytest.raises(TreeError, match=r"deleted or replaced.*a file without a name"):
            tree.append(NewNode(kind="task", text="lost"))
        with pytest.raises(TreeError, match="deleted or replaced"):
            list(tree.records())
        # What was read before can still be; nothing of the refused write is in either file.
        assert len(tree) == 5
    for left in ("-wal", "-shm"):
        Path(f"{file}{left}").unlink(missing_ok=True)
    with Tree.open(file) as tree:
        assert "lost" not in {node.text for node in tree.walk()}
        assert len(tree.append(NewNode(kind="task", text="kept"))) == 1


_MAKER = """
import sys, time
from pathlib import Path
from refork.tree import fresh
def build(file):
    print(file, flush=True)
    time.sleep(60)
fresh.make(Path(sys.argv[1]), build)
"""


def test_what_killed_makers_left_is_removed_and_what_is_being_made_is_not(source, tmp_path):
    file = tmp_path / "tree.db"
    makers = [
        subprocess.Popen([sys.executable, "-c", _MAKER, str(file)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        dead, alive = (Path(maker.stdout.readline().strip()) for maker in makers)
        makers[0].kill()
        makers[0].wait()
        Path(f"{dead}-wal").write_bytes(b"x")
        mine = tmp_path / f".tree.db.{'x' * 32}.new"
        mine.write_bytes(b"somebody's")
        shutil.copyfile(source, file)
        Tree.open(file, "r").close()
        assert dead.exists()  # reading changes nothing
        Tree.open(file).close()
        assert not dead.exists()
        assert not Path(f"{dead}-wal").exists()
        assert alive.exists()
        assert mine.exists()
    finally:
        for maker in makers:
            maker.kill()
            maker.wait()
            maker.stdout.close()


def test_a_maker_that_was_killed_at_the_very_end_leaves_no_second_name(tmp_path):
    file = small(tmp_path / "tree.db")
    left = tmp_path / f".tree.db.{'a' * 32}.new"
    os.link(file, left)
    with Tree.open(file) as tree:
        assert not left.exists()
        assert len(tree) == 5


def test_a_file_that_was_swept_before_it_was_locked_is_made_anew(tmp_path, monkeypatch):
    file, lock, seen = tmp_path / "tree.db", fresh._lock, []

    def first_swept(handle):
        if not seen:
            seen.extend(tmp_path.glob(".tree.db.*.new"))
            fresh.sweep(file)
        lock(handle)

    monkeypatch.setattr(fresh, "_lock", first_swept)
    with Tree.open(file) as tree:
        tree.append(NewNode(kind="task"))
    assert seen
    assert not list(tmp_path.glob(".tree.db.*.new"))


def test_a_pipe_is_no_database_and_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert not is_database(tmp_path / "pipe")
