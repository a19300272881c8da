"""What worlds of writers and reviewers share: cells, verdicts, traps, and examinations by a hidden anchor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
from jaxtyping import Bool, Shaped
from numpy.typing import NDArray

from refork.stats.results import Array
from refork.types import Json
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.history import PANELS
from refork_methods.evolve.promote import Tally, tally
from refork_methods.evolve.records import Cell, EvaluatorSlot
from refork_methods.evolve.traps import TrapSet, trap_set

SLOT: Final = "review"
WRITER, REVIEWER = "writer", "reviewer"
LABELS: Final = "labels"
#: The name of a reviewer's cell on a trap or control that editors were shown, before the work's key.
TRAP: Final = "trap "


class Reviewer(Protocol):
    """Accepts or refuses works, the same ones every time."""

    @property
    def id(self) -> str:
        """Digest of all that a verdict depends on."""
        ...

    def accepts(self, works: Any, /) -> Bool[Array, "works"]:
        """Which works it accepts."""
        ...


W = TypeVar("W")
R = TypeVar("R", bound=Reviewer)


class BaseShop(ABC, Generic[W, R]):
    """Works by key, what is known of them, and reviewers by id; nothing of the anchor.

    All it says is a function of the world and the archive, so that a run that was cut goes on as it would
    have gone. ``replace``: whether judges may change at all.
    """

    replace: bool

    @abstractmethod
    def works(self, archive: Archive, keys: Sequence[str]) -> W:
        """The works of several keys, in order."""

    @abstractmethod
    def label(self, archive: Archive, key: str) -> int | None:
        """What a person who read a work says of it; None where none did."""

    @abstractmethod
    def traps(self, archive: Archive) -> TrapSet:
        """Traps and controls among the works."""

    @abstractmethod
    def shown(self, row: int) -> tuple[W, bool]:
        """One human work that reviewers are measured on, and whether to accept it."""

    @abstractmethod
    def reviewer_of(self, archive: Archive, node: int) -> R:
        """The reviewer of a node."""

    @abstractmethod
    def reviewer(self, archive: Archive, judge: str) -> R:
        """The reviewer of an id; raises BadInput where no node has it."""

    @abstractmethod
    def rivals(self, archive: Archive, slot: EvaluatorSlot) -> list[R]:
        """Who is examined beside the incumbent."""

    def trapped(self, archive: Archive, accepted: Mapping[str, str], cap: int, seed: int) -> TrapSet:
        """The traps and controls among accepted works: the digest of each by its key."""
        labels = {key: label for key in accepted if (label := self.label(archive, key)) is not None}
        return trap_set(accepted.items(), labels, cap, seed=seed)

    def trap_labels(self, archive: Archive) -> tuple[list[str], Bool[Array, "traps"]]:
        """Keys and labels of the traps and controls that editors were shown: those that have a cell."""
        keys = [cell.task.removeprefix(TRAP) for cell in archive.cells if cell.task.startswith(TRAP)]
        return keys, np.array([self.label(archive, key) == 1 for key in keys], dtype=bool)


def accepted_works(archive: Archive) -> list[str]:
    """Keys of all that any judge of the slot has accepted so far, its erased verdicts included."""
    records = (*archive.records, *archive.erased)
    return list(dict.fromkeys(one.artifact for one in records if one.cell.slot == SLOT and one.outcome))


class ShopEvaluator(Generic[W, R]):
    """Works are judged by the reviewer in the slot; reviewers by labelled human work and the traps shown."""

    def __init__(self, shop: BaseShop[W, R], tasks: int, shown: int) -> None:
        self._shop = shop
        self._base = [Cell(WRITER, f"t{i}", SLOT) for i in range(tasks)]
        self._base += [Cell(REVIEWER, f"h{i}") for i in range(shown)]

    def cells(self, archive: Archive) -> Sequence[Cell]:
        """Those of before, and a cell for every trap and control that editors are shown from now on."""
        shown = [Cell(REVIEWER, TRAP + trap.artifact) for trap in self._shop.traps(archive).train]
        return list(dict.fromkeys((*self._base, *archive.cells, *shown)))

    def evaluate(self, archive: Archive, node: int, cell: Cell, artifact: str | None) -> tuple[int, str, str]:
        """One verdict, on the cached artifact where there is one."""
        key = artifact or f"{node}:{cell.task}"
        if cell.slot is not None:
            judge = archive.slots[cell.slot].judge
            said = self._shop.reviewer(archive, judge).accepts(self._shop.works(archive, [key]))
            return int(said[0]), judge, key
        if cell.task.startswith(TRAP):
            name = cell.task.removeprefix(TRAP)
            work, right = self._shop.works(archive, [name]), self._shop.label(archive, name) == 1
        else:
            work, right = self._shop.shown(int(cell.task[1:]))
        said = self._shop.reviewer_of(archive, node).accepts(work)
        return int(bool(said[0]) == right), LABELS, key


class ShopExaminer(Generic[W, R]):
    """Holds the anchor, alone: works and their labels. Examines a shop's rivals on it and on held-out traps.

    ``panels`` are works of each source by which nobody chooses: there the stringency of judges is watched.
    """

    def __init__(
        self,
        shop: BaseShop[W, R],
        anchor: tuple[W, Shaped[Array, "works"]],
        panels: Mapping[str, W],
        fingerprint: str,
    ) -> None:
        self._shop, self._anchor, self._panels, self._fingerprint = shop, anchor, panels, fingerprint

    @property
    def fingerprint(self) -> str:
        """Digest of the anchor."""
        return self._fingerprint

    def examine(self, archive: Archive, slot: EvaluatorSlot) -> tuple[Tally, Sequence[Tally], Json]:
        """Counts on the anchor, and with traps on held-out traps and controls."""
        held = self._shop.traps(archive).held_out
        trapped = self._shop.works(archive, [trap.artifact for trap in held])
        labels = np.array([trap.label for trap in held], dtype=bool)
        controls = [trap.is_control for trap in held]

        def answers(reviewer: R) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
            right = reviewer.accepts(self._anchor[0]) == self._anchor[1]
            return right.astype(np.int8), (reviewer.accepts(trapped) == labels).astype(np.int8)

        incumbent = self._shop.reviewer(archive, slot.judge)
        base = answers(incumbent)

        def count(reviewer: R) -> Tally:
            mine = answers(reviewer)
            return tally(reviewer.id, mine[0], base[0], mine[1], base[1], controls)

        rivals = self._shop.rivals(archive, slot) if self._shop.replace else []
        panels = {one.id: self._watched(one) for one in (incumbent, *rivals)}
        notes = {"traps": len(held) - sum(controls), "controls": sum(controls), PANELS: panels}
        return count(incumbent), [count(rival) for rival in rivals], notes

    def _watched(self, reviewer: R) -> Json:
        """Accepted and judged of each source."""
        said = {source: reviewer.accepts(works) for source, works in self._panels.items()}
        return {source: [int(one.sum()), int(one.size)] for source, one in said.items()}
