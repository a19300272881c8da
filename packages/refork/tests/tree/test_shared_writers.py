"""Several writers on one tree of a server: nothing lost, nothing double, whatever fails under way."""

from __future__ import annotations

import multiprocessing as mp
import os
import random
import signal
import threading
import time
from contextlib import contextmanager

import pytest

from refork.errors import DrawConflict, TreeBusy, TreeError
from refork.tree import DrawRecord, ForkRecord, Producer, Score, Tree, node_id
from refork.tree.arms import begin_fork
from refork.tree.insert import PendingNode, insert
from refork.tree.node import NewNode
from refork.tree.postgres import BESIDE_OTHERS
from refork.tree.view import TreeView
from support.postgres import PostgresServer
from tree.tree_builders import step

WRITERS, DRAWS, EVENTS = 8, 24, 4
#: Writers begin as copies of this process, which costs no start-up.
FORK = mp.get_context("fork")


def planted(tree):
    root = tree.append(step("task", "root", key="root"))[0]
    tree.begin_fork(ForkRecord("f", root.id, None, None, {"name": "p"}, {}, None, 0, 7))
    return root, tree.add_producer(Producer("judge"))


def draw(tree, root, judge, numbers):
    """Commit draws of two turns each, with their scores: all of it depends on the number alone."""
    drafts, records, scores = [], [], []
    for n in numbers:
        first = node_id(root, 2, "action", f"d{n}/0")
        last = node_id(first, None, "action", f"d{n}/1")
        drafts += [
            step("action", f"go {n}", root, keep=2, key=f"d{n}/0", snapshot=b"s%d" % (n % 3)),
            step("action", "stop", first, key=f"d{n}/1"),
        ]
        records.append(DrawRecord("f", n, last, "done"))
        scores.append(Score(last, "success", n / 7, judge))
    tree.commit(drafts, records, scores)


def content(tree):
    """All that a tree says, but for times and the order of writing."""
    nodes = sorted((n.id, n.text, n.tokens.tobytes(), n.logprobs.tobytes(), n.snapshot) for n in tree.walk())
    scores = sorted((s.node, s.name, s.value, s.producer) for s in tree.scores())
    return nodes, [(d.draw, d.leaf, d.end) for d in tree.draws("f")], scores, tree.stats().blobs


def work(address, seed):
    """One writer: three quarters of all draws in an order of its own, in batches that cross others'."""
    chance = random.Random(seed)
    mine = chance.sample(range(DRAWS), 3 * DRAWS // 4)
    # Whatever the chance, every draw has a writer.
    mine += [n for n in range(DRAWS) if n % WRITERS == seed and n not in mine]
    with Tree.open(address) as tree:
        root, judge = planted(tree)
        for start in range(0, len(mine), 4):
            draw(tree, root.id, judge, mine[start : start + 4])
        for n in range(EVENTS):
            tree.append(step("observation", f"seen by {seed}: {n}", root.id))


def test_eight_writers_are_as_good_as_one(address):
    processes = [FORK.Process(target=work, args=(address, seed)) for seed in range(WRITERS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * WRITERS
    with Tree.open(address, "r") as tree, Tree.memory() as one:
        root, judge = planted(one)
        draw(one, root.id, judge, range(DRAWS))
        seen = [n for n in tree.children(root) if n.kind == "observation"]
        assert sorted(n.text for n in seen) == sorted(
            f"seen by {w}: {n}" for w in range(WRITERS) for n in range(EVENTS)
        )
        # Ordinals were given without a gap and without a race.
        assert sorted(int(n.key[1:]) for n in seen) == list(range(WRITERS * EVENTS))
        one.append([step("observation", n.text, root.id, key=n.key) for n in seen])
        assert content(tree) == content(one)
        assert list(tree.verify()) == []


@contextmanager
def begun(tree, *drafts):
    """Drafts written in a transaction that is still open within the block."""
    with tree._db._begun(BESIDE_OTHERS):
        insert(tree._db, [PendingNode(draft, 0.0) for draft in drafts])
        yield


def await_waiting(tree, count=1):
    """Return once so many connections wait for a lock of another."""
    for _ in range(2000):
        waiting = tree._db.scalar("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        if waiting >= count:
            return
        time.sleep(0.005)
    raise AssertionError("nobody waits")


class Aside(threading.Thread):
    """A call on another thread; ``result`` is what it returned or raised."""

    def __init__(self, call, *arguments):
        super().__init__()
        self.call, self.arguments, self.result = call, arguments, None
        self.start()

    def run(self):
        try:
            self.result = self.call(*self.arguments)
        except Exception as error:
            self.result = error


@pytest.fixture
def three(address):
    with Tree.open(address) as one, Tree.open(address) as two, Tree.open(address, wait=10) as three:
        yield one, two, three


def test_the_same_draw_by_two_writers_at_once_is_stored_once(three):
    one, two, reader = three
    root = one.append(step("task", "root"))[0]
    drafts = [
        step("action", "abc", root.id, key="d"),
        step("action", "x", node_id(root.id, None, "action", "d")),
    ]
    with begun(one, *drafts):
        other = Aside(two.append, [*drafts, step("action", "more", root.id, key="e")])
        await_waiting(reader)
    other.join()
    # The one without a key is another event; its parent is the row that the first writer made.
    assert [n.text for n in other.result] == ["abc", "x", "more"]
    assert sorted(n.text for n in reader.walk()) == ["abc", "more", "root", "x", "x"]
    assert list(reader.verify()) == []


def test_another_result_for_a_draw_at_once_is_a_conflict(three):
    one, two, reader = three
    root = one.append(step("task", "root"))[0]
    with begun(one, step("action", "abc", root.id, key="d")):
        other = Aside(two.append, step("action", "xyz", root.id, key="d"))
        await_waiting(reader)
    other.join()
    assert isinstance(other.result, DrawConflict)
    assert [n.text for n in reader.children(root)] == ["abc"]


def test_a_draw_whose_first_writer_takes_it_back(three):
    one, two, reader = three
    root = one.append(step("task", "root"))[0]

    def takes_back():
        with begun(one, step("action", "abc", root.id, key="d")):
            other.start()
            await_waiting(reader)
            raise RuntimeError

    other = threading.Thread(target=two.append, args=(step("action", "xyz", root.id, key="d"),))
    with pytest.raises(RuntimeError):
        takes_back()
    other.join()
    assert [n.text for n in reader.children(root)] == ["xyz"]


def test_batches_that_cross_do_not_wait_for_each_other_in_a_circle(three, monkeypatch):
    one, two, reader = three
    root = one.append(step("task", "root"))[0]
    drafts = [step("action", str(n), root.id, key=str(n)) for n in range(40)]
    with begun(reader, drafts[0]):  # both are held until both are under way
        threads = [Aside(one.append, drafts), Aside(two.append, drafts[::-1])]
        await_waiting(reader, 2)
    monkeypatch.setattr("refork.tree.postgres.TRIES", 3)
    for thread in threads:
        thread.join()
        assert len(thread.result) == 40
    assert sum(1 for _ in reader.children(root)) == 40


def test_a_deadlock_is_tried_again(three):
    one, two, reader = three
    digests = {}

    def writes(tree, first, second, barrier):
        def body():
            sql = "INSERT INTO blobs (digest, data) VALUES (?, ?) ON CONFLICT DO NOTHING"
            digests[tree] = digests.get(tree, 0) + 1
            tree._db.write(sql, [(first, b"")])
            if digests[tree] == 1:
                barrier.wait(900)
            tree._db.write(sql, [(second, b"")])

        tree._db.commit(body)

    one._db.run(b"SET deadlock_timeout TO 50")
    two._db.run(b"SET deadlock_timeout TO 50")
    barrier = threading.Barrier(2)
    threads = [Aside(writes, one, b"a", b"b", barrier), Aside(writes, two, b"b", b"a", barrier)]
    for thread in threads:
        thread.join()
        assert thread.result is None
    assert reader.stats().blobs == 2
    # Who was refused may meet the other again before that one is done.
    assert sum(digests.values()) >= 3


def test_who_is_never_first_gives_up(three, monkeypatch):
    one, two, _ = three
    root = one.append(step("task", "root"))[0]
    monkeypatch.setattr("refork.tree.postgres.TRIES", 3)
    drafts = iter(step("observation", str(n), root.id) for n in range(9))
    numbers = type(two._db).numbers

    def late(self, count):
        if self is two._db:
            one.append(next(drafts))
        return numbers(self, count)

    monkeypatch.setattr(type(two._db), "numbers", late)
    with pytest.raises(TreeBusy, match="first again and again"):
        two.append(step("observation", "mine", root.id))
    assert [n.key for n in one.children(root)] == ["#0", "#1", "#2"]


def test_an_import_has_the_tree_alone_and_is_waited_for(three, address):
    one, two, reader = three
    with Tree.open(address, wait=0.05) as hasty:
        with one._db.transaction():
            insert(one._db, [PendingNode(NewNode(kind="task", text="loaded"), 0.0)])
            with pytest.raises(TreeBusy, match="held this tree"):
                hasty.append(NewNode(kind="task", text="hasty"))
            waits = Aside(two.append, NewNode(kind="task", text="waited"))
            await_waiting(reader)
            assert len(reader) == 0
        waits.join()
        assert [n.text for n in reader.tasks()] == ["loaded", "waited"]
        hasty.append(NewNode(kind="task", text="again"))
    assert len(reader) == 3


def test_a_reader_misses_nothing_that_is_committed_out_of_order(three, monkeypatch):
    monkeypatch.setattr("refork.tree.node_reader._PAGE", 3)
    monkeypatch.setattr("refork.tree.scoring._PAGE", 3)
    one, two, reader = three
    root, judge = planted(one)
    early = [step("observation", f"early {n}", root.id, key=f"e{n}") for n in range(8)]
    with begun(one, *early):  # these have the smaller numbers
        draw(two, root.id, judge, range(8))
        before = reader.children(root), reader.walk(), reader.leaves(), reader.scores(), reader.leaves(root)
        first = [next(stream) for stream in before]
        assert reader.outline().total == 17
    late = node_id(root.id, None, "observation", "e0")
    one.add_scores([Score(late, "success", 1.0, judge)])
    counts = [1 + sum(1 for _ in stream) for stream in before]
    # Each shows the tree as it was when it began ...
    assert counts == [8, 17, 8, 8, 8]
    assert all("early" not in getattr(node, "text", "") for node in first)
    # ... and the next one all that was committed meanwhile, with smaller numbers or not.
    assert sum(1 for _ in reader.children(root)) == 16
    assert sum(1 for _ in reader.walk()) == 25
    assert sum(1 for _ in reader.scores()) == 9
    assert reader.outline().total == 25


def test_forks_that_are_committed_out_of_order(three, monkeypatch):
    monkeypatch.setattr("refork.tree.arms._PAGE", 1)
    one, two, reader = three
    root = one.append(step("task", "root"))[0]
    early, *late = (ForkRecord(name, root.id, None, None, {}, {}, None, 0, 0) for name in "efgh")
    with one._db._begun(BESIDE_OTHERS):
        begin_fork(one._db, early)  # this has the smallest number
        for record in late:
            two.begin_fork(record)
        begun = reader.forks()
    assert [fork.id for fork in begun] == ["f", "g", "h"]
    assert [fork.id for fork in reader.forks()] == ["e", "f", "g", "h"]


def test_a_viewer_misses_nothing_that_is_committed_out_of_order(three, monkeypatch):
    one, two, reader = three
    root = one.append(step("task", "root"))[0]
    view = TreeView(reader)
    with begun(one, step("action", "early", root.id, key="e", policy="early")):
        late = two.append(step("action", "late", root.id, key="l", policy="late"))[0]
        end = two.append(step("verdict", "won", late.id))[0]
        before, shape = view.version(), view._shape(None)
        assert (view.policies(), len(view.branches(root.id))) == (["late"], 1)
    early = node_id(root.id, None, "action", "e")
    assert view.version() != before
    assert (view.policies(), len(view.branches(root.id))) == (["early", "late"], 2)
    assert [one.child.id for one in view.branches(late.id)] == [end.id]
    # A node that came after the shape was made has no branches in it, and none of another's.
    monkeypatch.setattr(view, "_shape", lambda score: shape)
    assert (view.branches(early), len(view.branches(late.id))) == ([], 1)


def test_an_export_is_one_moment(three):
    one, two, reader = three
    root, judge = planted(one)
    with begun(one, step("observation", "late", root.id)):
        stream = two.records()
        first = next(stream)
    draw(one, root.id, judge, range(3))
    records = [first, *stream]
    assert [type(record).__name__ for record in records] == ["Producer", "Node", "ForkRecord"]
    assert sum(1 for _ in reader.records()) > 3


def dies(address, told):
    with Tree.open(address) as tree:
        root = node_id(None, None, "task", "#0")
        with begun(tree, step("action", "abc", root, key="d"), step("action", "def", root, key="e")):
            told.set()
            time.sleep(60)


def test_a_writer_killed_within_a_transaction_leaves_nothing(three, address):
    one, _, reader = three
    root = one.append(step("task", "root"))[0]
    told = FORK.Event()
    writer = FORK.Process(target=dies, args=(address, told))
    writer.start()
    assert told.wait(900)
    other = Aside(one.append, step("action", "mine", root.id, key="d"))
    await_waiting(reader)
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    other.join()
    assert [n.text for n in reader.children(root)] == ["mine"]
    assert list(reader.verify()) == []


def test_a_server_that_stops_under_way():
    pytest.importorskip("psycopg")
    try:
        server = PostgresServer()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    try:
        with Tree.open(server.address("t")) as tree:
            root = tree.append(step("task", "root"))[0]

            def stopped():
                with begun(tree, step("action", "abc", root.id, key="d")):
                    server.stop(signal.SIGQUIT)
                    tree.append(step("action", "def", root.id, key="e"))

            with pytest.raises(TreeError, match="went away"):
                stopped()
            with pytest.raises(TreeError, match="gives no connection"):
                len(tree)
            server.start()
            # A connection is made anew, and what was begun is not there in part.
            assert [n.text for n in tree.walk()] == ["root"]
            server.stop()
            server.start()
            tree.append([step("action", "abc", root.id, key="d"), step("action", "def", root.id, key="e")])
            assert sorted(n.text for n in tree.children(root)) == ["abc", "def"]
            assert list(tree.verify()) == []
    finally:
        server.close()
