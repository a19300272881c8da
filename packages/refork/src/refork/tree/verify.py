"""Re-deriving what must hold of a tree's structure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from refork.errors import NotATree
from refork.policies.base import Policy
from refork.tree import recheck
from refork.tree.codec import FLOATS, INTS, JSONS
from refork.tree.damage import misfits
from refork.tree.database import Database, Row
from refork.tree.finding import Finding
from refork.tree.node import node_id
from refork.tree.schema import columns
from refork.tree.seal import SEALED, rows_of, seal

_PAGE: Final = 1000
_ALTERED: Final = "what is stored is not what was written: its seal is another"
_CAUSE: Final = "a fault of the storage, or another program"
_OF_NODE: Final = columns("nodes")
_NODES: Final = (
    f"SELECT {', '.join('n.' + name for name in _OF_NODE)}, p.id, p.depth, length(p.tokens) / 4 "
    "FROM nodes n LEFT JOIN nodes p ON p.row = n.parent WHERE n.row > ? AND n.row <= ? ORDER BY n.row LIMIT ?"
)


def verify(db: Database, policies: Mapping[str, Policy], tolerance: float, redraw: bool) -> Iterator[Finding]:
    """Findings of structure always, and of what the policies can derive again."""
    try:
        damaged = [Finding("error", None, None, *found) for found in db.damage()]
        if not damaged:
            other = (f"{what} ({where})" for what, where in misfits(db))
            damaged = [Finding("error", None, None, what, "a fault of the storage") for what in other]
    except NotATree as error:
        damaged = [Finding("error", None, None, error.what, "the file was cut or overwritten")]
    yield from damaged
    if damaged:
        return
    try:
        yield from _nodes(db)
        yield from _seals(db)
        yield from _blobs(db)
        yield from _scores(db)
        yield from _arms(db)
    except NotATree as error:
        yield Finding("error", None, None, error.what, "a fault of the storage")
        return
    if policies:
        yield from recheck.recheck(db, policies, tolerance, redraw)


def _nodes(db: Database) -> Iterator[Finding]:
    top, last = db.now(), 0
    while True:
        page = db.rows(_NODES, (last, top, _PAGE))
        for row in page:
            yield from _node(row)
        if len(page) < _PAGE:
            return
        last = page[-1][0]


def _node(row: Row) -> Iterator[Finding]:
    node = dict(zip(_OF_NODE, row, strict=False))
    parent, depth, length = row[-3:]
    id_ = node["id"].hex()

    def wrong(what: str, token: int | None = None, cause: str = "written by another program") -> Finding:
        return Finding("error", id_, token, what, cause)

    if seal("nodes", row[: len(_OF_NODE) - 1]) != node["seal"]:
        yield wrong(_ALTERED, cause=_CAUSE)
    parent_id = None if parent is None else parent.hex()
    if node_id(parent_id, node["keep"], node["kind"], node["key"]) != id_:
        yield wrong("the id is not the digest of its place")
    if node["depth"] != (0 if depth is None else depth + 1):
        yield wrong(f"depth is {node['depth']}, the parent's is {depth}")
    if node["keep"] is not None and not 0 <= node["keep"] < (length or 0):
        yield wrong(f"keep is {node['keep']}, the parent has {length or 0} tokens")
    count = None if node["tokens"] is None else len(node["tokens"]) // 4
    for name in (*INTS, *FLOATS):
        data = node[name]
        if data is None:
            continue
        if len(data) != 4 * (count or 0):
            yield wrong(f"{name} has {len(data) / 4:g} entries for {count or 0} tokens")
        elif name in FLOATS and (bad := np.flatnonzero(np.isnan(np.frombuffer(data, "<f4")))).size:
            yield wrong(f"{name} is not a number", int(bad[0]))
    yield from (wrong(what) for what in _texts(node))


def _texts(node: dict[str, object]) -> Iterator[str]:
    offsets, text = node["offsets"], str(node["text"])
    if isinstance(offsets, bytes) and offsets and len(offsets) % 4 == 0:
        ends = np.frombuffer(offsets, "<i4")
        if ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] != len(text):
            yield "token offsets do not fit the text"
    for name in JSONS:
        data = node[name]
        try:
            json.loads(str(data) if data is not None else "null")
        except ValueError:
            yield f"{name} is not JSON"


def _seals(db: Database) -> Iterator[Finding]:
    """Rows of other tables that are not as they were written; :func:`_nodes` reads those of nodes once."""
    for table in SEALED:
        if table != "nodes":
            for key, *values, mark in rows_of(db.rows, table):
                if seal(table, values) != mark:
                    yield Finding("error", None, None, f"{table}, row {key}: {_ALTERED}", _CAUSE)


def _blobs(db: Database) -> Iterator[Finding]:
    last = 0
    while (
        row := db.one("SELECT row, digest, data FROM blobs WHERE row > ? ORDER BY row LIMIT 1", (last,))
    ) is not None:
        last, digest, data = row
        if hashlib.sha256(data).digest() != digest:
            what = f"blob {digest.hex()[:12]} is not what its digest says"
            yield Finding("error", None, None, what, "a fault of the storage")


def _scores(db: Database) -> Iterator[Finding]:
    bad = db.rows(
        "SELECT n.id, s.name FROM scores s JOIN nodes n ON n.row = s.node "
        "WHERE (s.value IS NULL) = (s.array IS NULL) OR length(s.array) != 2 * coalesce(length(n.tokens), 0)"
    )
    for id_, name in bad:
        what = f"score {name} is neither one value nor one per token"
        yield Finding("error", id_.hex(), None, what, "written by another program")
    live = db.rows("SELECT id, name, reads FROM producers WHERE retired_at IS NULL")
    gone = {id_ for (id_,) in db.rows("SELECT id FROM producers WHERE retired_at IS NOT NULL")}
    for id_, name, reads in live:
        if gone & set(json.loads(reads)):
            what = f"producer {name} ({id_[:12]}) is live, but one that it read is retired"
            yield Finding("error", None, None, what, "a merge of two trees; retire it")


def _arms(db: Database) -> Iterator[Finding]:
    beyond = db.rows(
        "SELECT n.id, f.id, f.token FROM forks f JOIN nodes n ON n.row = f.node "
        "WHERE f.token < 0 OR f.token > coalesce(length(n.tokens), 0) / 4"
    )
    for id_, fork, token in beyond:
        yield Finding("error", id_.hex(), token, f"fork {fork[:12]} starts beyond this step")
