"""The rollout tree: append, trajectory, score, retire, verify."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import EllipsisType, TracebackType
from typing import Self, final

from refork.errors import BadInput, TreeDamaged
from refork.policies.base import Policy
from refork.tree import arms, node_reader, scoring
from refork.tree.codec import decode
from refork.tree.damage import blamed
from refork.tree.database import BUSY_SECONDS, Database, Mode, Row, open_database
from refork.tree.insert import PendingNode, insert, put_blob
from refork.tree.load import Loaded, Loader, records
from refork.tree.node import NewNode, Node, Point, Trajectory
from refork.tree.outline import Options, Outline, outline, roots, shape_of
from refork.tree.records import Record
from refork.tree.score import DrawRecord, ForkRecord, Producer, Retirement, Score
from refork.tree.sqlite import open_memory
from refork.tree.stats import OriginLine, TreeStats, origin_lines, tree_stats
from refork.tree.verify import Finding, verify


@final
class Tree:
    """A tree of recorded rollouts, in one file or on a server; many readers, processes included.

    To a file one writes at a time, to a server several do. Writing is all or nothing, and durable when the
    call returns. Iterators show the tree as it was when they began. An object may be used from several
    threads; a forked process opens its own.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    @classmethod
    def open(cls, path: str | os.PathLike[str], mode: Mode = "a", *, wait: float = BUSY_SECONDS) -> Self:
        """A tree file or address: ``a`` creates it or appends, ``r`` reads only, ``x`` must not exist yet.

        An address is ``postgresql://USER@HOST/DATABASE?tree=NAME``, without a password. ``wait`` is how many
        seconds a write waits for another writer before TreeBusy.

        Raises:
            NotATree: no such file or tree, empty, truncated or not ours.
            TreeVersion: written by another schema version.
            TreeError: the folder does not exist, no connection to the server, or ``x`` and the tree exists.
            BadInput: a bad address, or one with a password in it.
        """
        return cls(open_database(path, mode, wait))

    @classmethod
    def memory(cls) -> Self:
        """A tree that lives and dies with this process."""
        return cls(open_memory())

    @property
    def file(self) -> Path | None:
        """The file in which the tree is stored; None in memory and on a server."""
        return self._db.path

    @property
    def uri(self) -> str | None:
        """What :meth:`open` takes to open it again, a path or an address; None in memory."""
        return self._db.uri

    @property
    def created(self) -> str:
        """When it was made, seconds since 1970 as its store writes them; tells a tree from its successor."""
        return str(self._db.scalar("SELECT value FROM meta WHERE key = 'created'"))

    def close(self) -> None:
        """Give the file or the connection back; further use is refused."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            damage = self.damage_behind(error) if isinstance(error, Exception) else None
        finally:
            self.close()
        if damage is not None:
            raise damage from error

    def damage_behind(self, error: Exception) -> TreeDamaged | None:
        """The file's damage that explains an error nobody raised on purpose; None where none does."""
        return blamed(error, self._db)

    # Nodes

    def append(self, new_nodes: NewNode | Sequence[NewNode]) -> list[Node]:
        """Store drafts in one transaction, parents before children; the stored nodes, in order.

        A draft without a key gets the next free ordinal among equal siblings. One that is stored
        already is stored once, if it says the same (times aside; log-probs to 1e-4).

        Raises:
            UnknownNode: a parent that is not in the tree.
            BadPoint: keep beyond the parent's tokens.
            BadInput: lengths that differ, NaN log-probs, offsets that do not fit the text.
            DrawConflict: stored already, with other content.
            TreeBusy, DiskFull: nothing was written.
        """
        return self.commit([new_nodes] if isinstance(new_nodes, NewNode) else new_nodes)

    def commit(
        self, new_nodes: Sequence[NewNode], draws: Sequence[DrawRecord] = (), scores: Iterable[Score] = ()
    ) -> list[Node]:
        """Append drafts, finish draws and add scores in one transaction; the nodes, in order.

        Raises: what :meth:`append`, :meth:`finish_draws` and :meth:`add_scores` raise.
        """
        now = time.time()
        entries = [PendingNode(new_node, now) for new_node in new_nodes]
        given = list(scores)
        if not (entries or draws or given):
            return []

        def body() -> list[Row]:
            rows = insert(self._db, entries)
            if draws:
                arms.finish_draws(self._db, draws)
            if given:
                scoring.add_scores(self._db, given)
            return rows

        return [decode(row) for row in self._db.commit(body)]

    def node(self, id: str) -> Node:  # noqa: A002
        """The node of an id, or of a beginning that fits one node only; raises UnknownNode."""
        return node_reader.by_id(self._db, id)

    def nodes(self, ids: Iterable[str]) -> list[Node]:
        """Nodes of many ids, in order; raises UnknownNode."""
        return node_reader.many(self._db, ids)

    def has(self, id: str) -> bool:  # noqa: A002
        """Whether a node of this full id is stored."""
        return bool(node_reader.present(self._db, [id]))

    def missing(self, ids: Iterable[str]) -> list[str]:
        """Those of many full ids that are not stored, in order."""
        wanted = list(ids)
        found = node_reader.present(self._db, wanted)
        return [id_ for id_ in wanted if id_ not in found]

    def at(self, node: Node | str, token: int | None = None) -> Point:
        """The point after ``token`` tokens of a node (None: after all); text may be ``id:token``.

        Raises:
            UnknownNode: no such node.
            BadPoint: negative, beyond the step, or the step records no token ids.
        """
        found = node_reader.point(self._db, node, token)
        return Point(found.node, found.token, self)

    def path(self, where: Node | str | Point) -> Trajectory:
        """The path from the root to a node or point; each step keeps what the trajectory keeps of it."""
        return node_reader.path(self._db, node_reader.point(self._db, where))

    def paths(self, where: Iterable[Node | str | Point]) -> list[Trajectory]:
        """Paths to many places, in order; a node that they share is read once, and is one object."""
        ids: list[str] = []
        tokens: list[int | None] = []
        for item in where:
            if isinstance(item, str) and ":" not in item:
                ids.append(item)
                tokens.append(None)
            else:
                end = node_reader.point(self._db, item)
                ids.append(end.node.id)
                tokens.append(end.token)
        return node_reader.paths(self._db, ids, tokens)

    def children(self, node: Node | str, keep: int | EllipsisType | None = ...) -> Iterator[Node]:
        """Children in order of writing: all, or those that keep ``keep`` tokens (None: the whole)."""
        found = self.node(node) if isinstance(node, str) else node
        return node_reader.children(self._db, found, keep)

    def leaves(self, under: Node | str | None = None) -> Iterator[Node]:
        """Nodes without children, of the whole tree or at and below one node."""
        return node_reader.leaves(self._db, self._row(under))

    def tasks(self) -> Iterator[Node]:
        """Roots, in order of writing."""
        return node_reader.stream(self._db, "n.parent IS NULL")

    def walk(self, under: Node | str | None = None) -> Iterator[Node]:
        """Nodes depth-first, parents first, of the whole tree or at and below one node."""
        return node_reader.walk(self._db, self._row(under))

    def descendants(self, node: Node | str) -> int:
        """How many nodes lie below one."""
        return node_reader.descendants(self._db, node_reader.row_number(self._db, _id(node)))

    def __len__(self) -> int:
        # Not count(*): SQLite counts pages then, and hears no Ctrl-C where those of a damaged file never end.
        return int(self._db.scalar("SELECT count(row) FROM nodes"))

    def _row(self, node: Node | str | None) -> int | None:
        return None if node is None else node_reader.row_number(self._db, _id(node))

    # Scores

    def add_producer(self, producer: Producer) -> str:
        """Register a producer; its id. Raises BadInput where it reads an unknown or retired one."""
        with self._db.transaction():
            return scoring.add_producer(self._db, producer)

    def add_scores(self, scores: Iterable[Score]) -> int:
        """Store scores in one transaction; how many are new. The same score again is stored once.

        Raises:
            UnknownNode: a node that is not in the tree.
            BadInput: unknown or retired producer, NaN, an array of another length than the node, or
                another value than the stored one: scores are never overwritten.
        """
        given = list(scores)
        if not given:
            return 0
        return self._db.commit(lambda: scoring.add_scores(self._db, given))

    def scores(
        self,
        node: Node | str | None = None,
        name: str | None = None,
        producer: str | None = None,
        under: Node | str | None = None,
        retired: bool = False,
    ) -> Iterator[Score]:
        """Scores that fit every filter given; those of retired producers too where ``retired``."""
        found, top = self._row(node), self._row(under)
        return scoring.scores(self._db, node=found, name=name, producer=producer, under=top, retired=retired)

    def score_map(
        self, name: str, nodes: Iterable[Node | str], producer: str | None = None
    ) -> dict[str, float]:
        """The scalar score of each node that has one, by ``producer`` or the newest live one."""
        return scoring.score_map(self._db, name, [_id(node) for node in nodes], producer)

    def producers(self, retired: bool = False) -> list[Producer]:
        """Live producers in order of registration; the retired ones too where ``retired``."""
        return scoring.producers(self._db, retired)

    def retire(self, producer: str, reason: str) -> Retirement:
        """Take a producer, and all that read its scores, out of every reader's sight; what was lost."""
        with self._db.transaction():
            return scoring.retire(self._db, producer, reason)

    def retirements(self) -> list[scoring.Retired]:
        """All retirements, earliest first."""
        return scoring.retirements(self._db)

    # Forks

    def begin_fork(self, record: ForkRecord) -> ForkRecord:
        """Record an arm, or find it again; what is stored.

        Raises:
            UnknownNode: its node is not in the tree.
            BadPoint: its token is beyond the node.
            DrawConflict: an arm of this id says something else.
        """
        return self._db.commit(lambda: arms.begin_fork(self._db, record))

    def forks(self, node: Node | str | None = None) -> Iterator[ForkRecord]:
        """Arms in order of recording: all, or those that start in one node."""
        return arms.forks(self._db, self._row(node))

    def fork_record(self, fork: str) -> ForkRecord:
        """The arm of an id; raises BadInput where there is none."""
        return arms.fork_record(self._db, fork)

    def finish_draws(self, records: Sequence[DrawRecord]) -> int:
        """Record finished draws in one transaction; how many are new.

        Raises:
            BadInput: unknown fork, or an end that is not done, limit or error.
            UnknownNode: a leaf that is not in the tree.
            DrawConflict: the same draw ended otherwise before.
        """
        if not records:
            return 0
        return self._db.commit(lambda: arms.finish_draws(self._db, records))

    def draws(self, fork: str) -> list[DrawRecord]:
        """Finished draws of an arm, by number."""
        return arms.draws(self._db, fork)

    # Snapshots, copies, checks

    def put_blob(self, data: bytes) -> str:
        """Store bytes once per content; their SHA-256 digest in hex."""
        return self._db.commit(lambda: put_blob(self._db, data)).hex()

    def blob(self, digest: str) -> bytes:
        """The bytes of a digest; raises BadInput where there are none."""
        try:
            data = self._db.scalar("SELECT data FROM blobs WHERE digest = ?", (bytes.fromhex(digest),))
        except ValueError:
            data = None
        if data is None:
            raise BadInput(f"no blob {digest[:12]!r} in this tree")
        return bytes(data)

    def records(self) -> Iterator[Record]:
        """Everything the tree holds, each record after those it refers to; :meth:`load` takes them."""
        return records(self._db)

    def load(self, records: Iterable[Record]) -> Loaded:
        """Copy records into this tree, all or nothing; ids stay what they are.

        An ordinal that names another event here is renumbered; a draw that does is a DrawConflict. An item
        that a reader had to skip is a BadInput.
        """
        with self.transaction():
            return self.loader().load(records)

    def transaction(self) -> AbstractContextManager[None]:
        """All that is written inside it is stored together, or none of it where an error leaves it.

        Raises:
            TreeBusy, DiskFull: nothing was written.
        """
        return self._db.transaction()

    def loader(self, *, strict: bool = True) -> Loader:
        """A writer of records for use inside :meth:`transaction`, over several of them where it is long."""
        return Loader(self._db, strict)

    def merge(self, other: Tree) -> Loaded:
        """Copy another tree into this one; see :meth:`load`."""
        return self.load(other.records())

    def stats(self) -> TreeStats:
        """Counts of nodes, tokens, policies, forks, draws, scores and bytes."""
        return tree_stats(self._db)

    def named_scores(self) -> str:
        """The names of its live scores with how many there are of each, for messages."""
        counts: dict[str, int] = {}
        for one in self.stats().scores:
            if not one.retired:
                counts[one.name] = counts.get(one.name, 0) + one.count
        return ", ".join(f"{name} ({count:,})" for name, count in counts.items()) or "none"

    def origins(self, score: str | None = None) -> tuple[OriginLine, ...]:
        """What it holds of each origin: equal prompts of different models, tools or runs are never mixed.

        Raises: BadInput where no live score has the name asked for; by default the usual one is meaned.
        """
        shape, _ = shape_of(self._db, score)
        return origin_lines(self._db, shape)

    def outline(self, options: Options | None = None) -> Outline:
        """The tree as lines to draw: forks indented, chains flat, many siblings counted."""
        return outline(self._db, options or Options())

    def task_lines(self, options: Options | None = None) -> Outline:
        """A line for each task, with the size and the scores of what grows from it."""
        return roots(self._db, options or Options())

    def verify(
        self, policies: Mapping[str, Policy] | None = None, tolerance: float = 1e-4, redraw: bool = False
    ) -> Iterator[Finding]:
        """What does not hold, one finding at a time: structure always, the rest where policies are given.

        With policies by recorded name: token ids decode to the text, and log-probs at temperature 1
        recompute to within ``tolerance``; ``redraw``: noise keys draw the same tokens again.
        """
        return verify(self._db, policies or {}, tolerance, redraw)


def _id(node: Node | str) -> str:
    return node if isinstance(node, str) else node.id
