"""What a search stores of every outcome: who was measured, on what, by which judge in which epoch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Int

from refork.errors import BadInput
from refork.stats.results import Array


@final
@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """A (role, task) pair: ``slot`` names the judge that decides it; None where a fixed test does."""

    role: str
    task: str
    slot: str | None = None


@final
@dataclass(frozen=True, slots=True, order=True)
class EvaluatorSlot:
    """A place for a judge, the judge that holds it, and how many were replaced before it.

    ``judge`` is an id that changes with all that could change a verdict: prompt, model, parameters.

    Raises: BadInput for an empty name or judge, or an epoch below 0.
    """

    name: str
    judge: str
    epoch: int = 0

    def __post_init__(self) -> None:
        if not self.name or not self.judge or self.epoch < 0:
            raise BadInput(
                f"slot {self.name!r} with judge {self.judge!r} in epoch {self.epoch}: "
                "name and judge are not empty, epochs are counted from 0"
            )

    def replaced(self, judge: str) -> EvaluatorSlot:
        """The slot with another judge, in its next epoch."""
        return EvaluatorSlot(self.name, judge, self.epoch + 1)


@final
@dataclass(frozen=True, slots=True)
class UtilityRecord:
    """One validation outcome, 0 or 1, of a node on a cell; never changed once written.

    ``n`` numbers the outcomes of the search from 0. ``judge`` is who decided: the slot's judge, or the
    fixed test's name. ``epochs`` are the epochs of all slots at that time, by slot name; ``artifact`` is
    the key of what was judged, which outlives the verdict.

    Raises: BadInput for an outcome that is not 0 or 1, no judge, no artifact, or a slot without an epoch.
    """

    n: int
    node: int
    cell: Cell
    outcome: int
    judge: str
    epochs: tuple[tuple[str, int], ...]
    artifact: str

    def __post_init__(self) -> None:
        where = f"outcome {self.n} of node {self.node}"
        if self.outcome not in (0, 1):
            raise BadInput(f"the outcome is {self.outcome!r}, not 0 or 1", where=where)
        if not self.judge or not self.artifact:
            raise BadInput(
                "a record names who judged it and what was judged", where=where,
                hint="without a judge's id nobody could say later which scores are stale",
            )  # fmt: skip
        # This finds a slot that is named twice as well as a wrong order.
        if tuple(sorted(dict(self.epochs).items())) != self.epochs:
            raise BadInput("epochs are (slot, number) pairs, sorted, one per slot", where=where)
        if self.cell.slot is not None and self.epoch is None:
            raise BadInput(
                f"it was judged in slot {self.cell.slot!r}, whose epoch it does not say", where=where
            )

    @property
    def epoch(self) -> int | None:
        """The epoch of its own slot; None on a fixed cell."""
        return None if self.cell.slot is None else dict(self.epochs).get(self.cell.slot)


def epoch_vector(slots: Iterable[EvaluatorSlot]) -> tuple[tuple[str, int], ...]:
    """The epochs of all slots, sorted by name; raises BadInput where two slots share a name."""
    found = sorted((slot.name, slot.epoch) for slot in slots)
    if len({name for name, _ in found}) != len(found):
        raise BadInput("two slots have one name")
    return tuple(found)


def own_counts(
    records: Iterable[UtilityRecord], nodes: int, role: str | None = None
) -> tuple[Int[Array, "nodes"], Int[Array, "nodes"]]:
    """Successes and failures of each of ``nodes`` nodes, of all cells or of one role's, in new arrays.

    Raises: BadInput for a record of a node that is not there.
    """
    tally = np.zeros((2, nodes), dtype=np.int64)
    for record in records:
        if not 0 <= record.node < nodes:
            raise BadInput(f"outcome {record.n} is of node {record.node}; there are {nodes}")
        if role is None or record.cell.role == role:
            tally[1 - record.outcome, record.node] += 1
    return tally[0], tally[1]
