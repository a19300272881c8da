"""How much a tree holds."""

from __future__ import annotations

from dataclasses import dataclass

from ramify.core.tree.database import Database


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
        forks=db.scalar("SELECT count(*) FROM forks"),
        draws=db.scalar("SELECT count(*) FROM draws"),
        scores=tuple(
            ScoreCount(name, id_, label, count, bool(gone)) for name, id_, label, count, gone in scores
        ),
        blobs=db.scalar("SELECT count(*) FROM blobs"),
        max_depth=db.scalar("SELECT coalesce(max(depth), 0) FROM nodes"),
        bytes=db.size(),
        version=db.version(),
    )
