"""How much a tree holds."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from refork.tree.database import Database
from refork.tree.outline import TreeShape
from refork.types import Json


@dataclass(frozen=True, slots=True)
class ScoreCount:
    """How many scores of one name one producer gave; retired ones are out of sight."""

    name: str
    producer: str
    label: str
    count: int
    retired: bool


@dataclass(frozen=True, slots=True)
class TreeStats:
    """Counts of a whole tree; ``bytes`` is what it takes on disk, journal included."""

    nodes: int
    kinds: dict[str, int]
    tasks: int
    leaves: int
    tokens: int
    policies: dict[str, int]
    forks: int
    draws: int
    scores: tuple[ScoreCount, ...]
    blobs: int
    max_depth: int
    bytes: int
    version: int


@dataclass(frozen=True, slots=True)
class OriginLine:
    """What a tree holds of one origin: where its tasks come from, as logs say (empty: they say nothing).

    ``mean`` is the mean of a score over what grows from them, of ``scored`` real ones; None where none is.
    """

    origin: Json
    tasks: int
    leaves: int
    mean: float | None
    scored: int


def origin_lines(db: Database, shape: TreeShape) -> tuple[OriginLine, ...]:
    """A line for each origin, in order of writing."""
    places: dict[str, list[int]] = {}
    texts: dict[int, str | None] = dict(db.rows("SELECT row, extra FROM nodes WHERE parent IS NULL"))
    for index in shape.children(-1).tolist():
        extra = json.loads(texts[int(shape.rows[index])] or "{}")
        origin = extra.get("origin")
        origin = origin if isinstance(origin, dict) else {}
        places.setdefault(json.dumps(origin, sort_keys=True), []).append(index)
    found = []
    for origin, indices in places.items():
        at = np.array(indices, dtype=np.int64)
        mean, scored = shape.mean(at)
        found.append(OriginLine(json.loads(origin), len(at), int(shape.leaves[at].sum()), mean, scored))
    return tuple(found)


def _counts(db: Database, sql: str) -> dict[str, int]:
    return dict(db.rows(sql))


def tree_stats(db: Database) -> TreeStats:
    """Counts of nodes, tasks, leaves, tokens, policies, forks, draws, scores and bytes."""
    kinds = _counts(db, "SELECT kind, count(*) FROM nodes GROUP BY kind ORDER BY kind")
    inner = db.scalar("SELECT count(DISTINCT parent) FROM nodes")
    total = sum(kinds.values())
    scores = db.rows(
        "SELECT s.name, p.id, p.name || ' ' || p.version, count(*), p.retired_at IS NOT NULL FROM scores s "
        "JOIN producers p ON p.row = s.producer GROUP BY s.name, p.row ORDER BY s.name, p.row"
    )
    return TreeStats(
        nodes=total,
        kinds=kinds,
        tasks=db.scalar("SELECT count(*) FROM nodes WHERE parent IS NULL"),
        leaves=total - inner,
        tokens=db.scalar("SELECT coalesce(sum(length(tokens)), 0) / 4 FROM nodes"),
        policies=_counts(
            db, "SELECT policy, count(*) FROM nodes WHERE policy IS NOT NULL GROUP BY policy ORDER BY policy"
        ),
        forks=db.scalar("SELECT count(row) FROM forks"),
        draws=db.scalar("SELECT count(row) FROM draws"),
        scores=tuple(
            ScoreCount(name, id_, label, count, bool(gone)) for name, id_, label, count, gone in scores
        ),
        blobs=db.scalar("SELECT count(row) FROM blobs"),
        max_depth=db.scalar("SELECT coalesce(max(depth), 0) FROM nodes"),
        bytes=db.size(),
        version=db.version(),
    )
