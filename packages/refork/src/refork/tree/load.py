"""Copying records into a tree: import and merge, all or nothing."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, final

from refork.errors import BadInput
from refork.tree.arms import all_draws, begin_fork, finish_draws, forks
from refork.tree.codec import SELECT, content, difference, draft_of, row_of
from refork.tree.database import Database, Row, pages
from refork.tree.insert import BLOBS, PendingNode, insert_new, need_blobs, packed, put_blob
from refork.tree.node import NewNode, Node, node_id
from refork.tree.node_reader import stream
from refork.tree.records import Blob, Position, Record, Remark
from refork.tree.score import DrawRecord, ForkRecord, Producer, Score
from refork.tree.scoring import (
    Retired,
    add_producer,
    add_scores,
    producers,
    restore_retirements,
    retire,
)
from refork.tree.scoring import retirements as retirements_of
from refork.tree.scoring import scores as scores_of

_BATCH: Final = 1000
#: Places kept of one remark, and remarks told apart before the others are counted together.
_PLACES, _REMARKS = 3, 200
_OTHERS: Final = "other reasons"
#: What records refer to comes first; within a batch they are written in this order. The texts are what a copy
#: counts them as, printed as JSON, whatever the classes are called.
_ORDER: Final[dict[type, str]] = {
    Producer: "producer",
    NewNode: "draft",
    Node: "node",
    ForkRecord: "forkrecord",
    DrawRecord: "drawrecord",
    Score: "score",
    Retired: "retired",
}


@final
@dataclass(slots=True)
class Noted:
    """A remark with how often it was made and the first places."""

    kind: Literal["skipped", "lost", "redacted"]
    what: str
    count: int = 0
    places: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Loaded:
    """What a copy read and what was new; ``renumbered`` ordinals were taken by other events here.

    ``remarks`` say what was not copied and why, the most frequent first. ``files``: how many of each format
    were read, where a folder was.
    """

    read: dict[str, int] = field(default_factory=dict)
    nodes: int = 0
    scores: int = 0
    forks: int = 0
    draws: int = 0
    renumbered: int = 0
    remarks: list[Noted] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)

    def add(self, other: Loaded) -> None:
        """Count what another copy did."""
        for name, count in other.read.items():
            self.read[name] = self.read.get(name, 0) + count
        for name in ("nodes", "scores", "forks", "draws", "renumbered"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for noted in other.remarks:
            # Each place below counts one again: this is what has no place of its own.
            self.note(Remark(noted.kind, noted.what, None, noted.count - len(noted.places)))
            for place in noted.places:
                self.note(Remark(noted.kind, noted.what, place))

    def note(self, remark: Remark) -> None:
        """Count a remark."""
        found = self._noted(remark.kind, remark.what)
        if found is None:
            # The entries that count the others together come on top of the limit, one for each kind.
            what = remark.what if len(self.remarks) < _REMARKS else _OTHERS
            found = self._noted(remark.kind, what) or Noted(remark.kind, what)
            if not found.count:
                self.remarks.append(found)
        found.count += remark.count
        if remark.where is not None and len(found.places) < _PLACES:
            found.places.append(remark.where)

    def _noted(self, kind: str, what: str) -> Noted | None:
        return next((one for one in self.remarks if (one.kind, one.what) == (kind, what)), None)

    def count(self, kind: Literal["skipped", "lost", "redacted"]) -> int:
        """How many remarks of a kind."""
        return sum(noted.count for noted in self.remarks if noted.kind == kind)


def records(db: Database) -> Iterator[Record]:
    """Everything a tree holds now, each record after those it refers to."""
    with db.snapshot() as frozen:
        for data, *_ in pages(frozen, BLOBS, 1):
            yield Blob(data)
        yield from producers(frozen, retired=True)
        yield from stream(frozen)
        yield from forks(frozen, None)
        yield from all_draws(frozen)
        yield from scores_of(frozen, retired=True)
        yield from retirements_of(frozen)


@final
class Loader:
    """Writes records inside the open transaction.

    Ids stay what they are. Two trees that grew apart may have given one ordinal to different
    events; the newcomer then takes the next free ordinal, and all that refers to it follows. A key
    that is not an ordinal names one draw, and another content for it is a conflict. Where ``strict``, an item
    that a reader skipped is an error; else it is counted, and only a file of which nothing is left is one.
    """

    def __init__(self, db: Database, strict: bool = True) -> None:
        self.db, self.strict = db, strict
        self.result = Loaded()
        self._pending: dict[type, list[Any]] = {}
        self._renamed: dict[str, str] = {}
        self._taken: set[str] = set()
        self._next: dict[tuple[str | None, int | None, str], int] = {}
        self._siblings: dict[tuple[str | None, int | None, str], dict[bytes, list[str]]] = {}

    def load(self, items: Iterable[Record]) -> Loaded:
        """Write all records, in order."""
        for _ in self.parts(items):
            pass
        return self.finish()

    def parts(self, items: Iterable[Record]) -> Iterator[Position]:
        """Write records; at each position of their file, once all before it are written, that position.

        Raises:
            BadInput: an item was skipped and this is strict, or something that is no record.
        """
        waiting = 0
        for item in items:
            if isinstance(item, Remark):
                if self.strict and item.kind == "skipped":
                    raise BadInput(item.what, where=item.where)
                self.result.note(item)
                continue
            if isinstance(item, Position):
                self._flush()
                waiting = 0
                # The caller commits here, so all that was read before must be written by now.
                yield item
                continue
            name = "blob" if isinstance(item, Blob) else _ORDER.get(type(item))
            if name is None:
                raise BadInput(f"a {type(item).__name__} is not a record of a tree")
            self.result.read[name] = self.result.read.get(name, 0) + 1
            if isinstance(item, Blob):
                # Snapshots may be large: none waits.
                put_blob(self.db, item.data)
                continue
            self._pending.setdefault(type(item), []).append(item)
            waiting += 1
            if waiting >= _BATCH:
                self._flush()
                waiting = 0
        self._flush()

    def finish(self) -> Loaded:
        """What was read and written, once all is.

        Raises:
            BadInput: every item was skipped.
        """
        skipped = next((noted for noted in self.result.remarks if noted.kind == "skipped"), None)
        if skipped is not None and not self.result.read:
            raise BadInput(skipped.what, where=next(iter(skipped.places), None), hint="nothing was imported")
        # What one tree retired, producers of the other may have read.
        for item in retirements_of(self.db):
            retire(self.db, item.producer, item.reason, item.at)
        self.result.remarks.sort(key=lambda noted: -noted.count)
        return self.result

    def _flush(self) -> None:
        for kind in _ORDER:
            if batch := self._pending.pop(kind, None):
                self._write(kind, batch)

    def _write(self, kind: type, batch: list[Any]) -> None:
        if kind is Node:
            self._nodes(batch)
        elif kind is NewNode:
            self._insert([PendingNode(new_node, time.time()) for new_node in batch])
        elif kind is Producer:
            for producer in batch:
                add_producer(self.db, producer, copying=True)
        elif kind is ForkRecord:
            self._forks(batch)
        elif kind is DrawRecord:
            moved = [replace(draw, leaf=self._name(draw.leaf)) for draw in batch]
            self.result.draws += finish_draws(self.db, moved)
        elif kind is Score:
            scored = [replace(score, node=self._name(score.node)) for score in batch]
            self.result.scores += add_scores(self.db, scored, copying=True)
        else:
            restore_retirements(self.db, batch)

    def _forks(self, batch: list[ForkRecord]) -> None:
        before = self.db.scalar("SELECT count(row) FROM forks")
        for fork in batch:
            begin_fork(self.db, replace(fork, node=self._name(fork.node)))
        self.result.forks += self.db.scalar("SELECT count(row) FROM forks") - before

    def _name(self, id_: str) -> str:
        return self._renamed.get(id_, id_)

    def _moved(self, new_node: NewNode) -> NewNode:
        new = None if new_node.parent is None else self._renamed.get(new_node.parent)
        return new_node if new is None else replace(new_node, parent=new)

    def _insert(self, entries: list[PendingNode]) -> None:
        self.result.nodes += insert_new(self.db, entries)

    def _nodes(self, batch: list[Node]) -> None:
        digests = {node.id: None if node.snapshot is None else bytes.fromhex(node.snapshot) for node in batch}
        need_blobs(self.db, (digest for digest in digests.values() if digest is not None))
        query = f"SELECT {SELECT} FROM nodes n WHERE n.id IN ({{keys}})"
        present = {row[1].hex(): row for row in self.db.lookup(query, packed(digests))}
        entries: list[PendingNode] = []
        for node in batch:
            if node.id != node_id(node.parent, node.keep, node.kind, node.key):
                raise BadInput("this id is not the digest of its place", where=f"node {node.id[:12]}")
            new_node = self._moved(draft_of(node))
            entry = PendingNode(new_node, node.created, digests[node.id])
            if node.key.startswith("#"):
                entry = self._ordinal(node, entry, present)
            elif new_node.parent != node.parent:
                self._renamed[node.id] = node_id(new_node.parent, node.keep, node.kind, node.key)
            entries.append(entry)
        self._insert(entries)

    def _ordinal(self, node: Node, entry: PendingNode, present: dict[str, Row]) -> PendingNode:
        """The entry under an ordinal that is free or says the same."""
        new_node = entry.new_node
        target = node_id(new_node.parent, new_node.keep, new_node.kind, node.key)
        new = self._row(new_node, entry)
        if target == node.id:
            old = present.get(target)
        else:
            old = self.db.one(f"SELECT {SELECT} FROM nodes n WHERE n.id = ?", (bytes.fromhex(target),))
        # An ordinal names no draw: only what the event says can tell whether it is the one that is here.
        if target not in self._taken and (old is None or difference(old, new) is None):
            self._taken.add(target)
            if target != node.id:
                self._renamed[node.id] = target
            return entry
        group = (new_node.parent, new_node.keep, new_node.kind)
        # Two equal events of the source need two nodes here: what one took is not there for the other.
        same = self._equal_siblings(group).get(_digest(new), [])
        while same and same[0] in self._taken:
            same.pop(0)
        if same:
            target = same.pop(0)
            key = str(self.db.scalar("SELECT key FROM nodes WHERE id = ?", (bytes.fromhex(target),)))
        else:
            key, target = self._free(group)
        self._taken.add(target)
        self._renamed[node.id] = target
        self.result.renumbered += 1
        return replace(entry, new_node=replace(new_node, key=key))

    def _row(self, new_node: NewNode, entry: PendingNode) -> Row:
        place = (0, b"", None, new_node.keep, new_node.kind, new_node.key, 0)
        body = content(new_node, f"{new_node.kind} {new_node.key}")
        return row_of(place, body, entry.snapshot, entry.created)

    def _free(self, group: tuple[str | None, int | None, str]) -> tuple[str, str]:
        number = self._next.get(group, 0)
        while True:
            target = node_id(*group, f"#{number}")
            known = self.db.one("SELECT 1 FROM nodes WHERE id = ?", (bytes.fromhex(target),))
            if target not in self._taken and known is None:
                self._next[group] = number + 1
                return f"#{number}", target
            number += 1

    def _equal_siblings(self, group: tuple[str | None, int | None, str]) -> dict[bytes, list[str]]:
        if group not in self._siblings:
            parent, keep, kind = group
            # Read once for a group: what this load writes later is kept apart by ``_taken``.
            found: dict[bytes, list[str]] = {}
            row = None
            if parent is not None:
                row = self.db.scalar("SELECT row FROM nodes WHERE id = ?", (bytes.fromhex(parent),))
            if parent is None or row is not None:
                sql = f"SELECT {SELECT} FROM nodes n WHERE n.parent IS ? AND n.keep IS ? AND n.kind = ?"
                for sibling in self.db.rows(sql + " AND n.key LIKE '#%' ORDER BY n.row", (row, keep, kind)):
                    found.setdefault(_digest(sibling), []).append(sibling[1].hex())
            self._siblings[group] = found
        return self._siblings[group]


def _digest(row: Row) -> bytes:
    """Digest of what a row says, place and times aside."""
    # One event that was recorded twice may differ in both: a cost holds seconds.
    cost, created = len(row) - 3, len(row) - 2
    said = [value for place, value in enumerate(row) if place > 6 and place not in (cost, created)]
    return hashlib.blake2b(repr(said).encode(), digest_size=16).digest()
