"""The embedded tree store: speed of appending and reading, and what survives kill -9.

Run: python benchmarks/store.py [--quick]. Beside each figure stands the ceiling: the same rows written
or read with the standard library's sqlite3 and the same durability, without a tree around it.

Then one log of inspect_ai and the tree imported from it: opening, filtering by score, reading one sample,
searching the texts, and the sizes of both files. inspect_ai lives in an environment of its own, made on the
first run (without --quick) or named by REFORK_INSPECT, the path of a Python that has it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import random
import signal
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from parts.store_inspect import compare
from refork.policies.base import Cost
from refork.sampling.noise import NoiseKey
from refork.tree import NewNode, Tree, node_id
from refork.tree.schema import columns, ddl, insert_sql

BATCH = 1000
DEPTH = 50
READERS = 8
TOKENS = 16
#: Workers begin as copies of this process, before it opens any tree, so a kill costs no start-up.
FORK = mp.get_context("fork")


def turn(parent: str, keep: int | None, key: str, number: int) -> NewNode:
    """A sampled turn of 16 tokens with everything that a local policy records."""
    tokens = (np.arange(TOKENS, dtype=np.int32) * 31 + number) % 997
    logprobs = np.full(TOKENS, -0.5, np.float32)
    return NewNode(
        kind="action",
        parent=parent,
        keep=keep,
        key=key,
        text="go north now ok " * 2,
        tokens=tokens,
        offsets=np.arange(2, 2 * TOKENS + 2, 2, dtype=np.int32),
        logprobs=logprobs,
        logprobs_t1=logprobs,
        policy="hf:runs/organisms/maze",
        weights="ab" * 32,
        settings={"max_tokens": TOKENS},
        noise=NoiseKey(0, 12345678901234567, number, 0),
        fork="0123456789abcdef",
        finish="stop",
        cost=Cost(tokens_in=60, tokens_out=TOKENS, seconds=0.01),
    )


def planted(tree: Tree) -> str:
    """A task to grow from."""
    tokens = np.arange(60, dtype=np.int32)
    return tree.append(NewNode(kind="task", key="root", text="find the key", tokens=tokens))[0].id


def raw_connection(path: Path) -> sqlite3.Connection:
    """An empty file of the same schema and durability."""
    raw = sqlite3.connect(path, isolation_level=None)
    for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -65536"):
        raw.execute(f"PRAGMA {setting}")
    raw.execute("PRAGMA wal_autocheckpoint = 4000")
    for statement in ddl():
        raw.execute(statement)
    return raw


def raw_write(raw: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> None:
    """One durable transaction of ready-made rows."""
    raw.execute("BEGIN IMMEDIATE")
    raw.executemany(insert_sql("nodes"), rows)
    raw.execute("COMMIT")


def appending(folder: Path, batches: int, singles: int) -> dict[str, float]:
    """Rows per second in batches of 1,000 and the latency of one, tree and ceiling in turns."""
    tree = Tree.open(folder / "append.db")
    raw = raw_connection(folder / "raw.db")
    root = planted(tree)
    times: dict[str, list[float]] = {"tree": [], "raw": [], "one": [], "raw_one": []}

    def clock(name: str, work: Callable[[], Any]) -> None:
        start = time.perf_counter()
        work()
        times[name].append(time.perf_counter() - start)

    def stored(last: int) -> list[tuple[Any, ...]]:
        names = ", ".join(f'"{name}"' for name in columns("nodes"))
        return tree._db.rows(f"SELECT {names} FROM nodes WHERE row > ? ORDER BY row", (last,))

    raw_write(raw, stored(0))
    for number in range(batches):
        drafts = [turn(root, i % 60, f"b{number}/{i}", i) for i in range(BATCH)]
        before = len(tree)
        clock("tree", lambda d=drafts: tree.append(d))  # type: ignore[misc]
        rows = stored(before)
        clock("raw", lambda r=rows: raw_write(raw, r))  # type: ignore[misc]
    for number in range(singles):
        before = len(tree)
        clock("one", lambda n=number: tree.append(turn(root, None, f"s{n}", n)))  # type: ignore[misc]
        rows = stored(before)
        clock("raw_one", lambda r=rows: raw_write(raw, r))  # type: ignore[misc]
    tree.close()
    raw.close()
    return {
        "append_rows_per_s": BATCH * batches / sum(times["tree"]),
        "raw_rows_per_s": BATCH * batches / sum(times["raw"]),
        "append_ms": 1e3 * statistics.median(times["one"]),
        "raw_append_ms": 1e3 * statistics.median(times["raw_one"]),
    }


def walking(folder: Path, repeats: int) -> dict[str, float]:
    """Microseconds from a leaf of depth 50 to the root, whole nodes decoded; and the bare query."""
    with Tree.open(folder / "append.db") as tree:
        parent = next(tree.tasks()).id
        drafts = []
        for number in range(DEPTH):
            drafts.append(turn(parent, None, f"p{number}", number))
            parent = node_id(parent, None, "action", f"p{number}")
        leaf = tree.append(drafts)[-1]
        assert len(tree.path(leaf)) == DEPTH + 1
        bare = (
            "WITH RECURSIVE up(row, parent) AS (SELECT row, parent FROM nodes WHERE id = ? UNION ALL "
            "SELECT n.row, n.parent FROM up JOIN nodes n ON n.row = up.parent) "
            "SELECT n.* FROM up JOIN nodes n ON n.row = up.row"
        )
        ours, raw = [], []
        for _ in range(repeats):
            start = time.perf_counter()
            tree.path(leaf)
            middle = time.perf_counter()
            tree._db.rows(bare, (bytes.fromhex(leaf.id),))
            ours.append(middle - start)
            raw.append(time.perf_counter() - middle)
    return {"path_us": 1e6 * statistics.median(ours), "raw_path_us": 1e6 * statistics.median(raw)}


def opening(folder: Path, nodes: int) -> dict[str, float]:
    """Milliseconds to open a large tree and read its first task."""
    path = folder / "large.db"
    with Tree.open(path) as tree:
        root = planted(tree)
        for first in range(1, nodes, 10 * BATCH):
            keys = range(first, min(first + 10 * BATCH, nodes))
            tree.append([NewNode(kind="action", parent=root, key=str(key), text="north") for key in keys])
        size = tree.stats().bytes
    times = []
    for _ in range(9):
        start = time.perf_counter()
        with Tree.open(path) as tree:
            next(tree.tasks())
            times.append(time.perf_counter() - start)
    path.unlink()
    return {"open_ms": 1e3 * statistics.median(times), "open_nodes": nodes, "open_mb": size / 1e6}


def _writes(path: Path, name: str, told: Connection) -> None:
    """Append batches of ten for ever; tell each batch's number once it is committed."""
    with Tree.open(path) as tree:
        root = planted(tree)
        number = 0
        while True:
            tree.append([turn(root, None, f"{name}/{number}/{i}", i) for i in range(10)])
            told.send_bytes(number.to_bytes(8, "little"))
            number += 1


def killing(folder: Path, kills: int) -> dict[str, float]:
    """Kill -9 a writer at random moments, creation of the file included; count what is gone."""
    chance = random.Random(0)
    lost = findings = committed = broken = 0
    for kill in range(kills):
        # Ten kills share a file, so most of them recover a journal that an earlier one left.
        path = folder / f"kill{kill // 10}.db"
        ours, theirs = FORK.Pipe(duplex=False)
        writer = FORK.Process(target=_writes, args=(path, str(kill), theirs))
        writer.start()
        theirs.close()
        time.sleep(chance.random() * 0.12)
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
        told = -1
        try:
            while True:
                told = int.from_bytes(ours.recv_bytes(), "little")
        except (EOFError, OSError):
            ours.close()
        committed += told + 1
        with Tree.open(path) as tree:
            root = node_id(None, None, "task", "root")
            wanted = [
                node_id(root, None, "action", f"{kill}/{n}/{i}") for n in range(told + 1) for i in range(10)
            ]
            lost += len(tree.missing(wanted))
            findings += len(list(tree.verify()))
            broken += sum(1 for _ in tree.children(root)) % 10 if tree.has(root) else 0
    return {
        "kills": kills,
        "lost_committed": lost + broken,
        "batches_committed": committed,
        "verify_findings": findings,
    }


def _reads(path: Path, until: float, told: Connection) -> None:
    """Read as tools do, and check that what is read is whole."""
    reads = errors = 0
    with Tree.open(path, "r") as tree:
        root = next(tree.tasks())
        while time.time() < until:
            try:
                count = sum(1 for _ in tree.children(root))
                if count % 10:
                    raise AssertionError("half a batch was seen")
                leaves = [leaf for leaf, _ in zip(tree.leaves(), range(50), strict=False)]
                if any(trajectory.leaf.depth + 1 != len(trajectory) for trajectory in tree.paths(leaves)):
                    raise AssertionError("half a trajectory was seen")
                reads += 1
            except Exception as error:
                print(f"reader: {error!r}", file=sys.stderr)
                errors += 1
    told.send((reads, errors))


def reading(folder: Path, seconds: float) -> dict[str, float]:
    """Eight readers beside one writer, all processes."""
    path = folder / "shared.db"
    with Tree.open(path) as tree:
        planted(tree)
    until = time.time() + seconds
    pipes, readers = [], []
    for _ in range(READERS):
        ours, theirs = FORK.Pipe(duplex=False)
        reader = FORK.Process(target=_reads, args=(path, until, theirs))
        reader.start()
        theirs.close()
        pipes.append(ours)
        readers.append(reader)
    written = 0
    with Tree.open(path) as tree:
        root = node_id(None, None, "task", "root")
        while time.time() < until:
            tree.append([turn(root, None, f"{written}/{i}", i) for i in range(10)])
            written += 10
    results = []
    for pipe, reader in zip(pipes, readers, strict=True):
        try:
            results.append(pipe.recv())
        except EOFError:
            results.append((0, 1))
        reader.join()
    return {
        "reader_errors": sum(errors for _, errors in results),
        "reads": sum(reads for reads, _ in results),
        "written_meanwhile": written,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer kills, a smaller tree to open")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found: dict[str, float] = {}
        # Processes first: they are forked while no tree is open here.
        found |= killing(folder, 60 if quick else 200)
        found |= reading(folder, 4 if quick else 20)
        found |= appending(folder, 15 if quick else 100, 200)
        found |= walking(folder, 200)
        found |= opening(folder, 100_000 if quick else 1_000_000)
        beside = compare(folder, 200 if quick else 2000, 3 if quick else 9, make=not quick)
    rows = [
        ("rows appended per second, batches of 1,000", "append_rows_per_s", "raw_rows_per_s", "{:,.0f}"),
        ("one durable append, ms (median)", "append_ms", "raw_append_ms", "{:.2f}"),
        (f"path to the root, depth {DEPTH}, us (median)", "path_us", "raw_path_us", "{:,.0f}"),
        (f"open a tree of {found['open_nodes']:,} nodes, ms (median)", "open_ms", "", "{:.2f}"),
        (f"kill -9 at random moments ({found['batches_committed']:,} batches)", "kills", "", "{:,}"),
        ("  committed nodes lost", "lost_committed", "", "{:,}"),
        ("  findings of verify", "verify_findings", "", "{:,}"),
        (
            f"{READERS} readers beside a writer ({found['reads']:,} reads): errors",
            "reader_errors",
            "",
            "{:,}",
        ),
    ]
    print(f"{'':58} {'refork':>12} {'sqlite3':>12}")
    for label, ours, raw, form in rows:
        ceiling = form.format(found[raw]) if raw else ""
        print(f"{label:58} {form.format(found[ours]):>12} {ceiling:>12}")
    if beside:
        print(f"\n{beside['samples']:,} samples, ms (median) {'refork':>31} {'inspect_ai':>12}  times")
        for name in ("open", "filter", "read", "search"):
            mine, theirs, times = (beside[key.format(name)] for key in ("{}_ms", "peer_{}_ms", "{}_ratio"))
            print(f"{name:45} {mine:12,.2f} {theirs:12,.2f} {times:6.1f}")
        print(
            f"{'megabytes':45} {beside['mb']:12,.2f} {beside['peer_mb']:12,.2f} {beside['size_ratio']:6.2f}"
        )
    found |= {"inspect": {key: round(value, 3) for key, value in beside.items()}}  # type: ignore[dict-item]
    keep = ("inspect", "kills", "lost_committed", "reader_errors", "verify_findings", "open_nodes")
    print(json.dumps({k: v if k in keep else round(v, 3) for k, v in found.items()} | {"quick": quick}))


if __name__ == "__main__":
    main()
