"""The shared store: eight processes commit a fork's draws to one tree on PostgreSQL at the same time.

Run: python benchmarks/store_postgres.py [--quick]. The server is started here, in a temporary folder, and
flushes every commit. A commit is one draw: four turns and the record that it is finished. In turns with it
run one writer on the same server and as many writers on a tree file. Then a quarter of the draws is done by
two writers, one of the eight is killed under way, and another one takes its work over. After each of these
runs what the tree holds is compared with the ids that were to be drawn.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from refork.tree import DrawRecord, ForkRecord, Tree, node_id
from store import FORK, planted, turn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from support.postgres import MISSING, PostgresServer, binaries

WRITERS = 8
TURNS = 4
ROOT = node_id(None, None, "task", "root")
ARM = "benchmark"


def plant(place: str) -> None:
    """A tree with a task and an arm of a fork."""
    with Tree.open(place, "x") as tree:
        tree.begin_fork(ForkRecord(ARM, planted(tree), 30, None, {"name": "p"}, {}, None, 0, 7))


def ids(draw: int) -> list[str]:
    """The nodes of a draw, from the fork on."""
    found = []
    for number in range(TURNS):
        above, keep = (found[-1], None) if found else (ROOT, 30)
        found.append(node_id(above, keep, "action", f"d{draw}/{number}"))
    return found


def commit(tree: Tree, draw: int) -> None:
    """Store a draw and that it is finished."""
    names = ids(draw)
    above = [ROOT, *names]
    drafts = [turn(above[n], None if n else 30, f"d{draw}/{n}", draw) for n in range(TURNS)]
    tree.commit(drafts, [DrawRecord(ARM, draw, names[-1], "done")])


def shares(draws: int, writers: int, twice: bool = False) -> list[list[int]]:
    """Which draws each writer does, in an order of its own; a quarter is done by two of them if ``twice``."""
    chance = random.Random(0)
    found = [list(range(writer, draws, writers)) for writer in range(writers)]
    if twice:
        for draw in range(0, draws, 4):
            found[(draw + 1 + chance.randrange(writers - 1)) % writers].append(draw)
    for share in found:
        chance.shuffle(share)
    return found


def work(place: str, share: Sequence[int], told: Connection, start: Any) -> None:
    """Commit some draws once all writers are ready; tell each number once it is committed."""
    with Tree.open(place, wait=120) as tree:
        start.wait()
        for draw in share:
            commit(tree, draw)
            told.send(draw)


def write(
    place: str, given: Sequence[Sequence[int]], kill_after: int | None = None
) -> tuple[float, set[int]]:
    """Seconds until all writers are done, and the draws that they said were committed.

    ``kill_after``: the first writer is killed once it has told of so many, amid what it does then.
    """
    start = FORK.Barrier(len(given) + 1)
    pipes, writers = [], []
    for share in given:
        ours, theirs = FORK.Pipe(duplex=False)
        writers.append(FORK.Process(target=work, args=(place, share, theirs, start)))
        writers[-1].start()
        theirs.close()
        pipes.append(ours)
    start.wait(120)
    began = time.perf_counter()
    done: set[int] = set()
    if kill_after is not None:
        done |= {pipes[0].recv() for _ in range(kill_after)}
        time.sleep(0.003)
        os.kill(writers[0].pid or 0, signal.SIGKILL)
    for number, (pipe, writer) in enumerate(zip(pipes, writers, strict=True)):
        try:
            while True:
                done.add(pipe.recv())
        except EOFError:
            writer.join()
        killed = kill_after is not None and number == 0
        if writer.exitcode != (-signal.SIGKILL if killed else 0):
            raise SystemExit(f"writer {number} ended with status {writer.exitcode}")
    return time.perf_counter() - began, done


def account(place: str, wanted: int, told: set[int]) -> dict[str, int]:
    """What is not there though a writer said so or should have written it; what is there twice or in part."""
    with Tree.open(place, "r") as tree:
        missing = sum(len(tree.missing(ids(draw))) for draw in told | set(range(wanted)))
        records = [record.draw for record in tree.draws(ARM)]
        expected = {ROOT} | {id_ for draw in range(wanted) for id_ in ids(draw)}
        stored = [node.id for node in tree.walk()]
        return {
            "lost": missing + len(set(range(wanted)) - set(records)),
            "duplicated": len(stored) - len(set(stored)) + len(records) - len(set(records)),
            "unexpected": len(set(stored) - expected),
            "verify_findings": sum(1 for _ in tree.verify()),
        }


def partial(place: str) -> int:
    """Draws of which a part is there, but not all: a killed writer's, were its commit not all or nothing."""
    with Tree.open(place, "r") as tree:
        return sum(1 for leaf in tree.leaves() if leaf.depth not in (0, TURNS))


def added(sums: dict[str, int], more: dict[str, int]) -> None:
    """Add counts to the sums of all trees."""
    for name, count in more.items():
        sums[name] = sums.get(name, 0) + count


def compare(
    server: PostgresServer, folder: Path, draws: int, rounds: int
) -> tuple[dict[str, float], dict[str, int]]:
    """Rows per second of each side, in turns, and what was lost or doubled on the server."""
    sides = {
        "rows_per_s": (lambda n: server.address(f"many{n}"), WRITERS),
        "one_writer_rows_per_s": (lambda n: server.address(f"one{n}"), 1),
        "sqlite_rows_per_s": (lambda n: str(folder / f"many{n}.db"), WRITERS),
        "sqlite_one_writer_rows_per_s": (lambda n: str(folder / f"one{n}.db"), 1),
    }
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    sums: dict[str, int] = {}
    for number in range(rounds):
        for name, (place, writers) in sides.items():
            where = place(number)
            plant(where)
            given = shares(draws, writers)
            seconds, told = write(where, given)
            speeds[name].append(draws * TURNS / seconds)
            if name == "rows_per_s":
                added(sums, account(where, draws, told))
    return {name: statistics.median(found) for name, found in speeds.items()}, sums


def killing(server: PostgresServer, draws: int, kills: int) -> dict[str, int]:
    """Kill one of the writers under way, hand its draws to another; what was lost or doubled in all."""
    sums: dict[str, int] = {}
    for kill in range(kills):
        place = server.address(f"kill{kill}")
        plant(place)
        given = shares(draws, WRITERS, twice=True)
        _, told = write(place, given, kill_after=1 + 3 * kill)
        with Tree.open(place, "r") as tree:
            gone = sum(len(tree.missing(ids(draw))) for draw in told)
        added(sums, {"lost": gone, "partial": partial(place)})
        _, more = write(place, [given[0]])
        added(sums, account(place, draws, told | more))
    return sums


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer draws, rounds and kills")
    quick = parser.parse_args().quick
    if binaries() is None:
        raise SystemExit(MISSING)
    draws, rounds, kills = (160, 2, 3) if quick else (960, 5, 12)
    server = PostgresServer(durable=True)
    try:
        with tempfile.TemporaryDirectory() as name:
            found, sums = compare(server, Path(name), draws, rounds)
        added(sums, killing(server, draws, kills))
    finally:
        server.close()
    rows = (
        (f"{WRITERS} writers, PostgreSQL", "rows_per_s"),
        ("1 writer, PostgreSQL", "one_writer_rows_per_s"),
        (f"{WRITERS} writers, tree file", "sqlite_rows_per_s"),
        ("1 writer, tree file", "sqlite_one_writer_rows_per_s"),
    )
    print(f"{draws} draws of {TURNS} turns, each draw a durable commit; median of {rounds} rounds in turns")
    for label, key in rows:
        print(f"{label:28} {found[key]:>10,.0f} rows/s")
    print(f"{kills} writers killed under way and replaced; on all trees of the server:")
    for label, key in (
        ("committed or due nodes and draws lost", "lost"),
        ("nodes and draws stored twice", "duplicated"),
        ("draws stored in part", "partial"),
        ("nodes that nobody drew", "unexpected"),
        ("findings of verify", "verify_findings"),
    ):
        print(f"  {label:40} {sums[key]:>6,}")
    told = {"writers": WRITERS, **sums, "kills": kills} | {k: round(v, 1) for k, v in found.items()}
    print(json.dumps(told | {"draws": draws, "quick": quick}))


if __name__ == "__main__":
    main()
