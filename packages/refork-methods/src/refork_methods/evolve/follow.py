"""A run on a rollout tree while it goes on: workspaces, artifacts, verdicts, and beliefs read from them."""

from __future__ import annotations

from typing import Final, final

from refork.plain import canonical, content_hash
from refork.tree import NewNode, Producer, Score, Tree
from refork.tree.node import node_id
from refork.types import Json
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.belief import best_beliefs
from refork_methods.evolve.on_tree import record_producer, write_records
from refork_methods.evolve.records import Cell, UtilityRecord, own_counts
from refork_methods.evolve.worlds import Ready

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
        self.places: dict[str, str] = {}
        self._gone = {one.producer for one in tree.retirements()}

    def sync(self, archive: Archive) -> None:
        """Store all that is new, then retire displaced judges.

        Raises: BadInput where a valid record's judge is retired on this tree; TreeBusy, DiskFull.
        """
        every = sorted((*archive.records, *archive.erased), key=lambda one: one.n)
        drafts = [] if self._ids else [self._root]
        drafts += self._workspaces(archive)
        drafts += self._artifacts(archive, every)
        self._tree.append(drafts)
        write_records(
            self._tree, [one for one in every if record_producer(one).id not in self._gone], self.places
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
            if record.artifact in self.places:
                continue
            draft = self._artifact(archive, record.node, record.cell, record.artifact)
            found.append(draft)
            self.places[record.artifact] = node_id(draft.parent, None, draft.kind, str(draft.key))
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
