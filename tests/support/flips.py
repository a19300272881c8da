"""Single bits of a tree's file flipped: what opening, checking and reading it make of that."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from refork.errors import ReforkError
from refork.formats.native import Native
from refork.tree import Score, Tree
from support.hostile_trees import raw, small

#: Pages as small as SQLite has them: more structure in fewer bytes, and texts that go over several pages.
PAGE = 512


def flippable(file: Path) -> Path:
    """A small tree in small pages, with a score per token, a retirement, and a text of several pages."""
    small(file)
    with Tree.open(file) as tree:
        step = next(node for node in tree.walk() if node.kind == "action")
        (judge,) = tree.producers()
        tree.add_scores([Score(step.id, "credit", np.linspace(0, 1, step.length), judge.id)])
        told = tree.add_producer(type(judge)("other", "2", {"asked": "é" * 400}, ()))
        tree.add_scores([Score(step.id, "success", 0.25, told, "said " * 150)])
        tree.retire(told, "it was wrong")
    with raw(file) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute("VACUUM")
        connection.execute("PRAGMA journal_mode = WAL")
    return file


def told(file: Path) -> str:
    """Everything that can be read of a tree."""
    out = io.StringIO()
    with Tree.open(file, "r") as tree:
        Native().write(tree.records(), out)
        stats = tree.stats()
        facts = tree._db.rows("SELECT key, value FROM meta ORDER BY key")
        kept = [
            [node.id for node in tree.walk()],
            [node.id for node in tree.tasks()],
            [(step.node.id, step.keep) for leaf in tree.leaves() for step in tree.path(leaf)],
            [(s.node, s.name, str(s.value), s.producer, s.reason) for s in tree.scores(retired=True)],
            [p.id for p in tree.producers()],
            tree.retirements(),
            [(f.id, [d.leaf for d in tree.draws(f.id)]) for f in tree.forks()],
            [(stats.nodes, stats.tokens, stats.forks, stats.draws, stats.blobs)],
        ]
    return f"{out.getvalue()}{facts}{kept}"


def fate(file: Path, good: str) -> str:
    """What a damaged file comes to: refused, found, the same (nothing read has changed), or unnoticed."""
    try:
        with Tree.open(file, "r") as tree:
            if any(finding.severity == "error" for finding in tree.verify()):
                return "found"
    except ReforkError:
        return "refused"
    try:
        return "the same" if told(file) == good else "unnoticed"
    except Exception:
        return "unnoticed"


def flips(file: Path, places: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
    """The fate of a tree for each byte and bit of it that is flipped; the file is as it was afterwards."""
    good, data = told(file), file.read_bytes()
    for byte, bit in places:
        with file.open("r+b") as out:
            out.seek(byte)
            out.write(bytes([data[byte] ^ 1 << bit]))
        yield byte, bit, fate(file, good)
        with file.open("r+b") as out:
            out.seek(byte)
            out.write(data[byte : byte + 1])
        for suffix in ("-wal", "-shm"):
            Path(f"{file}{suffix}").unlink(missing_ok=True)
