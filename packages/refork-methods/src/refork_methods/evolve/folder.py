"""A run's folder: what it is (``run.json``), its events (``events.jsonl``) and its tree (``tree.db``)."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from refork.errors import BadInput, DiskFull, Mismatch, TreeBusy
from refork.interrupt import Interrupt
from refork.jsonl import write_whole
from refork.plain import canonical, content_hash, from_json, to_json
from refork.progress import Progress, silent
from refork.tree import NewNode, Producer, Score, Tree
from refork.tree.node import node_id
from refork.types import Json
from refork_methods.evolve.archive import CHECKPOINT, END, Archive
from refork_methods.evolve.belief import best_beliefs
from refork_methods.evolve.on_tree import record_producer, write_records
from refork_methods.evolve.records import Cell, UtilityRecord, own_counts
from refork_methods.evolve.replay import resume
from refork_methods.evolve.search import run
from refork_methods.evolve.worlds import Plan, Ready, open_plan
from refork_methods.journal import Journal

BELIEF: Final = "belief"
VERSION: Final = "1"
REASON: Final = "judge replaced"
SUPERSEDED: Final = "later beliefs"


@final
class Follower:
    """Brings a tree to what an archive says; doing it again, or later, stores what is new.

    The tree's root is the run. A workspace is a ``rewrite`` of the one that it was bred from; an artifact is
    an ``action`` below the workspace that made it, and carries the verdicts. A displaced judge's producer is
    retired, so its verdicts, and beliefs that counted them, are out of every reader's sight.
    """

    def __init__(self, tree: Tree, facts: Json, ready: Ready) -> None:
        self._tree, self._ready, self._eps = tree, ready, ready.settings.gate.eps
        key = f"evolve/{content_hash(facts)[:16]}"
        name = str(facts.get("world", ""))
        self._root = NewNode(kind="task", key=key, text=f"evolve {name}", extra={"evolve": facts})
        self._ids: list[str] = []
        #: Tree nodes of artifacts, by key.
        self.node_ids: dict[str, str] = {}
        self._gone = {one.producer for one in tree.retirements()}

    def sync(self, archive: Archive) -> None:
        """Store all that is new, then retire displaced judges.

        Raises: BadInput where a valid record's judge is retired on this tree; TreeBusy, DiskFull.
        """
        every = sorted((*archive.records, *archive.erased), key=lambda one: one.n)
        drafts = [] if self._ids else [self._root]
        drafts += self._workspaces(archive)
        drafts += self._artifacts(archive, every)
        # Nodes, then verdicts, then retirements: a tree takes no score of a retired producer.
        self._tree.append(drafts)
        write_records(
            self._tree, [one for one in every if record_producer(one).id not in self._gone], self.node_ids
        )
        for record in archive.erased:
            producer = record_producer(record).id
            if producer not in self._gone:
                self._tree.retire(producer, REASON)
                self._gone.add(producer)
        if archive.records:
            self._believe(archive)

    def _workspaces(self, archive: Archive) -> list[NewNode]:
        root = node_id(None, None, "task", str(self._root.key))
        found: list[NewNode] = []
        for number in range(len(self._ids), len(archive)):
            up = archive.parents[number]
            text = canonical(archive.workspaces[number])
            draft = NewNode(
                kind="rewrite", parent=root if up < 0 else self._ids[up], key=f"workspace/{number}",
                text=text, extra={"workspace": number},
            )  # fmt: skip
            found.append(draft)
            self._ids.append(node_id(draft.parent, None, draft.kind, str(draft.key)))
        return found

    def _artifacts(self, archive: Archive, records: list[UtilityRecord]) -> list[NewNode]:
        found: list[NewNode] = []
        for record in records:
            if record.artifact in self.node_ids:
                continue
            draft = self._artifact(archive, record.node, record.cell, record.artifact)
            found.append(draft)
            self.node_ids[record.artifact] = node_id(draft.parent, None, draft.kind, str(draft.key))
        return found

    def _artifact(self, archive: Archive, node: int, cell: Cell, key: str) -> NewNode:
        return NewNode(
            kind="action", parent=self._ids[node], key=f"artifact/{key}",
            text=self._ready.text(archive, cell, key),
            extra={"artifact": key, "role": cell.role, "task": cell.task},
        )  # fmt: skip

    def _believe(self, archive: Archive) -> None:
        """The belief in every workspace with records, by a producer that read their judges."""
        reads = tuple(sorted({record_producer(one).id for one in archive.records}))
        told = {"eps": self._eps, "outcomes": archive.outcomes}
        producer = Producer("evolve:belief", VERSION, told, reads)
        for one in self._tree.producers():
            if one.name == producer.name and one.id != producer.id:
                self._tree.retire(one.id, SUPERSEDED)
        self._tree.add_producer(producer)
        good, bad = own_counts(archive.records, len(archive))
        beliefs = best_beliefs(good, bad, self._eps)
        self._tree.add_scores(
            Score(node, BELIEF, float(beliefs[number]), producer.id)
            for number, node in enumerate(self._ids)
            if good[number] + bad[number]
        )


RUN: Final = "run.json"
EVENTS: Final = "events.jsonl"
TREE: Final = "tree.db"
FORMAT: Final = 1
STAGE: Final = "outcomes"


@final
@dataclass(frozen=True, slots=True)
class Finished:
    """What a run came to: its folder, the archive, and whether a part of it was there before."""

    folder: Path
    archive: Archive
    eps: float
    resumed: bool

    def to_json(self) -> Json:
        """Plain JSON: counts, judges, and the best nodes with their workspaces."""
        archive = self.archive
        best = archive.endpoint(self.eps) if archive.records else None
        return {
            "folder": str(self.folder),
            "resumed": self.resumed,
            "ended": archive.ended,
            "outcomes": archive.outcomes,
            "workspaces": len(archive),
            "valid": len(archive.records),
            "erased": len(archive.erased),
            "slots": [to_json(slot) for slot in archive.slots.values()],
            "endpoint": None if best is None else to_json(best),
            "best": None if best is None else archive.workspaces[best.generalist],
        }


def evolve(plan: Plan, out: Path, progress: Progress = silent) -> Finished:
    """Run a plan in a folder; the same plan on a folder that holds a part of it goes on with that.

    Ctrl-C ends it after the outcome under way and raises KeyboardInterrupt; what was recorded stays.

    Raises:
        BadInput: a plan that cannot be opened.
        Mismatch: the folder holds another run.
        TreeBusy: another process runs there.
        DiskFull: it cannot be written.
    """
    fresh = not out.exists()
    with _locked(out):
        try:
            ready = open_plan(plan, out)
        except BaseException:
            if fresh:
                _remove(out)
            raise
        facts = _facts(plan, ready)
        _agree(out, facts)
        return _go(out, facts, ready, progress)


def go_on(out: Path, progress: Progress = silent) -> Finished:
    """Go on with the run in a folder, by what the folder says of it; raises as :func:`evolve`."""
    facts = read_facts(out)
    plan = from_json(Plan, facts["plan"], str(out / RUN))
    with _locked(out):
        ready = open_plan(plan, out)
        if _facts(plan, ready)["anchor"] != facts["anchor"]:
            raise Mismatch(
                "the world has another anchor now", where=str(out),
                hint="restore the anchor, or begin a new run",
            )  # fmt: skip
        return _go(out, facts, ready, progress)


def read_facts(out: Path) -> Json:
    """What ``run.json`` says; raises BadInput where it is not a run's folder."""
    try:
        facts: Json = json.loads((out / RUN).read_text(encoding="utf-8"))
        if facts["format"] == FORMAT and isinstance(facts["plan"], dict):
            return facts
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BadInput("this is not the folder of a run", where=str(out), hint="refork evolve run") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput("this file does not describe a run", where=str(out / RUN)) from error
    raise BadInput(f"the run has format {facts['format']!r}, not {FORMAT}", where=str(out / RUN))


def open_journal(out: Path) -> Journal:
    """The events of a folder; raises BadInput where there are none, Mismatch where they were altered."""
    file = out / EVENTS
    if not file.exists():
        raise BadInput("this folder has no events", where=str(out), hint="refork evolve run")
    return Journal(file, noun="event log")


def _go(out: Path, facts: Json, ready: Ready, progress: Progress) -> Finished:
    file = out / EVENTS
    log = Journal(file, noun="event log") if file.exists() else Journal.create(file, noun="event log")
    resumed, budget = len(log) > 0, ready.settings.budget
    known = sum(entry.kind == "measure" for entry in log)
    with Tree.open(out / TREE) as tree, Interrupt() as stop:
        follower = Follower(tree, facts, ready)
        seen: list[Archive] = []

        def watch(archive: Archive, kind: str) -> None:
            # Kept for Ctrl-C, at which run() raises and returns nothing.
            seen[:] = [archive]
            progress(STAGE, archive.outcomes, budget)
            # Of recorded events the last ones are enough: the tree takes in all that is new.
            if kind in (CHECKPOINT, END) and archive.outcomes >= known:
                follower.sync(archive)
            if stop.asked:
                raise KeyboardInterrupt

        try:
            if resumed:
                archive = resume(log, ready.opened.runtime, watch)
            else:
                opened = ready.opened
                archive = run(ready.settings, opened.workspace, opened.slots, opened.runtime, log, watch)
        except KeyboardInterrupt:
            if seen and seen[0].outcomes >= known:
                follower.sync(seen[0])
            raise
    return Finished(out, archive, ready.settings.gate.eps, resumed)


def _facts(plan: Plan, ready: Ready) -> Json:
    facts: Json = {
        "format": FORMAT,
        "world": plan.world,
        "plan": to_json(plan),
        "settings": to_json(ready.settings),
        "anchor": ready.opened.runtime.examiner.fingerprint,
    }
    return facts


def _agree(out: Path, facts: Json) -> None:
    """Write the facts, or see that the folder holds the same ones."""
    file = out / RUN
    if not file.exists():
        with _writing(out):
            write_whole(file, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
        return
    before, now = read_facts(out), json.loads(canonical(facts))
    # A plan may say the same settings in other words: the settings that it comes to are compared.
    differ = [key for key in sorted(now) if before.get(key) != now[key] and key != "plan"]
    differ += ["options"] if before["plan"]["options"] != now["plan"]["options"] else []
    if differ:
        raise Mismatch(
            f"this folder holds another run; it differs in: {', '.join(differ)}", where=str(out),
            hint="use the same settings to resume, or another --out for a new run",
        )  # fmt: skip


def _remove(out: Path) -> None:
    """Take away a new folder in which nothing was recorded."""
    for file in out.iterdir():
        file.unlink()
    out.rmdir()


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    """The folder to ourselves, made if need be, where the system has such locks."""
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
        lock = os.open(out / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            pass
        except OSError as error:
            raise TreeBusy("another process runs in this folder", where=str(out)) from error
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskFull(f"the run cannot be recorded: {error.strerror}", where=str(path)) from error
