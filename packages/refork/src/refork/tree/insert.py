"""Writing nodes: where each draft goes, which are there already, and one batch for the rest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from refork.errors import BadInput, BadPoint, DrawConflict, UnknownNode
from refork.tree.codec import SELECT, check_numbers, content, difference, row_of
from refork.tree.database import Database, Row
from refork.tree.node import NewNode, node_id
from refork.tree.seal import seal_node

#: Snapshots may be large: they are read one at a time.
BLOBS: Final = "SELECT data, digest, row FROM blobs WHERE row > ? ORDER BY row"


@dataclass(frozen=True, slots=True)
class PendingNode:
    """A draft to write; ``created`` and the blob's ``snapshot`` digest are given when it is copied."""

    new_node: NewNode
    created: float
    snapshot: bytes | None = None


@dataclass(frozen=True, slots=True)
class ParentRow:
    """What a child needs to know of its parent; ``row`` is 0 while that is not decided."""

    row: int
    depth: int
    length: int | None


def parent_rows(db: Database, ids: Iterable[str]) -> dict[str, ParentRow]:
    """Rows, depths and token counts of the nodes that exist."""
    sql = "SELECT id, row, depth, length(tokens) / 4 FROM nodes WHERE id IN ({keys})"
    return {
        id_.hex(): ParentRow(row, depth, length) for id_, row, depth, length in db.lookup(sql, packed(ids))
    }


def packed(ids: Iterable[str]) -> list[bytes]:
    """Full ids as stored; one that cannot be an id is unknown.

    Raises:
        UnknownNode: not 32 hexadecimal digits.
    """
    out = []
    for id_ in ids:
        try:
            raw = bytes.fromhex(id_)
        except (ValueError, TypeError) as error:
            raise UnknownNode(f"{id_!r} is not a node's id") from error
        if len(raw) != 16:
            raise UnknownNode(f"{id_!r} is not a whole node id", hint="an id has 32 hexadecimal digits")
        out.append(raw)
    return out


def normal_keep(keep: int | None, length: int | None, where: str) -> int | None:
    """``keep`` with "all of it" as None.

    Raises:
        BadPoint: negative, beyond the parent's tokens, or the parent has none.
    """
    if keep is None:
        return None
    if isinstance(keep, bool) or not isinstance(keep, int):
        raise BadPoint(f"keep is {keep!r}, not a whole number", where=where)
    if length is None:
        raise BadPoint(
            f"keep is {keep}, but the parent records no token ids",
            where=where,
            hint="keep=None stands for the whole parent",
        )
    if not 0 <= keep <= length:
        raise BadPoint(f"keep is {keep}; the parent has {length} tokens", where=where)
    # One spelling for "all": the id of a child is a digest of it.
    return None if keep == length else keep


@final
class _Batch:
    """One append: addresses every draft, then writes those that are new."""

    def __init__(self, db: Database, entries: Sequence[PendingNode]) -> None:
        self.db = db
        self.entries = entries
        self.parents = parent_rows(db, {e.new_node.parent for e in entries if e.new_node.parent is not None})
        self.stored = set(self.parents)
        self.here: dict[str, Row] = {}
        self.ordinals: dict[tuple[str | None, int | None, str], int] = {}
        # Keyed drafts may be stored already; one query for all of them asks, once ids are known.
        self.unsure: set[str] = set()
        self.new: list[list[Any]] = []

    def address(self, entry: PendingNode) -> tuple[str, Row, Row]:
        """Id, place (its row still 0) and content of one draft."""
        new_node = entry.new_node
        where = f"{new_node.kind} {new_node.key or ''}".strip()
        depth, keep = 0, None
        if new_node.parent is not None:
            parent = self.parents.get(new_node.parent)
            if parent is None:
                raise UnknownNode(
                    f"the parent {new_node.parent!r} is not in this tree",
                    where=where,
                    hint="parents are written before their children",
                )
            keep = normal_keep(new_node.keep, parent.length, f"{where} under {new_node.parent[:12]}")
            depth = parent.depth + 1
        elif new_node.keep is not None:
            raise BadPoint("keep without a parent", where=where)
        body = content(new_node, where)
        key = new_node.key if new_node.key is not None else self.ordinal(new_node.parent, keep, new_node.kind)
        id_ = node_id(new_node.parent, keep, new_node.kind, key)
        if id_ not in self.parents:
            tokens = body[1]
            # Later drafts of the same batch may be its children.
            self.parents[id_] = ParentRow(0, depth, None if tokens is None else len(tokens) // 4)
            if new_node.key is not None:
                self.unsure.add(id_)
        above = None if new_node.parent is None else bytes.fromhex(new_node.parent)
        return id_, (0, bytes.fromhex(id_), above, keep, new_node.kind, key, depth), body

    def ordinal(self, parent: str | None, keep: int | None, kind: str) -> str:
        """The next free ordinal among equal siblings."""
        group = (parent, keep, kind)
        number = self.ordinals.get(group)
        while True:
            # The search runs once for a group; its later siblings take the numbers behind.
            number = self.first_free(*group) if number is None else number + 1
            key = f"#{number}"
            id_ = node_id(parent, keep, kind, key)
            if id_ not in self.parents and not self.exists(id_):
                self.ordinals[group] = number
                return key

    def first_free(self, parent: str | None, keep: int | None, kind: str) -> int:
        """An ordinal that is free while the one before it is taken, found in logarithmic time."""
        if parent is not None and not self.exists(parent):
            return 0
        # Ordinals are given in order, so doubling and then halving finds where they end.
        low, high = -1, 0
        while self.exists(node_id(parent, keep, kind, f"#{high}")):
            low, high = high, 2 * high + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.exists(node_id(parent, keep, kind, f"#{middle}")):
                low = middle
            else:
                high = middle
        return high

    def exists(self, id_: str) -> bool:
        """Whether a node was stored before this batch."""
        if id_ in self.stored:
            return True
        found = self.db.one("SELECT 1 FROM nodes WHERE id = ?", (bytes.fromhex(id_),)) is not None
        if found:
            self.stored.add(id_)
        return found

    def run(self) -> list[Row]:
        """Write what is new; all rows as they are stored, in order."""
        addressed = [self.address(entry) for entry in self.entries]
        # One look at all arrays of the batch; which of them is bad is searched for only where one is.
        check_numbers([body for _, _, body in addressed], [place for _, place, _ in addressed])
        known = parent_rows(self.db, self.unsure)
        rows = {id_: place.row for id_, place in self.parents.items() if place.row}
        rows |= {id_: place.row for id_, place in known.items()}
        again = [id_ for id_, _, _ in addressed if id_ in rows]
        old = self.read(again) if again else {}
        # One draft may stand in a batch twice (a draw done by two workers): it gets one row.
        fresh = list(dict.fromkeys(id_ for id_, _, _ in addressed if id_ not in rows))
        snapshots = iter(put_blobs(self.db, [e.new_node.snapshot for e in self.entries]))
        # Taken after all that was read: a parent has a smaller number than its children.
        if fresh:
            rows |= zip(fresh, self.db.numbers(len(fresh)), strict=True)
        stored: list[Row] = []
        for entry, (id_, place, body) in zip(self.entries, addressed, strict=True):
            row = row_of((rows[id_], *place[1:]), body, next(snapshots) or entry.snapshot, entry.created)
            if id_ in old or id_ in self.here:
                # Written before, in the store or in this batch: it must say the same.
                self.here.setdefault(id_, old.get(id_, row))
                self.agree(id_, self.here[id_], row)
            else:
                self.here[id_] = row
                parent = place[2]
                whole = list(row)
                if parent is not None:
                    whole[2] = rows[parent.hex()]
                # The seal covers the parent's row, so it is made once that is known.
                seal_node(whole)
                self.new.append(whole)
            stored.append(self.here[id_])
        if self.new:
            self.db.add("nodes", self.new)
        return stored

    def read(self, ids: Iterable[str]) -> dict[str, Row]:
        """Whole rows of nodes that were stored before this batch."""
        sql = f"SELECT {SELECT} FROM nodes n WHERE n.id IN ({{keys}})"
        return {row[1].hex(): row for row in self.db.lookup(sql, packed(dict.fromkeys(ids)))}

    def agree(self, id_: str, old: Row, new: Row) -> None:
        """Refuse a second writing that says something else."""
        field = difference(old, new)
        if field is not None:
            raise DrawConflict(
                f"this node is stored already, with another {field}",
                where=f"node {id_[:12]}",
                hint="the same draw must give the same result; has the policy or the machine changed?",
            )


def insert(db: Database, entries: Sequence[PendingNode]) -> list[Row]:
    """Write drafts inside the open transaction; a draft that is there already is stored once.

    Returns all rows as they are stored, in order; :func:`refork.tree.codec.decode` reads them.

    Raises:
        UnknownNode: a parent that is not in the tree.
        BadPoint: keep beyond the parent's tokens.
        BadInput: arrays or texts that contradict each other.
        DrawConflict: stored already, with other content.
    """
    return _Batch(db, entries).run()


def insert_new(db: Database, entries: Sequence[PendingNode]) -> int:
    """Write drafts as :func:`insert` does; returns how many were new."""
    batch = _Batch(db, entries)
    batch.run()
    return len(batch.new)


def put_blob(db: Database, data: bytes) -> bytes:
    """Store bytes once, inside the open transaction; returns their SHA-256 digest."""
    digest = put_blobs(db, [data])[0]
    assert digest is not None
    return digest


def put_blobs(db: Database, items: Sequence[bytes | None]) -> list[bytes | None]:
    """Store many bytes once each, inside the open transaction; returns their digests, None for None."""
    if all(data is None for data in items):
        return [None] * len(items)
    for data in items:
        if not isinstance(data, bytes | bytearray | memoryview | None):
            raise BadInput(f"a blob is bytes, not {type(data).__name__}")
    digests = [None if data is None else hashlib.sha256(data).digest() for data in items]
    rows = {
        digest: (digest, bytes(data))
        for digest, data in zip(digests, items, strict=True)
        if digest is not None and data is not None
    }
    if rows:
        db.write("INSERT INTO blobs (digest, data) VALUES (?, ?) ON CONFLICT DO NOTHING", rows.values())
    return digests


def need_blobs(db: Database, digests: Iterable[bytes]) -> None:
    """Raise BadInput unless every blob is stored."""
    wanted = set(digests)
    have = {row[0] for row in db.lookup("SELECT digest FROM blobs WHERE digest IN ({keys})", wanted)}
    missing = sorted(wanted - have)
    if missing:
        raise BadInput(f"no blob {missing[0].hex()[:12]} in this tree")
