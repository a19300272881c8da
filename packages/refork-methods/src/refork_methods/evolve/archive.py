"""The archive of a search: what its events add up to, and nothing that they do not say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import NDArray

from refork.errors import BadInput, Mismatch
from refork.plain import from_json
from refork.stats.results import Array
from refork.types import Json
from refork_methods.evolve.belief import best_beliefs
from refork_methods.evolve.erase import selective_erasure
from refork_methods.evolve.promote import Decision
from refork_methods.evolve.records import Cell, EvaluatorSlot, UtilityRecord, epoch_vector, own_counts

BEGIN: Final = "begin"
CELLS: Final = "cells"
EXPAND: Final = "expand"
MEASURE: Final = "measure"
CHECKPOINT: Final = "checkpoint"
END: Final = "end"


@final
@dataclass(frozen=True, slots=True)
class Endpoint:
    """The node believed best over all valid records, and the one for each role."""

    generalist: int
    specialists: tuple[tuple[str, int], ...]


def endpoint(records: Sequence[UtilityRecord], nodes: int, eps: float) -> Endpoint:
    """Nodes of the highest best belief, over valid records; among equals the oldest.

    Raises: BadInput where there is no record, or one of a node that is not there.
    Source: arXiv:2606.26294, Algorithm 1.
    """
    if not records:
        raise BadInput(
            "no valid record: nothing says which node is best", hint="re-score cached artifacts first"
        )

    def best(role: str | None) -> int:
        return int(best_beliefs(*own_counts(records, nodes, role), eps).argmax())

    roles = sorted({record.cell.role for record in records})
    return Endpoint(best(None), tuple((role, best(role)) for role in roles))


@final
class Archive:
    """Nodes, judges, records and cached artifacts, built by applying events in order.

    ``records`` are valid ones only; ``erased`` is the ledger of the others. ``outcomes`` counts both.
    """

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.workspaces: list[Json] = []
        self.slots: dict[str, EvaluatorSlot] = {}
        self.cells: tuple[Cell, ...] = ()
        self.records: list[UtilityRecord] = []
        self.erased: list[UtilityRecord] = []
        self.decisions: list[dict[str, Decision]] = []
        self.outcomes = 0
        self.ended = False
        self._artifacts: dict[tuple[int, Cell], str] = {}
        self._done: list[dict[str, set[str]]] = []
        self._own = np.zeros((2, 0), dtype=np.int64)
        self._tasks: dict[str, list[Cell]] = {}

    def __len__(self) -> int:
        return len(self.parents)

    def apply(self, kind: str, body: Json) -> None:
        """Take in one event, as plain JSON data.

        Raises: Mismatch for an event that cannot follow the ones before it; BadInput for one that is
        malformed.
        """
        act = {
            BEGIN: self._begin, CELLS: self._set_cells, EXPAND: self._expand, MEASURE: self._measure,
            CHECKPOINT: self._checkpoint, END: self._end,
        }.get(kind)  # fmt: skip
        if act is None or self.ended or (kind == BEGIN) == bool(self.parents):
            raise Mismatch(f"event {kind!r} cannot stand here", where=f"after {self.outcomes} outcomes")
        act(body)

    def _begin(self, body: Json) -> None:
        slots = [from_json(EvaluatorSlot, slot) for slot in body["slots"]]
        epoch_vector(slots)
        self.slots = {slot.name: slot for slot in slots}
        self._add(-1, body["workspace"])

    def _add(self, parent: int, workspace: Json) -> None:
        self.parents.append(parent)
        self.workspaces.append(workspace)
        self._done.append({})
        self._own = np.concatenate([self._own, np.zeros((2, 1), dtype=np.int64)], axis=1)

    def _set_cells(self, body: Json) -> None:
        cells = tuple(from_json(Cell, cell) for cell in body["cells"])
        gone = set(self.cells) - set(cells)
        unknown = {cell.slot for cell in cells if cell.slot is not None} - self.slots.keys()
        if gone or unknown or len({(cell.role, cell.task) for cell in cells}) != len(cells) or not cells:
            raise Mismatch(
                f"{len(gone)} cells withdrawn, slots {sorted(unknown)} unknown, {len(cells)} cells given",
                hint="cells may be added, each (role, task) once, and never withdrawn",
            )
        self.cells = cells
        self._tasks = {}
        for cell in cells:
            self._tasks.setdefault(cell.role, []).append(cell)

    def _expand(self, body: Json) -> None:
        if not 0 <= body["parent"] < len(self):
            raise Mismatch(f"no node {body['parent']} to expand", where=f"after {self.outcomes} outcomes")
        if body["workspace"] is not None:
            self._add(body["parent"], body["workspace"])

    def _measure(self, body: Json) -> None:
        cell = from_json(Cell, body["cell"])
        record = UtilityRecord(
            self.outcomes, body["node"], cell, body["outcome"], body["judge"],
            epoch_vector(self.slots.values()), body["artifact"],
        )  # fmt: skip
        where = f"outcome {record.n} of node {record.node}"
        if not 0 <= record.node < len(self) or cell not in self.open(record.node, cell.role):
            raise Mismatch(f"{cell.role}/{cell.task} is not open", where=where, hint="a verdict counts once")
        if cell.slot is not None and record.judge != self.slots[cell.slot].judge:
            raise Mismatch(f"slot {cell.slot!r} is not held by {record.judge!r}", where=where)
        # The first artifact of a cell stays: another judge sees the same work, not a second try.
        if self._artifacts.setdefault((record.node, cell), record.artifact) != record.artifact:
            raise Mismatch("another artifact than the cached one was judged", where=where)
        self.records.append(record)
        self.outcomes += 1
        self._count(record)

    def _count(self, record: UtilityRecord) -> None:
        self._done[record.node].setdefault(record.cell.role, set()).add(record.cell.task)
        # Row 0 holds successes, row 1 failures.
        self._own[1 - record.outcome, record.node] += 1

    def _checkpoint(self, body: Json) -> None:
        found = {name: from_json(Decision, one) for name, one in body["decisions"].items()}
        if found.keys() != self.slots.keys():
            raise Mismatch("a checkpoint decides every slot", where=f"after {self.outcomes} outcomes")
        for name, decision in found.items():
            if decision.incumbent.tally.name != self.slots[name].judge:
                raise Mismatch(f"slot {name!r} is not held by {decision.incumbent.tally.name!r}")
        # All replacements are one step: no slot sees another's before it has decided.
        for name, decision in found.items():
            if decision.chosen is not None:
                self.slots[name] = self.slots[name].replaced(decision.chosen)
        split = selective_erasure(self.records, self.slots.values())
        self.decisions.append(found)
        self.records = list(split.remaining)
        self.erased.extend(split.erased)
        if split.erased:
            self._done = [{} for _ in self.parents]
            self._own = np.zeros((2, len(self)), dtype=np.int64)
            for record in self.records:
                self._count(record)

    def _end(self, body: Json) -> None:
        if body["outcomes"] != self.outcomes:
            raise Mismatch(f"the end counts {body['outcomes']} outcomes, the records {self.outcomes}")
        self.ended = True

    # What decisions read.

    @property
    def successes(self) -> Int[Array, "nodes"]:
        """Each node's own valid successes, a copy."""
        found: NDArray[np.int64] = self._own[0].copy()
        return found

    @property
    def failures(self) -> Int[Array, "nodes"]:
        """Each node's own valid failures, a copy."""
        found: NDArray[np.int64] = self._own[1].copy()
        return found

    def done(self, node: int, role: str) -> int:
        """How many of a role's cells hold a valid record of a node."""
        return len(self._done[node].get(role, ()))

    def open(self, node: int, role: str) -> list[Cell]:
        """The cells of a role in which a node has no valid record, in the order they were given."""
        done = self._done[node].get(role, set())
        return [cell for cell in self._tasks.get(role, []) if cell.task not in done]

    def roles(self, node: int) -> list[str]:
        """The roles in which a node has open cells, sorted."""
        return sorted(role for role, cells in self._tasks.items() if self.done(node, role) < len(cells))

    def measurable(self) -> Bool[Array, "nodes"]:
        """Whether each node has an open cell."""
        full = len(self.cells)
        found: NDArray[np.bool_] = self._own.sum(axis=0) < full
        return found

    def artifact(self, node: int, cell: Cell) -> str | None:
        """The cached artifact of a node on a cell; None where it never ran."""
        return self._artifacts.get((node, cell))

    def endpoint(self, eps: float) -> Endpoint:
        """:func:`endpoint` of the valid records."""
        return endpoint(self.records, len(self), eps)


def fold(events: Iterable[tuple[str, Any]]) -> Archive:
    """The archive that (kind, body) events add up to; raises as :meth:`Archive.apply`."""
    found = Archive()
    for kind, body in events:
        found.apply(kind, body)
    return found
