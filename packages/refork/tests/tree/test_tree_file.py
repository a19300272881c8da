from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from refork.errors import DiskFull, NotATree, TreeBusy, TreeError, TreeVersion
from refork.tree import NewNode, Producer, Score, Tree
from refork.tree.schema import FIELDS, VERSION, columns
from support.modes import check_modes
from tree.tree_builders import seen, small, step, version_1


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tree.db"


def test_a_tree_outlives_its_process(file):
    with Tree.open(file) as tree:
        _, _, fork = small(tree)
        assert tree.file == file
    assert not list(file.parent.glob("*.new*"))
    with Tree.open(str(file), "r") as tree:
        assert seen(tree.node(fork.id)) == seen(fork)
        assert len(tree) == 6


def test_modes(file):
    check_modes(file, "no such file")


def test_where_nothing_can_be_made(tmp_path):
    with pytest.raises(TreeError):
        Tree.open(tmp_path / "none" / "tree.db")
    with pytest.raises(NotATree, match="a folder"):
        Tree.open(tmp_path)


def test_a_folder_that_may_not_be_written(file, monkeypatch):
    with Tree.open(file) as tree:
        small(tree)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with Tree.open(file, "r") as tree:
        assert len(tree) == 6
        assert not list(file.parent.glob("*-wal"))


def test_files_that_are_not_ours(file):
    file.write_bytes(b"")
    with pytest.raises(NotATree, match="empty"):
        Tree.open(file)
    file.write_text("not a database, but long enough to look like one " * 100)
    for mode in ("a", "r"):
        with pytest.raises(NotATree):
            Tree.open(file, mode)
    file.unlink()
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    before = file.read_bytes()
    with pytest.raises(NotATree, match="not a Refork tree"):
        Tree.open(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_a_truncated_file(file, share):
    with Tree.open(file) as tree:
        small(tree)
        tree.append([NewNode(kind="task", text="x" * 3000) for _ in range(50)])
    data = file.read_bytes()
    file.write_bytes(data[: int(share * len(data))])
    for mode in ("a", "r"):
        with pytest.raises(NotATree, match="damaged"):
            Tree.open(file, mode)


def test_a_damaged_page_is_found(file):
    with Tree.open(file) as tree:
        small(tree)
        tree.append([NewNode(kind="task", text="x" * 3000) for _ in range(50)])
    data = bytearray(file.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = b"\xff" * 4096
    file.write_bytes(data)
    with Tree.open(file, "r") as tree:
        findings = list(tree.verify())
    assert findings
    assert all(f.severity == "error" for f in findings)


def test_an_older_file_is_migrated(file):
    id_ = version_1(file)
    with pytest.raises(TreeVersion, match="--migrate"):
        Tree.open(file, "r")
    with Tree.open(file) as tree:
        assert tree.stats().version == VERSION
        assert tree.node(id_).text == "old"
        (old,) = tree.scores()
        assert (old.value, old.reason) == (1.0, None)
        new = tree.add_producer(Producer("judge", "2"))
        tree.add_scores([Score(id_, "success", 0.0, new, "looked again")])
        assert [s.reason for s in tree.scores()] == [None, "looked again"]
        assert list(tree.verify()) == []
    with sqlite3.connect(file) as raw:
        for table in {field.table for field in FIELDS}:
            found = [row[1] for row in raw.execute(f"PRAGMA table_info({table})")]
            assert sorted(found) == sorted(columns(table))
    raw.close()


def test_a_newer_file_is_refused(file):
    Tree.open(file).close()
    with sqlite3.connect(file) as raw:
        raw.execute(f"PRAGMA user_version = {VERSION + 1}")
    raw.close()
    for mode in ("a", "r"):
        with pytest.raises(TreeVersion, match="newer"):
            Tree.open(file, mode)


def test_a_failed_migration_changes_nothing(file, monkeypatch):
    version_1(file)
    steps = {1: ("ALTER TABLE scores ADD COLUMN reason TEXT", "ALTER TABLE nothing ADD COLUMN x TEXT")}
    monkeypatch.setattr("refork.tree.sqlite.MIGRATIONS", steps)
    with pytest.raises(TreeError, match="nothing"):
        Tree.open(file)
    monkeypatch.undo()
    with Tree.open(file) as tree:
        assert tree.stats().version == VERSION


def test_every_field_is_documented():
    assert all(field.doc.endswith(".") and len(field.doc) > 10 for field in FIELDS)
    assert len({(field.table, field.name) for field in FIELDS}) == len(FIELDS)


def test_another_writer_is_waited_for_and_then_named(file):
    with Tree.open(file) as first, Tree.open(file, wait=0.05) as second:
        first._db._connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(TreeBusy, match="another process"):
            second.append(NewNode(kind="task"))
        assert len(second) == 0
        first._db._connection.execute("ROLLBACK")
        assert len(second.append(NewNode(kind="task"))) == 1


_FULL = textwrap.dedent(
    """
    import resource, signal, sys
    from pathlib import Path
    from refork.errors import DiskFull
    from refork.tree import NewNode, Tree
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    tree = Tree.open(sys.argv[1])
    tree.append([NewNode(kind="task", text="kept") for _ in range(50)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    for _ in range(2):
        try:
            tree.append([NewNode(kind="task", text="x" * 5000) for _ in range(200)])
        except DiskFull as error:
            print(error.what)
    assert len(tree) == 50, len(tree)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    tree.append([NewNode(kind="task", text="x" * 5000) for _ in range(200)])
    assert len(tree) == 250
    """
)


def test_a_full_disk_loses_nothing(file):
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused a write") == 2
    with Tree.open(file, "r") as tree:
        assert len(tree) == 250
        assert list(tree.verify()) == []


def test_a_full_database_loses_nothing(file):
    with Tree.open(file) as tree:
        tree.append(NewNode(kind="task"))
        pages = tree._db.scalar("PRAGMA page_count")
        tree._db.scalar(f"PRAGMA max_page_count = {pages + 3}")
        with pytest.raises(DiskFull):
            tree.append([NewNode(kind="task", text="x" * 5000) for _ in range(50)])
        assert len(tree) == 1
        tree._db.scalar("PRAGMA max_page_count = 1000000")
        assert len(tree.append([NewNode(kind="task", text="x" * 5000) for _ in range(50)])) == 50


_WRITER = textwrap.dedent(
    """
    import sys
    from refork.tree import NewNode, Tree
    with Tree.open(sys.argv[1]) as tree:
        number = len(tree)
        while True:
            tree.append([NewNode(kind="task", key=f"{number + i}", text="x" * 50) for i in range(7)])
            number += 7
            print(number, flush=True)
    """
)


def test_kill_9_loses_nothing_that_was_committed(place):
    for kill in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(place)], stdout=subprocess.PIPE, text=True
        )
        told = 0
        for _ in range(3 + 5 * kill):
            told = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
        writer.wait()
        writer.stdout.close()
        told = max([told, *(int(line) for line in rest[:-1])])
        with Tree.open(place) as tree:
            assert len(tree) >= told
            assert len(tree) % 7 == 0
            assert list(tree.verify()) == []


_READER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from refork.tree import Tree
    rounds = 0
    with Tree.open(sys.argv[1], "r") as tree:
        while not Path(sys.argv[2]).exists() or rounds == 0:
            nodes = list(tree.walk())
            # Batches of ten are all or nothing, for readers too.
            assert len(nodes) % 10 == 1, len(nodes)
            assert len(tree.path(nodes[-1])) == nodes[-1].depth + 1
            rounds += 1
    """
)


def _start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _end(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        _, errors = process.communicate(timeout=900)
        assert process.returncode == 0, errors


def test_readers_beside_a_writer(file, tmp_path):
    stop = tmp_path / "stop"
    with Tree.open(file) as tree:
        root = tree.append(step("task", "root"))[0]
        readers = [_start(_READER, file, stop) for _ in range(2)]
        for _ in range(40):
            tree.append([step("action", "abc", root.id) for _ in range(10)])
        stop.touch()
        _end(readers)
        assert len(tree) == 401


_PAIR = textwrap.dedent(
    """
    import sys
    from refork.tree import NewNode, Tree
    with Tree.open(sys.argv[1]) as tree:
        for i in range(30):
            same = NewNode(kind="task", text=sys.argv[2])
            tree.append([NewNode(kind="task", key=f"{sys.argv[2]}/{i}"), same])
    """
)


def test_two_writers_that_create_the_same_tree(place):
    _end([_start(_PAIR, place, name) for name in "ab"])
    with Tree.open(place, "r") as tree:
        assert len(tree) == 120
        assert sorted(int(n.key[1:]) for n in tree.tasks() if n.key.startswith("#")) == list(range(60))
