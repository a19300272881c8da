"""Selective erasure: which outcomes die with a displaced judge, and which artifacts to judge again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from refork.errors import Mismatch
from refork_methods.evolve.records import Cell, EvaluatorSlot, UtilityRecord, epoch_vector


@final
@dataclass(frozen=True, slots=True)
class Erasure:
    """Records that stay and records that no reader may use, each in order; nothing is altered."""

    remaining: tuple[UtilityRecord, ...]
    erased: tuple[UtilityRecord, ...]

    @property
    def to_rescore(self) -> tuple[tuple[int, Cell, str], ...]:
        """(node, cell, artifact) of what lost its verdict: cached work, to judge again when asked for."""
        held = {(record.node, record.cell) for record in self.remaining}
        lost = dict.fromkeys((record.node, record.cell, record.artifact) for record in self.erased)
        return tuple(item for item in lost if item[:2] not in held)


def selective_erasure(records: Iterable[UtilityRecord], slots: Iterable[EvaluatorSlot]) -> Erasure:
    """Split records by whether the slots still hold the judge, and the epoch, that decided them.

    Records of fixed cells and of unchanged slots are kept as they are (the same objects). Pure and
    idempotent: erasing what was kept erases nothing.

    Raises:
        BadInput: two slots of one name.
        Mismatch: a record of a slot that is not there, of an epoch that has not come, or of another judge
        in
            the same epoch (the judge was changed without saying so).
    Source: arXiv:2606.26294, Algorithm 1.
    """
    now = tuple(slots)
    epoch_vector(now)
    held = {slot.name: slot for slot in now}
    kept: list[UtilityRecord] = []
    erased: list[UtilityRecord] = []
    for record in records:
        (kept if _valid(record, held) else erased).append(record)
    return Erasure(tuple(kept), tuple(erased))


def _valid(record: UtilityRecord, held: dict[str, EvaluatorSlot]) -> bool:
    name = record.cell.slot
    if name is None:
        return True
    where = f"outcome {record.n} of node {record.node}"
    slot, epoch = held.get(name), record.epoch
    assert epoch is not None
    if slot is None:
        raise Mismatch(f"no slot {name!r}, in which it was judged", where=where)
    if epoch > slot.epoch:
        raise Mismatch(f"it is of epoch {epoch}, and slot {name!r} is in epoch {slot.epoch}", where=where)
    if epoch == slot.epoch and record.judge != slot.judge:
        raise Mismatch(
            f"judge {record.judge!r} decided it in epoch {epoch}, which is {slot.judge!r}'s", where=where,
            hint="a judge that changes inside an epoch needs a new id and a new epoch",
        )  # fmt: skip
    return epoch == slot.epoch
